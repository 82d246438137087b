"""What `kai-anywhere --version` says: the version, its commit, and where each program comes from."""

import os
import subprocess
import tomllib
from collections.abc import Mapping

from rich import box
from rich.table import Table

from operations.plain_text import PlainText
from operations.target import ROOT
from toolchain.install import Located, survey
from toolchain.program import Program
from toolchain.programs import ALL

CHANGED = "-dirty"
"""What stands behind a commit from which files differ."""
_WIDTH = 160


def project_version() -> str:
    """The version of this checkout, such as `1.2.3`."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def commit() -> str:
    """The commit of this checkout, with a mark where files differ from it; empty for an archive, or without Git."""
    return asked_git("describe", "--always", f"--dirty={CHANGED}", "--abbrev=12", "--exclude=*")


def asked_git(*words: str) -> str:
    """What git says of this checkout; nothing for an archive, also in a repository of others, or without Git."""
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *words],
            check=False,
            capture_output=True,
            text=True,
            env=os.environ | {"GIT_CEILING_DIRECTORIES": str(ROOT.parent)},
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def version_text() -> str:
    """The whole text; looks at what is there, and asks no host."""
    at = f" ({revision})" if (revision := commit()) else ""
    return f"kai-anywhere {project_version()}{at} in {ROOT}\n\n{programs_text(survey(ALL).located)}"


def programs_text(located: Mapping[Program, Located]) -> str:
    """A line for each program: its version, its origin and its place."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("Program", "Version", "From", "Place"):
        table.add_column(column, overflow="fold")
    for program in ALL:
        if program in located:
            location = located[program]
            table.add_row(program.name, location.version or "unknown", location.origin.value, str(location.path))
        else:
            table.add_row(program.name, "-", "-", "not there yet; whoever needs it downloads or builds it")
    console = PlainText(_WIDTH)
    console.print(table)
    return "\n".join(line.rstrip() for line in console.text.strip("\n").splitlines())
