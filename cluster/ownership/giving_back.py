"""Gives back what an object held before a stack adopted it."""

from collections.abc import Iterable, Mapping
from typing import Any

from cluster.access.answers.answer import FieldOwner
from cluster.access.client import Cluster
from manifests.objects import Manifest
from manifests.ownership import BEFORE, FIELD_MANAGER, beside, kept_values, owned, stack_of, to_give_back

DESTROYS = "KAI_ANYWHERE_DESTROYS"
"""The variable by which our commands tell the program that `pulumi destroy` runs it, which the engine does not tell.

Then it only gives back: a cluster that is not well, which may be why the stack goes, is neither judged nor waited for.
"""
GIVEN_BACK = "given-back/"
"""What field managers begin with that hold what was given back."""
KEPT = "kept/"
"""What the field managers begin with that hold what others wrote into an object, beside our fields."""
MANAGER_MAX = 128

_TAKEN_OVER = ("kubectl", "before-first-apply", "pulumi-kubernetes", "pulumi-resource-kubernetes")
"""Beginnings of the field managers that update, whose fields Pulumi's Kubernetes provider makes its own."""


def keep_values_of_others(cluster: Cluster, ours: Manifest) -> None:
    """Own what kubectl and Helm wrote into an object beside our fields, before the provider updates the object.

    The provider (4.25, fixCSAFieldManagers) takes these fields over first, so what it applies removes those that the
    program does not say.

    Raises:
        ClusterError: if the cluster refuses.
    """
    live = cluster.find_object(ours)
    if live is None:
        return
    keeper = f"{KEPT}{ours['metadata']['annotations'][FIELD_MANAGER]}"[:MANAGER_MAX]
    theirs = [
        entry.fields
        for entry in live.owners
        if not entry.subresource and (entry.manager == keeper or _is_taken_over(entry))
    ]
    if others := beside(owned(live.content, *theirs), ours):
        bare = _bare(ours)
        cluster.apply(bare | others | {"metadata": others.get("metadata", {}) | bare["metadata"]}, manager=keeper)


def _is_taken_over(entry: FieldOwner) -> bool:
    beginnings = _TAKEN_OVER if entry.operation == "Update" else "kubectl"
    return entry.manager.startswith(beginnings)


def give_back_values(cluster: Cluster, ours: Manifest) -> None:
    """Put the kept values back where ours still stand, and let go of every other field that is ours.

    Labels that another resource of the same stack has taken over stay as they are: many nodes' labels move from one
    resource a node to one for all, and back, as their number grows and shrinks.

    Raises:
        ClusterError: if the cluster refuses; nothing is forgotten then.
    """
    live = cluster.find_object(ours)
    if live is None:
        return
    bare, metadata = _bare(ours), ours["metadata"]
    manager = metadata["annotations"][FIELD_MANAGER]
    fields = next((entry.fields for entry in live.owners if entry.manager == manager and not entry.subresource), {})
    back = to_give_back(kept_values(metadata["annotations"][BEFORE]), ours, owned(live.content, fields))
    again = dict(back.get("metadata", {}))
    if "labels" in again:
        again["labels"] = not_of_siblings(again["labels"], live.owners, manager)
    # By a manager of its own: what this one does not name any more would be removed.
    cluster.apply(
        bare | back | {"metadata": bare["metadata"] | again},
        manager=f"{GIVEN_BACK}{manager}"[:MANAGER_MAX],
    )
    cluster.apply(bare, manager=manager)


def _bare(ours: Manifest) -> Manifest:
    """What identifies an object, and nothing else."""
    metadata = ours["metadata"]
    return {
        "apiVersion": ours["apiVersion"],
        "kind": ours["kind"],
        "metadata": {field: metadata[field] for field in ("name", "namespace") if field in metadata},
    }


def not_of_siblings(labels: Mapping[str, Any], owners: Iterable[FieldOwner], manager: str) -> dict[str, Any]:
    """The labels without those that another field manager of the same stack owns by now."""
    stack = stack_of(manager)
    siblings = [entry for entry in owners if entry.manager != manager and stack_of(entry.manager) == stack]
    return {label: value for label, value in labels.items() if not any(entry.owns_label(label) for entry in siblings)}
