"""Whether an object is another stack's, asked once more right before it is written."""

from cluster.access.answers.objects import LiveObject
from cluster.access.client import Cluster
from cluster.errors import ClusterError
from manifests.objects import Manifest
from manifests.ownership import FIELD_MANAGER, key, stack_of


def refuse_another_stacks(cluster: Cluster, ours: Manifest) -> None:
    """Stop before an object is made that another stack has made since preflight looked.

    Preflight of two runs that begin together, or of one that prepares hosts for minutes first, finds nothing. Symptom
    without it: both have the object in their state, and what one of them destroys is the other's.

    Args:
        cluster: where.
        ours: what is to be made, with the annotation of its field manager.

    Raises:
        ClusterError: if it is another stack's, or the cluster can't be asked.
    """
    live = cluster.find_object(ours)
    own = stack_of(ours["metadata"]["annotations"][FIELD_MANAGER])
    stacks = _stacks(live, ours) if live else set()
    if stacks and own not in stacks:
        raise ClusterError(
            f"{key(ours)} belongs to another stack of this program, '{min(stacks)}', which made it while this run was "
            "at work. It was left as it is. Use that stack, or choose another context: two stacks would take turns on "
            "it. What this run made, pulumi destroy removes."
        )


def _stacks(live: LiveObject, ours: Manifest) -> set[str]:
    """The stacks that wrote it; of a Node those that set one of our labels to another value."""
    there = live.content["metadata"].get("labels", {})
    desired = ours["metadata"].get("labels", {})
    labels = [label for label, value in desired.items() if there.get(label, value) != value]
    return {
        stack
        for entry in live.owners
        if (stack := stack_of(entry.manager)) is not None
        and (ours["kind"] != "Node" or any(map(entry.owns_label, labels)))
    }
