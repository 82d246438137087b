"""Namespaces of the stack's whose content would be deleted with them, though it is others' or another part's."""

from collections.abc import Iterable, Iterator

from cluster.access.answers.objects import Namespace
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.findings import Finding
from cluster.preflight.label_writers import RANDOM_MANAGER
from config.stack import StackSettings
from manifests import every_object
from manifests.ownership import FIELD_MANAGER, field_manager, key, resource_of, stack_of


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


def judge_moves(settings: StackSettings, state: DeployedState) -> Iterator[Finding]:
    """Namespaces that one part of the stack leaves and another one moves to, in the same run.

    Symptom without it: the run succeeds, and the namespace is gone with all that the other part has just got there. The
    engine knows a namespace by its part, makes those of the new settings first, and then deletes those of the old.

    Args:
        settings: the stack's settings.
        state: what the stack remembers.
    """
    for resource, manifest in every_object.objects(settings).items():
        name = key(manifest)
        # One that was adopted is never deleted.
        if (manager := state.managers.get(name)) is None or name in state.adopted:
            continue
        if manager != field_manager(stack_of(manager) or "", resource):
            yield Finding(
                f"namespace '{manifest['metadata']['name']}' is this stack's '{resource_of(manager)}', and the "
                f"settings want it as '{resource}': this run would delete it with all that is in it.",
                "Choose another namespace in the settings. Or run `pulumi up` twice: first with settings in which "
                "nothing has this namespace, so that it goes, and then with these.",
            )


def _is_a_stacks(namespace: Namespace) -> bool:
    """Whether a stack wrote it: this one, under whatever name it had then. Where nobody signed it, nobody knows."""
    managers = [entry.manager for entry in namespace.owners]
    return (
        not managers
        or FIELD_MANAGER in namespace.annotations
        or any(stack_of(manager) or manager.startswith(RANDOM_MANAGER) for manager in managers)
    )
