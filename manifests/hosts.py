"""What each host must be, and what is put into force there: the document that its agent reads."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, unique

from config.hosts import HostSettings
from config.platform import TegraPlatform, ToolkitOwner
from config.stack import StackSettings

_VERSION = 1
"""Of the document, which the agent checks."""


@unique
class HostPlatform(StrEnum):
    """What a host is, in the agent's words."""

    TEGRA = "tegra"
    SPARK = "spark"
    X86 = "x86"
    NONE = "none"


@dataclass(frozen=True)
class HostPlan:
    """What the stack expects of a host.

    Attributes:
        node: its name in the cluster.
        platform: what it must be.
        distribution: the Kubernetes distribution that it must run, if any.
        gpu_memory_mib: declared memory of one GPU, or None where the host is asked or nobody needs it.
        gpu_count: declared GPUs, or None where GPU Feature Discovery counts them.
        memory_reserve_mib: what stays with the system of memory that the host is asked for.
        library_folders: where its reservation pods find the driver's libraries; none where they are given none.
        desired: the agent's document.
    """

    node: str
    platform: HostPlatform
    distribution: str
    gpu_memory_mib: int | None
    gpu_count: int | None
    memory_reserve_mib: int
    library_folders: tuple[str, ...]
    desired: Mapping[str, object]

    @property
    def desired_text(self) -> str:
        """The document in one line, the same for the same settings."""
        return json.dumps(self.desired, sort_keys=True, separators=(",", ":"))


def host_plans(settings: StackSettings) -> dict[str, HostPlan]:
    """The plan of every host of a stack, sorted by node."""
    return {node: _plan(settings, node, settings.hosts[node]) for node in sorted(settings.hosts)}


def _plan(settings: StackSettings, node: str, host: HostSettings) -> HostPlan:
    stack = settings.platform
    platform, memory, count, owner = HostPlatform.X86, None, None, ToolkitOwner.OPERATOR
    if isinstance(stack, TegraPlatform) and node in stack.tegra_nodes:
        declared = stack.tegra_nodes[node]
        platform, memory, count = HostPlatform.TEGRA, declared.gpu_memory_mib, declared.gpu_count
        owner = stack.container_toolkit
    elif node in stack.unified_memory_nodes:
        platform, memory = HostPlatform.SPARK, stack.unified_memory_nodes[node].gpu_memory_mib
    overridden = settings.overridden_platform
    folders = overridden.library_folders(node) if overridden and node in overridden.tegra_nodes else ()
    distribution = (host.distribution or settings.cluster.distribution).value
    return HostPlan(
        node=node,
        platform=platform,
        distribution=distribution,
        gpu_memory_mib=memory,
        gpu_count=count,
        memory_reserve_mib=host.gpu_memory_reserve_mib,
        library_folders=folders,
        desired={
            "version": _VERSION,
            "platform": platform.value,
            "toolkit": {
                "owner": (host.toolkit.owner or owner).value,
                "mode": (host.toolkit.mode or stack.container_runtime_mode).value,
            },
            "distribution": distribution,
            "docker": {"configure": host.docker.configure, "default_runtime": host.docker.default_runtime},
            "cdi": {"generate": host.cdi.generate},
            "images": [{"reference": reference} for reference in host.images],
            "restart": {"timeout_seconds": host.timeouts.restart_seconds},
        },
    )
