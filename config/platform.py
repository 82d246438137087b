"""The platform of a stack: a closed union that decides everything in which Jetson and x86 differ."""

from enum import StrEnum, unique
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from config.model import GpuMemoryMib, HostPath, NodeName, Settings


@unique
class RuntimeMode(StrEnum):
    """How the NVIDIA container runtime injects a GPU (`nvidia-container-runtime.mode` of NVIDIA Container Toolkit)."""

    AUTO = "auto"
    CSV = "csv"
    LEGACY = "legacy"
    CDI = "cdi"


@unique
class ToolkitOwner(StrEnum):
    """Who installs and configures the NVIDIA Container Toolkit on a node; never both.

    `host` is what JetPack ships: the operator's wrapper pins its own configuration file and ignores the host's
    (NVIDIA Container Toolkit v1.20.0, cmd/nvidia-ctk-installer/toolkit/installer/executables.go).
    """

    HOST = "host"
    OPERATOR = "operator"


def _on_a_search_path(folder: str) -> str:
    if ":" in folder:
        raise PydanticCustomError(
            "library_folder", "not a folder of libraries: ':' separates folders in LD_LIBRARY_PATH and in mounts"
        )
    return folder


def _mountable(folder: str) -> str:
    if ":" in folder:
        raise PydanticCustomError("device_folder", "not a folder that a pod can have: its mounts take no ':'")
    return folder


def _each_once(folders: list[str]) -> list[str]:
    if len(set(folders)) != len(folders):
        twice = next(folder for folder in folders if folders.count(folder) > 1)
        raise PydanticCustomError("folder_twice", "'{folder}' is listed twice: remove one", {"folder": twice})
    return folders


LibraryFolder = Annotated[HostPath, AfterValidator(_on_a_search_path)]
"""A folder of the driver's libraries on a node; a pod sees it under the same path."""


DeviceFolder = Annotated[HostPath, AfterValidator(_mountable)]
"""A folder of device files on a node; a pod sees it under the same path."""


class TegraNode(Settings):
    """One Jetson: its integrated GPU shares the board's memory, so nobody but us labels it.

    Without `gpu_memory_mib`, the node's host is asked. Without `driver_library_paths`, the platform's
    `driver_library_path` holds the driver's libraries.
    """

    gpu_memory_mib: GpuMemoryMib | None = None
    """Memory that KAI may share on this node. Stay below MemTotal (`free --mebi`): the system needs its part. Without
    it, the node's host is asked."""
    gpu_count: Annotated[int, Field(ge=1, le=16)] = 1
    """How many GPUs the node has."""
    driver_library_paths: (
        Annotated[list[LibraryFolder], Field(min_length=1, max_length=8), AfterValidator(_each_once)] | None
    ) = None
    """Folders to look for libnvidia-ml.so.1 on this node, if not in `driver_library_path`; the first that has it is
    used."""


class UnifiedMemoryNode(Settings):
    """A node that shares its memory with the GPU but is not Tegra (DGX Spark, GB10).

    Without `gpu_memory_mib`, the node's host is asked.
    """

    gpu_memory_mib: GpuMemoryMib | None = None
    """Memory that KAI may share on this node. Stay below MemTotal (`free --mebi`): the system needs its part. Without
    it, the node's host is asked."""


class TegraPlatform(Settings):
    """Jetson. Nodes listed here get labels and reservation overrides; other nodes of the cluster get neither."""

    kind: Literal["tegra"]
    """Jetson."""
    tegra_nodes: Annotated[dict[NodeName, TegraNode], Field(min_length=1)]
    """Every Jetson by its node name (`kubectl get nodes`)."""
    driver_library_path: LibraryFolder = "/usr/lib/aarch64-linux-gnu/nvidia"
    """Where JetPack puts libnvidia-ml.so.1 on the Jetsons. JetPack 6 and 7 use the default."""
    device_path: DeviceFolder = "/dev"
    """Where the Jetsons have their device files."""
    container_runtime_mode: RuntimeMode = RuntimeMode.AUTO
    container_toolkit: ToolkitOwner = ToolkitOwner.HOST
    unified_memory_nodes: dict[NodeName, UnifiedMemoryNode] = {}
    """Nodes that share their memory with the GPU, but are no Jetson (DGX Spark, GB10), by node name."""

    @model_validator(mode="after")
    def _a_node_is_one_thing(self) -> "TegraPlatform":
        for node in self.tegra_nodes:
            if node in self.unified_memory_nodes:
                raise PydanticCustomError(
                    "node_listed_twice",
                    "node '{node}' is listed under tegra_nodes and unified_memory_nodes. A Jetson belongs under "
                    "tegra_nodes, a DGX Spark under unified_memory_nodes: remove one entry.",
                    {"node": node},
                )
        return self

    @property
    def jetsons(self) -> dict[str, TegraNode]:
        """The Jetsons that the stack names."""
        return self.tegra_nodes

    def library_folders(self, node: str) -> tuple[str, ...]:
        """A Jetson's folders of the driver's libraries, in the order in which programs look."""
        declared = self.tegra_nodes[node].driver_library_paths
        return (self.driver_library_path,) if declared is None else tuple(declared)

    @property
    def operator_runtime_mode(self) -> RuntimeMode:
        """The mode where the operator installs the toolkit; with the hosts' own on Jetsons, `auto` on all others."""
        match self.container_toolkit:
            case ToolkitOwner.OPERATOR:
                return self.container_runtime_mode
            case ToolkitOwner.HOST:
                return RuntimeMode.AUTO


class X86Platform(Settings):
    """Nodes where the NVIDIA Container Toolkit does its whole work: discrete GPUs, and DGX Spark."""

    kind: Literal["x86"]
    """Discrete GPUs, and DGX Spark."""
    container_runtime_mode: RuntimeMode = RuntimeMode.AUTO
    unified_memory_nodes: dict[NodeName, UnifiedMemoryNode] = {}
    """Nodes that share their memory with the GPU, but are no Jetson (DGX Spark, GB10), by node name."""

    @model_validator(mode="before")
    @classmethod
    def _tegra_nodes_belong_to_a_tegra_stack(cls, data: object) -> object:
        if isinstance(data, dict) and "tegra_nodes" in data:
            raise PydanticCustomError(
                "tegra_nodes_in_x86_stack",
                "tegra_nodes are listed in an x86 stack: its reservation pods get no Tegra overrides, so these nodes "
                "would crash-loop with ERROR_LIBRARY_NOT_FOUND. Set kind: tegra (x86 nodes of the same cluster keep "
                "working), or remove tegra_nodes.",
            )
        return data

    @property
    def jetsons(self) -> dict[str, TegraNode]:
        """The Jetsons that the stack names: none."""
        return {}

    @property
    def operator_runtime_mode(self) -> RuntimeMode:
        """The mode where the operator installs the toolkit, which is every node."""
        return self.container_runtime_mode


Platform = Annotated[TegraPlatform | X86Platform, Field(discriminator="kind")]
