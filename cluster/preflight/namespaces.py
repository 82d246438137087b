"""Namespaces of the stack that are not any more as it made them, or that a run would delete with others' objects."""

from collections.abc import Iterable, Iterator, Mapping

from cluster.access.answers.objects import Namespace
from cluster.going import ways_out_of_namespace
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.findings import Finding, stack_option
from cluster.preflight.first_contact import planned_objects
from cluster.preflight.label_writers import RANDOM_MANAGER
from config.stack import StackSettings
from manifests import every_object, gpu_operator, kai, reservation
from manifests.ownership import FIELD_MANAGER, field_manager, key, resource_of, stack_of
from manifests.wording import first_of


def judge_namespaces(namespaces: Iterable[Namespace], state: DeployedState) -> Iterator[Finding]:
    """Those on which nothing of any stack's is left.

    Symptom without it: the stack knows them by their names alone, so that its next `destroy` deletes them with all that
    others have there by then, such as a KAI that was installed by hand.

    Args:
        namespaces: as they are now.
        state: what the stack remembers.
    """
    for namespace in sorted(namespaces, key=lambda item: item.name):
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


def judge_lost_namespaces(
    settings: StackSettings, namespaces: Mapping[str, Namespace], state: DeployedState, stack: str, *, preview: bool
) -> Iterator[Finding]:
    """Namespaces that are gone, with objects of which the state says that they are there: no run makes these again.

    And those that are being deleted: symptom without it, such as after a destroy that was killed at a finalizer, is a
    run that makes half of the stack, and fails in Helm with `because it is being terminated`.

    A run that is to move a part of the stack to another namespace deletes the old one first. Symptom without it, where
    that run failed or was killed and the settings were put back: `pulumi up` succeeds without a word, and nothing of
    the part is there.
    Of a namespace with a release, which never moves, the wait for the release's pods tells it.
    """
    planned = planned_objects(settings)
    with_release = {namespace for namespace, _ in state.releases}
    for name in sorted(
        manifest["metadata"]["name"] for manifest in planned.values() if manifest["kind"] == "Namespace"
    ):
        live = namespaces.get(name)
        inside = [
            key
            for key, manifest in planned.items()
            if key in state.objects and (key == f"Namespace/{name}" or manifest["metadata"].get("namespace") == name)
        ]
        goes = live is not None and live.deleted is not None
        held = f" It waits: {live.held}." if live is not None and live.held else ""
        if goes and (not inside or name in with_release):
            yield Finding(
                f"namespace '{name}' is being deleted, and takes no new objects.{held}",
                f"Wait until it is gone. {ways_out_of_namespace(name) if held else ''}".rstrip(),
                fatal=not preview,
            )
        if not inside or name in with_release or (live is not None and not goes):
            continue
        refresh = f"pulumi up --refresh{stack_option(stack)}"
        yield Finding(
            f"namespace '{name}' {'is gone' if live is None else 'is being deleted'} with what this stack had in it: "
            f"{first_of(inside)}. Somebody deleted it, or a run that failed or was killed while it moved it.{held}",
            f"Only a refresh tells the stack, and then all of that is made again: {refresh}"
            if live is None
            else f"Wait until it is gone, then let the stack see that: {refresh}",
            # Where it is gone, that command itself comes here with what the state said before its refresh.
            fatal=live is not None and not preview,
        )


def judge_pod_security(
    settings: StackSettings, namespaces: Mapping[str, Namespace], state: DeployedState
) -> Iterator[Finding]:
    """Levels of Pod Security that somebody changed so that the stack's pods are refused."""
    desired = {
        reservation.NAMESPACE: reservation.reservation_namespace(settings),
        settings.kai.namespace: kai.kai_namespace(settings),
    }
    if settings.gpu_operator.install:
        desired[settings.gpu_operator.namespace] = gpu_operator.operator_namespace(settings)
    if not state.deployed:
        return
    label = "pod-security.kubernetes.io/enforce"
    for name, namespace in sorted(namespaces.items()):
        if name not in desired:
            continue
        ours, theirs = desired[name]["metadata"]["labels"][label], namespace.labels.get(label)
        if theirs == "restricted" or (ours == "privileged" and theirs != ours):
            enforces = (
                f"enforces the pod-security level '{theirs}'"
                if theirs
                else f"has no label {label} any more, so that the cluster's own level is in force"
            )
            yield Finding(
                f"namespace '{name}' {enforces}, where pods need '{ours}'.",
                "Somebody changed the label; pulumi up --refresh puts it back.",
                fatal=False,
            )


def _is_a_stacks(namespace: Namespace) -> bool:
    """Whether a stack wrote it: this one, under whatever name it had then. Where nobody signed it, nobody knows."""
    managers = [entry.manager for entry in namespace.owners]
    return (
        not managers
        or FIELD_MANAGER in namespace.annotations
        or any(stack_of(manager) or manager.startswith(RANDOM_MANAGER) for manager in managers)
    )
