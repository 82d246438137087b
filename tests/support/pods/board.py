"""A Jetson on the real node: a library in NVML's place, a device file, and a device plugin that gives them out.

What containers get of them is the kubelet's, containerd's and runc's doing; whether the library can open the device
file is the kernel's. The plugin also does the part of a container toolkit that injects: a container that gets a device
from it has the device file, with the owner and the mode that it has on the node, and the library where the loader
looks for it.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.stacks import Json, changed, jetson
from testbed.waiting import eventually
from tests.support.hosts.roots import NVML, mock_library
from tests.support.pods.real_node import NAME, RealNode
from tests.support.pods.runs import PATIENT_SECONDS
from tests.support.pods.stand_ins.device_plugin import Plugin, message, serve

RESOURCE = "nvidia.com/gpu"
NULL_DEVICE = (1, 3)
"""Major and minor number of /dev/null: every kernel has it, and every container's cgroup allows it."""
_LIBRARIES, _DEVICES = "/run/board/lib", "/run/board/dev"
_DEVICE = f"{_DEVICES}/nvmap"
_LOADER = "/usr/lib"
"""Where the loader looks without being told."""


@dataclass
class Board:
    """The board, which a test changes.

    Attributes:
        root: the node's files.
        injects: whether containers get device and library, as by a container toolkit.
        gpus: how many GPUs the library tells.
    """

    root: Path
    injects: bool = False
    gpus: int = 1

    def reset(self) -> None:
        """Inject nothing; one GPU, whose device file is open to everybody."""
        self.injects, self.gpus = False, 1
        (self.root / _DEVICE.lstrip("/")).chmod(0o666)

    def opens_for(self, group: int) -> None:
        """Close the device file to all but root and a group."""
        device = self.root / _DEVICE.lstrip("/")
        os.chown(device, 0, group)
        device.chmod(0o660)

    def allocated(self) -> bytes:
        """What a container gets: a `ContainerAllocateResponse`."""
        variables = {"MOCK_NVML_DEVICE": _DEVICE, "MOCK_NVML_COUNT": str(self.gpus)}
        given = [(1, message((1, name), (2, value))) for name, value in variables.items()]
        if self.injects:
            given.append((2, message((1, f"{_LOADER}/{NVML}"), (2, f"{_LIBRARIES}/{NVML}"))))
            given.append((3, message((1, _DEVICE), (2, _DEVICE), (3, "rw"))))
        return message(*given)


def stack() -> Json:
    """The Jetson stack with the board."""
    node = {"gpu_memory_mib": 57344, "driver_library_paths": [_LIBRARIES]}
    return changed(changed(jetson(), f"platform.tegra_nodes.{NAME}", node), "platform.device_path", _DEVICES)


@contextmanager
def board(node: RealNode) -> Iterator[Board]:
    """Put the board into the node, which then offers its GPU."""
    root = node.root
    device = root / _DEVICE.lstrip("/")
    device.parent.mkdir(parents=True)
    os.mknod(device, stat.S_IFCHR, os.makedev(*NULL_DEVICE))
    mock_library(root / _LIBRARIES.lstrip("/"), NVML)
    made = Board(root)
    made.reset()
    plugin = serve(root / "var/lib/kubelet/device-plugins", RESOURCE, Plugin(1, made.allocated))
    try:
        eventually(lambda: node.allocatable(RESOURCE) == "1", within_seconds=PATIENT_SECONDS)
        yield made
    finally:
        plugin.stop(None).wait()
