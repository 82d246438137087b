"""What keeps a Helm release or a namespace from going: in the words of whoever says so, with the ways out.

Pulumi waits for both without a word, and for the last hook of a release without a limit. It is as silent while Helm
installs a release.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from cluster.access.answers.objects import Job
from cluster.access.client import Cluster
from cluster.ownership.helm_hooks import HOOK, OF_INSTALLATION, OF_UNINSTALLATION, listed
from cluster.ownership.leftovers import PROVIDER
from cluster.pending import kubectl_says
from cluster.waiting import MOST_OF_A_REFUSAL, said_by

_HOOK_SECONDS = 30.0
_NAMESPACE_SECONDS = 60.0


@dataclass(frozen=True)
class Held:
    """Something that does not go.

    Attributes:
        what: it, with what it waits for.
        why: why that does not come, in the words of whoever says so; empty while nobody does.
        ways_out: what a person can do.
        usual_seconds: for which it is nothing unusual: an image is pulled, pods end.
    """

    what: str
    why: str
    ways_out: str
    usual_seconds: float = 0.0


def held_up(cluster: Cluster, releases: Iterable[tuple[str, str]], namespaces: Iterable[str]) -> Iterator[Held]:
    """What holds up the end of a stack.

    Args:
        cluster: where.
        releases: the stack's, each as namespace and name.
        namespaces: its own.

    Raises:
        ClusterError: if the API server can't be asked, or refuses.
    """
    for namespace in sorted({namespace for namespace, _ in releases}):
        for job in _hooks(cluster, namespace, OF_UNINSTALLATION):
            yield _hook(cluster, job)
    for name in sorted(namespaces):
        live = cluster.namespace(name)
        if live is not None and live.deleted is not None and live.held:
            what, ways_out = f"namespace '{name}' to be gone", ways_out_of_namespace(name)
            yield Held(what, live.held, ways_out, _NAMESPACE_SECONDS)


def hooks_of_installation(cluster: Cluster, namespace: str) -> Iterator[tuple[str, str]]:
    """The hooks that Helm waits for while it installs or updates releases: each, and why it does not end.

    Args:
        cluster: where.
        namespace: the releases'.

    Raises:
        ClusterError: if the API server can't be asked, or refuses.
    """
    for job in _hooks(cluster, namespace, OF_INSTALLATION):
        yield _named(job), _why(cluster, job)


def ways_out_of_namespace(name: str) -> str:
    """What to do about a namespace that stays Terminating, without taking away what may be somebody else's."""
    return (
        "Something else has to end it: who set a finalizer takes it off once his controller runs; an API that is not "
        "available (kubectl get apiservices) needs its server, or is removed by whoever installed it.\n"
        f"Look at: kubectl get namespace {name} -o jsonpath='{{.status.conditions}}'"
    )


def _hooks(cluster: Cluster, namespace: str, events: Collection[str]) -> Iterator[Job]:
    """Jobs of the provider's Helm that have not ended."""
    for job in cluster.objects(f"/apis/batch/v1/namespaces/{namespace}/jobs", Job):
        by_provider = any(entry.manager == PROVIDER for entry in job.owners)
        if by_provider and not job.ended and not listed(job.annotations, HOOK).isdisjoint(events):
            yield job


def _named(job: Job) -> str:
    return f"Job '{job.name}' in namespace '{job.namespace}', a hook of a Helm release"


def _why(cluster: Cluster, job: Job) -> str:
    """Why it does not end, in the words of whoever says so; empty while nobody does."""
    pods = [pod for pod in cluster.pods(namespace=job.namespace) if (pod.owner, pod.owner_kind) == (job.name, "Job")]
    why = said_by(pod for pod in pods if not pod.ended)
    if pods and not why:
        why = f"pod {pods[-1].name} is {kubectl_says(pods[-1])}"
    elif not pods and (warnings := cluster.warnings(job.namespace, job.name)):
        # Its controller says so in events alone.
        why = f"its pods are refused: {' '.join(warnings[-1].split())[:MOST_OF_A_REFUSAL]}"
    return why


def _hook(cluster: Cluster, job: Job) -> Held:
    return Held(
        _named(job),
        _why(cluster, job),
        "Helm waits for it without a limit. Once its pod can run, this run goes on by itself.\n"
        f"Look at: kubectl --namespace {job.namespace} get jobs,pods,events\n"
        "If it never can, take the Job away, which is this stack's own, and the run ends at once: "
        f"kubectl --namespace {job.namespace} delete job {job.name}\n"
        "What KAI's Job was to delete, its Config, this command removes then.",
        _HOOK_SECONDS,
    )
