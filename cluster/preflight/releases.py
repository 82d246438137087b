"""Helm releases of the stack, as the cluster has them and as the state remembers them."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from cluster.access.answers.objects import HelmRevision
from cluster.access.client import Cluster
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.findings import Finding, helm_puts_back, stack_option
from config.stack import StackSettings
from manifests import gpu_operator, kai, reservation


def releases(settings: StackSettings) -> list[tuple[str, str]]:
    """Namespace and name of each Helm release of the stack."""
    named = [(settings.kai.namespace, kai.RELEASE)]
    if settings.gpu_operator.install:
        named.append((settings.gpu_operator.namespace, gpu_operator.RELEASE))
    return named


def installs(settings: StackSettings, state: DeployedState) -> bool:
    """Whether a release of the stack is yet to be installed."""
    return not state.releases.issuperset(releases(settings))


def read_revisions(
    cluster: Cluster, settings: StackSettings, namespaces: Collection[str]
) -> dict[tuple[str, str], list[HelmRevision]]:
    """The stored revisions of the stack's Helm releases, by namespace and release.

    Args:
        cluster: where they are.
        settings: the stack's settings.
        namespaces: those that exist; in others nothing is asked for.
    """
    return {
        (namespace, release): cluster.helm_revisions(namespace, release) if namespace in namespaces else []
        for namespace, release in releases(settings)
    }


def is_unknown(release: tuple[str, str], revisions: Sequence[HelmRevision], state: DeployedState) -> bool:
    """Whether a Helm release under the name of one of the stack's is installed, and the stack does not know it."""
    return release not in state.releases and any(not revision.half_done for revision in revisions)


def judge_own_releases(settings: StackSettings, state: DeployedState, stack: str) -> Iterator[Finding]:
    """Releases of the stack's own that its settings want elsewhere, or not any more."""
    namespaces = {release: namespace for namespace, release in releases(settings)}
    for namespace, release in sorted(state.releases):
        key = "kai" if release == kai.RELEASE else "gpu_operator"
        if release not in namespaces:
            yield Finding(
                f"gpu_operator.install is false, and this stack installed the GPU Operator in namespace '{namespace}': "
                f"`pulumi up` uninstalls it. RuntimeClass '{reservation.RUNTIME_CLASS}' and the GPUs of every node go "
                "with it.",
                "To keep it, set gpu_operator.install: true. Otherwise install another one after that run, and then "
                f"put back the labels of nodes that go with this one: pulumi up --refresh{stack_option(stack)}",
                fatal=False,
            )
        elif namespace != namespaces[release]:
            yield Finding(
                f"{key}.namespace is '{namespaces[release]}', but this stack installed Helm release '{release}' in "
                f"namespace '{namespace}', and a release can't move.",
                f"Set {key}.namespace: {namespace}. To have it elsewhere, remove the stack before you change the "
                "setting: pulumi destroy.",
            )


def judge_releases(
    stored: Mapping[tuple[str, str], Sequence[HelmRevision]], state: DeployedState, stack: str
) -> Iterator[Finding]:
    """Helm releases under the stack's names that are half done, or that the stack does not know.

    Args:
        stored: the revisions, by namespace and release.
        state: what the stack remembers.
        stack: the stack, as project/name.
    """
    option = stack_option(stack)
    for (namespace, release), revisions in sorted(stored.items()):
        if (namespace, release) in state.releases and not revisions:
            yield Finding(
                f"Helm release '{release}', which this stack installed in namespace '{namespace}', is not there any "
                "more: somebody uninstalled it, or deleted the namespace.",
                f"Only a refresh tells the stack, and then it is installed anew: pulumi up --refresh{option}. Without "
                "it the run fails.",
                fatal=False,
            )
        if is_unknown((namespace, release), revisions, state):
            by_hand = (
                ", use it: set gpu_operator.install: false"
                if release == gpu_operator.RELEASE
                else f" and may go: helm uninstall {release} --namespace {namespace}"
            )
            yield Finding(
                f"Helm release '{release}' is installed in namespace '{namespace}', but not known to this stack: it is "
                "another stack's or was installed by hand, or a run was killed before it could note it down.",
                f"If it was installed by hand{by_hand}. Or choose another context, and nothing of it "
                "is touched. If a run of this stack was killed, undo what it made, and run it again: "
                f"kai-anywhere rollback{option}",
            )
        for revision in revisions:
            if revision.half_done:
                yield Finding(
                    f"Helm release '{release}' is '{revision.status}': an earlier run was killed inside Helm, or "
                    "another one is at work.",
                    f"Wait for whoever works there, since {revision.created}. If that was a run of this stack which "
                    f"is dead, take back its half-done revision: kai-anywhere rollback --only-heal{option}. Or by "
                    f"hand: kubectl --namespace {namespace} delete secret {revision.secret}",
                )
            if revision.half_removed and (namespace, release) in state.releases:
                yield Finding(
                    f"Helm release '{release}' is '{revision.status}': a run that was to remove it was killed inside "
                    "Helm, or is at work. No run installs what the state says is there.",
                    f"Let the removal come to its end, then install anew: kai-anywhere down{option}",
                )


def judge_shard(
    settings: StackSettings, stored: Mapping[tuple[str, str], Sequence[HelmRevision]], *, present: bool, preview: bool
) -> Iterator[Finding]:
    """The default shard, of which the stack knows but the name: what is in it is the chart's.

    Args:
        settings: the stack's settings.
        stored: the releases' revisions, by namespace and release.
        present: whether the shard is there.
        preview: whether nothing will be changed.
    """
    namespace = settings.kai.namespace
    newest = max(stored.get((namespace, kai.RELEASE), []), key=lambda revision: revision.version, default=None)
    # Into a release that failed, the run looks itself.
    if not present and newest is not None and newest.status == "deployed":
        yield Finding(
            "KAI's SchedulingShard 'default' is gone: KAI schedules nothing, and a refresh would make an empty one, "
            "without kai.scheduler's settings.",
            helm_puts_back(kai.RELEASE, namespace),
            fatal=not preview,
        )
