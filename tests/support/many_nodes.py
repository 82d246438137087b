"""More Jetsons than are a resource each."""

import simulator
from manifests.node_labels import MANY_NODES
from testbed.stacks import Json, changed

NODES = [f"jetson-{number}" for number in range(1, MANY_NODES + 3)]
MANY, ONE = "kai-anywhere:index:ManyNodeLabels", "kubernetes:core/v1:NodePatch"
"""What labels all of them, and what labels one."""


def add(control_plane: simulator.ControlPlane) -> None:
    """Have them in a simulator that runs."""
    simulator.up(control_plane.folder, nodes=dict.fromkeys(NODES, simulator.NodeKind.JETSON))


def with_nodes(settings: Json, nodes: list[str] = NODES) -> Json:
    """A stack's settings with some of them, each with a memory of its own, and no other Jetson."""
    memory = {node: {"gpu_memory_mib": 28672 + NODES.index(node)} for node in nodes}
    return changed(settings, "platform.tegra_nodes", memory)
