"""The step `cdi`: a CDI specification of the host's GPU. containerd watches the folder: no restart."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agents.host.change.plan import Step, change
from agents.host.errors import HostError
from agents.host.look import toolkit
from agents.host.look.toolkit import CSV_FOLDER
from agents.host.steps import ctk

if TYPE_CHECKING:
    from agents.host.context import Context

NAME = "cdi"
# JSON is YAML, and the name is the one that `nvidia-ctk cdi generate` is shown with everywhere: a second file beside it
# would name the same devices twice, which makes them unresolvable.
SPECIFICATION = "/etc/cdi/nvidia.yaml"
_CSV_FILES = ("devices.csv", "drivers.csv", "l4t.csv")
"""The only ones that csv mode reads unless told otherwise."""


def plan(context: Context) -> Step:
    """Plan the CDI specification.

    Raises:
        HostError: It can't be generated.
    """
    if not context.desired.cdi.generate:
        return Step(NAME, "not asked for")
    root = context.tools.root
    toolkit.refuse_two_owners(root)
    tegra = context.desired.platform == "tegra"
    csv = [str(root.path(f"{CSV_FOLDER}/{name}")) for name in _CSV_FILES if root.exists(f"{CSV_FOLDER}/{name}")]
    if tegra and not csv:
        raise HostError(
            f"{CSV_FOLDER} holds none of {', '.join(_CSV_FILES)}, so there is nothing to describe the GPU with.",
            "Install the package nvidia-container of JetPack.",
        )
    mode = "csv" if tegra else "auto"
    specification = ctk.cdi_specification(context.tools, context.staging / "cdi.json", mode, csv)
    return Step(NAME, f"generated in mode {mode}", change(root, SPECIFICATION, _text(specification)))


def looks_written(content: bytes) -> bool:
    """Whether a specification is spelled as this agent does."""
    try:
        return content == _text(json.loads(content.decode("utf-8")))
    except ValueError:
        return False


def _text(specification: dict[str, Any]) -> bytes:
    return (json.dumps(specification, indent=2, sort_keys=True) + "\n").encode()
