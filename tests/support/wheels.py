"""The packages that environments of tests are made of, fetched from the index once for all of them.

To look through what the index has of sixty packages is most of what pip does where it installs them.
"""

import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from testbed.made_once import made_once
from testbed.stacks import ROOT


def from_wheels() -> Mapping[str, str]:
    """Environment variables with which pip takes packages from a folder, as docs/air-gapped.md says."""
    folder = made_once("wheels", _fetch)
    assert folder
    # For pip's `--no-compile` it is 0 that compiles nothing: Python compiles what is imported.
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_NO_COMPILE": "0"}


def _fetch(folder: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    # What `pulumi install` asks for beside a program's own.
    tools = ("pip", "setuptools", "wheel", *project["build-system"]["requires"])
    for packages in (("--requirement", str(ROOT / "requirements.txt")), tools):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder), *packages]
        subprocess.run(command, check=True)
