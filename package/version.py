"""The package's version, apart from what needs the settings' models: the engine asks every process of it."""

import tomllib
from pathlib import Path

_PROJECT = Path(__file__).parents[1] / "pyproject.toml"
VERSION = str(tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]["version"])
"""The program's own; a release's tag is the same (operations/release/commands.py)."""
