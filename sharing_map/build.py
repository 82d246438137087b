"""From what was read of a cluster to the sharing map: which pod has which share of which GPU. Pure."""

import re
from collections.abc import Sequence

from cluster.snapshot import Snapshot
from sharing_map.nodes import node_status
from sharing_map.queues import queue_tree
from sharing_map.report import NodeStatus, Status, Summary, Unreadable
from sharing_map.view import View
from sharing_map.waiting import pending_pods


def build(snapshot: Snapshot, *, context: str, server: str, simulated: bool) -> Status:
    """The map.

    Args:
        snapshot: what was read.
        context: of the kubeconfig.
        server: the API server's address.
        simulated: whether it is a stack's simulator.
    """
    view = View.of(snapshot)
    nodes = tuple(node_status(name, view) for name in sorted(view.nodes.keys() | view.pods_of.keys(), key=_natural))
    pending = tuple(pending_pods(view))
    return Status(
        taken=snapshot.taken,
        context=context,
        server=server,
        simulated=simulated,
        summary=_summary([node for node in nodes if node.name in view.nodes], len(pending), view),
        nodes=nodes,
        pending=pending,
        queues=tuple(queue_tree(snapshot.queues, view, pending)),
        unseen=tuple(Unreadable(what=unread.what, why=unread.why) for unread in snapshot.unseen),
    )


def _natural(name: str) -> tuple[int | str, ...]:
    """The order in which people count: jetson-2 before jetson-10."""
    return tuple(int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name))


def _summary(nodes: Sequence[NodeStatus], pending: int, view: View) -> Summary:
    with_gpus = [node for node in nodes if node.gpu_count.value or node.gpus]
    gpus = [(gpu, node.takes_pods) for node in with_gpus if node.sharing.value == "kai" for gpu in node.gpus]
    usable = [max(0, gpu.free_mib or 0) for gpu, on_usable in gpus if on_usable]
    free = sum(max(0, gpu.free_mib or 0) for gpu, _ in gpus)
    knows_nodes, knows_pods = view.knows_nodes, view.knows_pods
    knows_both = knows_nodes and knows_pods
    return Summary(
        nodes=len(nodes) if knows_nodes else None,
        gpu_nodes=len(with_gpus) if knows_nodes else None,
        gpus=sum(node.gpu_count.value for node in with_gpus) if knows_nodes else None,
        shared_mib=sum(node.can_share_mib or 0 for node in nodes) if knows_nodes else None,
        taken_mib=sum(gpu.taken_mib or 0 for gpu, _ in gpus) if knows_both else None,
        free_mib=sum(usable) if knows_both else None,
        unavailable_mib=free - sum(usable) if knows_both else None,
        largest_free_mib=max(usable, default=0) if knows_both else None,
        shares=sum(1 for user in view.users if user.node) if knows_pods else None,
        claiming=len(view.snapshot.claiming) if knows_pods else None,
        pending=pending if knows_pods else None,
    )
