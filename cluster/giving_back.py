"""Gives back what an object held before a stack adopted it."""

from cluster.client import Cluster
from manifests.objects import Manifest
from manifests.ownership import BEFORE, FIELD_MANAGER, kept_values, to_give_back

_MANAGER_MAX = 128


def give_back_values(cluster: Cluster, ours: Manifest) -> None:
    """Put the kept values back where ours still stand, and let go of every other field that is ours.

    Raises:
        ClusterError: if the cluster refuses; nothing is forgotten then.
    """
    live = cluster.find_object(ours)
    if live is None:
        return
    metadata = ours["metadata"]
    bare = {
        "apiVersion": ours["apiVersion"],
        "kind": ours["kind"],
        "metadata": {field: metadata[field] for field in ("name", "namespace") if field in metadata},
    }
    manager = metadata["annotations"][FIELD_MANAGER]
    back = to_give_back(kept_values(metadata["annotations"][BEFORE]), ours, live.content)
    # By a manager of its own: what this one does not name any more would be removed.
    cluster.apply(
        bare | back | {"metadata": bare["metadata"] | back.get("metadata", {})},
        manager=f"given-back/{manager}"[:_MANAGER_MAX],
    )
    cluster.apply(bare, manager=manager)
