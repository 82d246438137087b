"""Which platform a host is, from signals that need no driver call.

Signals and their strength: NVIDIA/go-nvlib `pkg/nvlib/info`, jetson_stats `jtop/core/hw_detect.py` and the L4T
releases of meta-tegra. A container entered over SSH may hide one signal, so Tegra is taken from either of two.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agents.host.root import Root

_GENERATION_OF_CHIP = {"tegra194": "xavier", "tegra234": "orin", "tegra264": "thor"}
_JETPACK_OF_L4T = {"35": "5", "36": "6", "38": "7", "39": "7"}
_L4T = re.compile(r"#\s*R(\d+)\s*\(release\),\s*REVISION:\s*([\d.]+)")
_SPARK = re.compile(r"DGX[ _]Spark", re.IGNORECASE)
_DISPLAY_CLASS = "0x03"
_NVIDIA = "0x10de"


@dataclass(frozen=True)
class Board:
    """A platform (`tegra`, `spark`, `x86`, `none`), its details where known, and why."""

    kind: str
    architecture: str
    generation: str | None
    model: str | None
    jetpack: str | None
    reasons: tuple[str, ...]

    @property
    def shares_memory(self) -> bool:
        """Whether the GPU uses the host's own memory, so that NVML can't tell how much there is."""
        return self.kind in ("tegra", "spark")


def l4t_release(root: Root) -> str | None:
    """A Jetson's L4T release as NVIDIA writes it, `R36.4.3`; None where the host names none."""
    match = _L4T.search(root.read_text("/etc/nv_tegra_release") or "")
    return f"R{match.group(1)}.{match.group(2)}" if match else None


def detect(root: Root, gpu_names: tuple[str, ...] = ()) -> Board:
    """Look at a host; the names are NVML's, where it answered."""
    architecture = (root.read_text("/proc/sys/kernel/arch") or os.uname().machine).strip()
    device_tree = root.read_text("/proc/device-tree/model") or root.read_text("/sys/firmware/devicetree/base/model")
    tegra = _tegra(root, architecture, (device_tree or "").strip("\0\n ") or None)
    return tegra or _not_tegra(root, architecture, gpu_names)


def _tegra(root: Root, architecture: str, model: str | None) -> Board | None:
    reasons = []
    release = root.read_text("/etc/nv_tegra_release")
    compatible = (root.read_text("/proc/device-tree/compatible") or "").split("\0")
    chips = [name.partition(",")[2] for name in compatible if name.startswith("nvidia,tegra")]
    family = (root.read_text("/sys/devices/soc0/family") or "").strip()
    if release is not None:
        reasons.append("/etc/nv_tegra_release exists: Tegra")
    if chips:
        reasons.append(f"the device tree is compatible with nvidia,{chips[0]}: Tegra")
    if family.lower().startswith("tegra"):
        reasons.append(f"/sys/devices/soc0/family is {family!r}: Tegra")
    if not reasons:
        return None
    generation = next((_GENERATION_OF_CHIP[chip] for chip in chips if chip in _GENERATION_OF_CHIP), None)
    if generation:
        reasons.append(f"the chip is {generation}")
    elif model:
        generation = next((name for name in _GENERATION_OF_CHIP.values() if name in model.lower()), None)
        if generation:
            reasons.append(f"the model {model!r} names {generation}")
    l4t = _L4T.search(release or "")
    jetpack = _JETPACK_OF_L4T.get(l4t.group(1)) if l4t else None
    if l4t:
        meaning = f"JetPack {jetpack}" if jetpack else "of a JetPack not known to this agent"
        reasons.append(f"L4T R{l4t.group(1)}.{l4t.group(2)}: {meaning}")
    return Board("tegra", architecture, generation, model, jetpack, tuple(reasons))


def _not_tegra(root: Root, architecture: str, gpu_names: tuple[str, ...]) -> Board:
    product = (root.read_text("/sys/class/dmi/id/product_name") or "").strip() or None
    kernel = root.read_text("/proc/sys/kernel/osrelease") or ""
    if root.exists("/dev/dxg") or "microsoft" in kernel.lower():
        return Board("none", architecture, None, product, None, ("this is WSL, on which KAI can't run",))
    if architecture == "aarch64":
        spark = [f"the firmware calls the machine {product!r}"] if product and _SPARK.search(product) else []
        spark += [f"NVML names the GPU {name!r}" for name in gpu_names if "GB10" in name]
        if spark:
            return Board("spark", architecture, None, product, None, ("aarch64 without Tegra signals", *spark))
    signs = [f"PCI device {path} is an NVIDIA GPU" for path in _pci_gpus(root)]
    signs += [f"NVML names the GPU {name!r}" for name in gpu_names]
    if root.exists("/proc/driver/nvidia/version"):
        signs.append("/proc/driver/nvidia/version exists")
    if signs:
        server = () if architecture == "x86_64" else (f"{architecture} with a discrete GPU is prepared as x86",)
        return Board("x86", architecture, None, product, None, (*server, *signs))
    return Board("none", architecture, None, product, None, ("no sign of an NVIDIA GPU",))


def _pci_gpus(root: Root) -> list[str]:
    return [
        path.rpartition("/")[0].rpartition("/")[2]
        for path in root.glob("/sys/bus/pci/devices/*/vendor")
        if (root.read_text(path) or "").strip() == _NVIDIA
        and (root.read_text(path[: -len("vendor")] + "class") or "").startswith(_DISPLAY_CLASS)
    ]
