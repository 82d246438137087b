"""Namespaces of the stack's that somebody deleted and made again: what is in them is not the stack's."""

from collections.abc import Iterable, Iterator

from cluster.access.answers.objects import Namespace
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.findings import Finding
from cluster.preflight.label_writers import RANDOM_MANAGER
from manifests.ownership import FIELD_MANAGER, stack_of


def judge_namespaces(namespaces: Iterable[Namespace], state: DeployedState) -> Iterator[Finding]:
    """Those on which nothing of any stack's is left.

    Symptom without it: the stack knows them by their names alone, so that its next `destroy` deletes them with all that
    others have there by then, such as a KAI that was installed by hand.

    Args:
        namespaces: as they are now.
        state: what the stack remembers.
    """
    for namespace in sorted(namespaces, key=lambda each: each.name):
        name = f"Namespace/{namespace.name}"
        if name not in state.objects or name in state.adopted or _is_a_stacks(namespace):
            continue
        by = ", ".join(dict.fromkeys(entry.manager for entry in namespace.owners if not entry.subresource))
        yield Finding(
            f"namespace '{namespace.name}', which this stack made, was deleted, and made again by others ({by}): "
            "`pulumi destroy` would delete it with all that is in it.",
            "Let the stack forget it, by its URN in pulumi stack --show-urns: pulumi state delete URN "
            "--target-dependents. Then kai-anywhere rollback removes what else has this stack's marks. Or, if all that "
            "is in it is yours and not needed, remove the namespace yourself; then pulumi up --refresh.",
        )


def _is_a_stacks(namespace: Namespace) -> bool:
    """Whether a stack wrote it: this one, under whatever name it had then. Where nobody signed it, nobody knows."""
    managers = [entry.manager for entry in namespace.owners]
    return (
        not managers
        or FIELD_MANAGER in namespace.annotations
        or any(stack_of(manager) or manager.startswith(RANDOM_MANAGER) for manager in managers)
    )
