"""Labels of many nodes at once, by server-side apply: one list of all nodes, then one request for each that changes.

What `kubernetes:core/v1:NodePatch` does for one node, for all of a stack: by force, so that an edited label comes back;
never for a node that is not there; and released, so that labels that somebody else set as well stay.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from cluster.access.answers.nodes import NodeMetadata
from cluster.access.client import Cluster
from cluster.errors import ClusterError
from cluster.ownership.another_stack import another_stack, belongs_to
from cluster.ownership.giving_back import GIVEN_BACK, MANAGER_MAX, not_of_siblings
from manifests.objects import Manifest
from manifests.ownership import BEFORE, kept_values, to_give_back

_AT_ONCE = 8
"""Requests. The API server's own limits for one user are far above; more than this gained nothing on two cores."""


@dataclass(frozen=True)
class Labelled:
    """What came of it.

    Attributes:
        nodes: those that are as they were asked to be.
        problems: by node, what the API server has against it.
    """

    nodes: frozenset[str] = frozenset()
    problems: Mapping[str, str] = field(default_factory=dict)


def set_labels(cluster: Cluster, nodes: Mapping[str, Manifest], *, manager: str) -> Labelled:
    """Have every node hold what its manifest says, and nothing else of this manager's.

    A node that another stack has labelled since preflight looked is left to it, as every object is that is yet to be
    made (components/adoption.py); the hooks there ask for one object, and here is the list of all.

    Args:
        cluster: where.
        nodes: name -> a Node with labels, and annotations where it was adopted.
        manager: the field manager.

    Raises:
        ClusterError: if the API server can't be asked.
    """
    if not nodes:
        return Labelled()
    live_nodes = cluster.node_metadata()

    def apply(name: str) -> str | None:
        if name not in live_nodes:
            return "the cluster has no node of this name"
        manifest, live = nodes[name], live_nodes[name]
        is_new = all(entry.manager != manager for entry in live.owners)
        if is_new and (stack := another_stack(manifest, live.labels, live.owners, manager)) is not None:
            return f"its label {belongs_to(stack)}"
        # With its UID, a node that goes meanwhile is not made by the request.
        ours = manifest | {"metadata": manifest["metadata"] | {"uid": live.uid}}
        objection = cluster.apply_metadata(ours, manager=manager)
        return None if objection is None else objection.message

    return _on_nodes(nodes, apply)


def release_labels(cluster: Cluster, nodes: Mapping[str, Manifest], *, manager: str) -> Labelled:
    """Let go of what this manager set: it goes where nobody else set it too, and adopted values come back.

    Args:
        cluster: where.
        nodes: as they were set.
        manager: the field manager.

    Raises:
        ClusterError: if the API server can't be asked.
    """
    if not nodes:
        return Labelled()
    live_nodes = cluster.node_metadata()

    def release(name: str) -> str | None:
        live = live_nodes.get(name)
        if live is None or all(entry.manager != manager for entry in live.owners):
            return None
        bare: Manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": live.uid}}
        back = _given_back(nodes[name], live, manager)
        if back:
            # By a manager of its own: what this one does not name any more would be removed.
            again = bare | {"metadata": bare["metadata"] | {"labels": back}}
            objection = cluster.apply_metadata(again, manager=f"{GIVEN_BACK}{manager}"[:MANAGER_MAX])
            if objection is not None:
                return objection.message
        objection = cluster.apply_metadata(bare, manager=manager)
        return None if objection is None else objection.message

    return _on_nodes(nodes, release)


def read_labels(cluster: Cluster, nodes: Mapping[str, Manifest]) -> dict[str, Manifest]:
    """The same manifests with the values that their labels have now; labels and nodes that are gone are left out.

    Raises:
        ClusterError: if the API server can't be asked.
    """
    live_nodes = cluster.node_metadata()
    return {name: _as_it_is(manifest, live_nodes[name]) for name, manifest in nodes.items() if name in live_nodes}


def _as_it_is(manifest: Manifest, live: NodeMetadata) -> Manifest:
    labels = manifest["metadata"].get("labels", {})
    current = {label: live.labels[label] for label in labels if label in live.labels}
    return manifest | {"metadata": manifest["metadata"] | {"labels": current}}


def _given_back(ours: Manifest, live: NodeMetadata, manager: str) -> dict[str, Any]:
    annotations = ours["metadata"].get("annotations", {})
    if BEFORE not in annotations:
        return {}
    owners = [entry for entry in live.owners if entry.manager == manager]
    still_ours = {
        label: live.labels[label] for label in live.labels if any(entry.owns_label(label) for entry in owners)
    }
    current = {"metadata": {"labels": still_ours}}
    back = to_give_back(kept_values(annotations[BEFORE]), ours, current).get("metadata", {}).get("labels", {})
    return not_of_siblings(back, live.owners, manager)


def _on_nodes(names: Iterable[str], change: Callable[[str], str | None]) -> Labelled:
    def guarded(name: str) -> tuple[str, str | None]:
        try:
            return name, change(name)
        except ClusterError as error:
            return name, str(error)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(guarded, names))
    return Labelled(
        nodes=frozenset(name for name, problem in answers if problem is None),
        problems={name: problem for name, problem in answers if problem is not None},
    )
