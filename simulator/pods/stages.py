"""KWOK's rules for a simulator where some pods are processes: it leaves those alone."""

from pathlib import Path

import yaml

from simulator.files import write_private
from simulator.pods.images import REAL

_NAME = '.spec.containers[].image | split("@") | first | split("/") | last | split(":") | first'
"""`toolchain.name_of` in jq."""


def render(stages: Path, folder: Path) -> None:
    """Write the rules of `stages` into `folder`, those of pods with one condition more."""
    folder.mkdir(mode=0o700, exist_ok=True)
    for file in stages.glob("*.yaml"):
        stage = yaml.safe_load(file.read_text(encoding="utf-8"))
        if stage["spec"]["resourceRef"]["kind"] == "Pod":
            emulated = {"key": _NAME, "operator": "NotIn", "values": list(REAL)}
            stage["spec"]["selector"]["matchExpressions"].append({"jq": emulated})
        write_private(folder / file.name, yaml.safe_dump(stage, sort_keys=False).encode())
