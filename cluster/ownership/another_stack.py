"""Whether an object is another stack's, asked once more right before it is written."""

from collections.abc import Mapping, Sequence

from cluster.access.answers.answer import FieldOwner
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
    if live is None:
        return
    there, manager = live.content["metadata"].get("labels", {}), ours["metadata"]["annotations"][FIELD_MANAGER]
    if (stack := another_stack(ours, there, live.owners, manager)) is not None:
        raise ClusterError(f"{key(ours)} {belongs_to(stack)} What this run made, pulumi destroy removes.")


def another_stack(ours: Manifest, there: Mapping[str, str], owners: Sequence[FieldOwner], manager: str) -> str | None:
    """The stack that wrote an object, where it is another one and not ours as well.

    Args:
        ours: what is to be made; of a Node only labels that would change count.
        there: the labels that the object has.
        owners: who wrote it.
        manager: our field manager.
    """
    desired = ours["metadata"].get("labels", {})
    labels = [label for label, value in desired.items() if there.get(label, value) != value]
    stacks = {
        stack
        for entry in owners
        if (stack := stack_of(entry.manager)) is not None
        and (ours["kind"] != "Node" or any(map(entry.owns_label, labels)))
    }
    return min(stacks) if stacks and stack_of(manager) not in stacks else None


def belongs_to(stack: str) -> str:
    """What is said of an object of another stack's."""
    return (
        f"belongs to another stack of this program, '{stack}', which made it while this run was at work. It was left "
        "as it is. Use that stack, or choose another context: two stacks would take turns on it."
    )
