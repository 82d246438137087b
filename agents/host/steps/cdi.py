"""The step `cdi`: a CDI specification of the host's GPU, on Tegra also under the GPU's UUID.

KAI asks for a GPU by its UUID, but the specification for Tegra names only `0` and `all` (NVIDIA Container Toolkit 1.19
on, csv mode). containerd watches the folder: no restart.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agents.host.change.plan import Step, change
from agents.host.errors import HostError
from agents.host.look import toolkit
from agents.host.steps import ctk

if TYPE_CHECKING:
    from agents.host.context import Context

NAME = "cdi"
# JSON is YAML, and the name is the one that `nvidia-ctk cdi generate` is shown with everywhere: a second file beside it
# would name the same devices twice, which makes them unresolvable.
SPECIFICATION = "/etc/cdi/nvidia.yaml"
_CSV_FOLDER = "/etc/nvidia-container-runtime/host-files-for-container.d"
_CSV_FILES = ("devices.csv", "drivers.csv", "l4t.csv")
"""The only ones that csv mode reads unless told otherwise."""


def plan(context: Context) -> Step:
    """Plans the CDI specification.

    Raises:
        HostError: It can't be generated, or the UUID is asked for and not known.
    """
    cdi = context.desired.cdi
    if not cdi.generate:
        return Step(NAME, "not asked for")
    root = context.tools.root
    toolkit.refuse_two_owners(root)
    tegra = context.desired.platform == "tegra"
    csv = [str(root.path(f"{_CSV_FOLDER}/{name}")) for name in _CSV_FILES if root.exists(f"{_CSV_FOLDER}/{name}")]
    if tegra and not csv:
        raise HostError(
            f"{_CSV_FOLDER} holds none of {', '.join(_CSV_FILES)}, so there is nothing to describe the GPU with.",
            "Install the package nvidia-container of JetPack.",
        )
    mode = "csv" if tegra else "auto"
    specification = ctk.cdi_specification(context.tools, context.staging / "cdi.json", mode, csv)
    detail = f"generated in mode {mode}"
    if cdi.uuid_names:
        uuid = _uuid(context)
        specification["devices"] = _named(specification["devices"], uuid)
        detail += f", the GPU also named {uuid}"
    return Step(NAME, detail, change(root, SPECIFICATION, _text(specification)))


def looks_written(content: bytes) -> bool:
    """Tells whether a specification is spelled as this agent does."""
    try:
        return content == _text(json.loads(content.decode("utf-8")))
    except ValueError:
        return False


def _text(specification: dict[str, Any]) -> bytes:
    return (json.dumps(specification, indent=2, sort_keys=True) + "\n").encode()


def _uuid(context: Context) -> str:
    gpus = context.hardware.nvml.gpus
    if len(gpus) != 1 or gpus[0].uuid is None:
        why = context.hardware.nvml.reason or f"it lists {len(gpus)} GPUs"
        raise HostError(
            f"The GPU's UUID can't be told by NVML ({why}), so CDI can't name it.",
            "Use JetPack 6 or later with a working driver, or switch cdi.uuid_names off.",
        )
    return gpus[0].uuid


def _named(devices: list[dict[str, Any]], uuid: str) -> list[dict[str, Any]]:
    first = next((device for device in devices if device.get("name") == "0"), None)
    if first is None:
        names = ", ".join(str(device.get("name")) for device in devices) or "none"
        raise HostError(f"`nvidia-ctk cdi generate` names no device '0', but {names}.", "Install a newer toolkit.")
    others = [device for device in devices if device.get("name") != uuid]
    return [*others, dict(first, name=uuid)]
