"""This program's own provider, `package/pulumi-resource-kai-anywhere`, and whether the engine finds it."""

import shutil
from pathlib import Path

import yaml

_NAME = "kai-anywhere"
_EXECUTABLE = f"pulumi-resource-{_NAME}"


def is_found(project: Path) -> bool:
    """Whether a project names the provider under `plugins`, or it is on PATH, where the engine looks as well.

    Args:
        project: the folder of Pulumi.yaml.
    """
    return shutil.which(_EXECUTABLE) is not None or _is_named(project / "Pulumi.yaml")


def _is_named(file: Path) -> bool:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        return any(provider["name"] == _NAME for provider in content["plugins"]["providers"])
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError):
        return False
