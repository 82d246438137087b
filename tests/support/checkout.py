"""A fresh checkout in which a newcomer's commands run."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import simulator
from testbed.stacks import ROOT, STACK_FILES


def copy_tracked(folder: Path) -> None:
    """Copy what git tracks, or would track, without the user's stack files."""
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    for file in files:
        if re.fullmatch(r"Pulumi\.[^/]+\.yaml", file):
            continue
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, target)


@contextmanager
def fresh(folder: Path) -> Iterator[Path]:
    """A clone with the installed environment of this one and the tests' stack files; no simulator stays at the end."""
    copy_tracked(folder)
    shutil.copytree(STACK_FILES, folder, dirs_exist_ok=True)
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / ".venv" / "installed").touch()
    try:
        yield folder
    finally:
        for stack in ("jetson", "x86"):
            simulator.reset(folder / ".simulator" / stack / "cluster")


def shell(script: str, folder: Path, environment: Mapping[str, str] | None = None, *, expect: int = 0) -> str:
    """Run a script in a checkout; without a kubeconfig and with an emulated KAI, unless the environment says so."""
    own = {key: value for key, value in os.environ.items() if key not in {"KUBECONFIG", "MAKEFLAGS", "MAKELEVEL"}}
    own["KAI_PROGRAMS"] = "emulated"  # also where its images could be fetched
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=folder,
        env=own | dict(environment or {}),
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == expect, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr
