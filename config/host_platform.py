"""What a stack's hosts and its platform must agree on."""

from collections.abc import Mapping

from pydantic_core import PydanticCustomError

from config.cluster import ClusterSettings, Distribution
from config.hosts import HostSettings
from config.platform import Platform, TegraPlatform, ToolkitOwner, X86Platform


def check_hosts_of_platform(
    hosts: Mapping[str, HostSettings], platform: Platform, cluster: ClusterSettings, *, operator_installs: bool
) -> None:
    """Refuse what no host could fulfil.

    Args:
        hosts: by node name.
        platform: the stack's.
        cluster: the stack's.
        operator_installs: whether the stack installs the GPU Operator, which then owns the toolkit of x86 nodes.
    """
    for node, host in hosts.items():
        tegra = platform if isinstance(platform, TegraPlatform) and node in platform.tegra_nodes else None
        _one_owner(node, host, tegra, operator_installs=operator_installs)
        distribution = host.distribution or cluster.distribution
        if host.images and distribution is not Distribution.K3S:
            raise PydanticCustomError(
                "host_images",
                "hosts.{node}.images is for k3s; the distribution is '{distribution}'. Push the images to a registry.",
                {"node": node, "distribution": distribution.value},
            )


def _one_owner(node: str, host: HostSettings, tegra: TegraPlatform | None, *, operator_installs: bool) -> None:
    owner = host.toolkit.owner
    if owner is None:
        return
    if tegra is not None and owner is not tegra.container_toolkit:
        raise PydanticCustomError(
            "toolkit_owner",
            "hosts.{node}.toolkit.owner is '{owner}', but platform.container_toolkit is '{platform}': the toolkit of a "
            "node has one owner. Remove hosts.{node}.toolkit.owner.",
            {"node": node, "owner": owner.value, "platform": tegra.container_toolkit.value},
        )
    if tegra is None and owner is ToolkitOwner.HOST and operator_installs:
        raise PydanticCustomError(
            "toolkit_owner",
            "hosts.{node}.toolkit.owner is 'host', but the GPU Operator of this stack installs the toolkit on every "
            "x86 node: the toolkit of a node has one owner. Set it to operator, or gpu_operator.install: false.",
            {"node": node},
        )


def check_memory_is_known(hosts: Mapping[str, HostSettings], platform: Platform) -> None:
    """Refuse a node that shares its memory with the GPU, and neither says how much nor has a host that is asked.

    Args:
        hosts: by node name.
        platform: the stack's.
    """
    shared = {
        f"unified_memory_nodes.{node}": declared.gpu_memory_mib
        for node, declared in platform.unified_memory_nodes.items()
    }
    match platform:
        case TegraPlatform(tegra_nodes=nodes):
            shared |= {f"tegra_nodes.{node}": declared.gpu_memory_mib for node, declared in nodes.items()}
        case X86Platform():
            pass
    for where, declared in shared.items():
        host = hosts.get(where.partition(".")[2])
        if declared is None and (host is None or host.gone):
            raise PydanticCustomError(
                "memory_unknown",
                "platform.{where}.gpu_memory_mib is required: no host of that name is asked for it. Write MiB below "
                "MemTotal (free --mebi), or add the machine under hosts.",
                {"where": where},
            )
