"""PriorityClasses of somebody else under the names of those that KAI's chart brings."""

from collections.abc import Iterator, Sequence

from cluster.access.answers.objects import Installed
from cluster.access.client import Cluster
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.findings import Finding
from config.stack import StackSettings
from manifests.kai import PRIORITY_CLASSES, RELEASE

_PATH = "/apis/scheduling.k8s.io/v1/priorityclasses"


def read_taken_priority_classes(cluster: Cluster, settings: StackSettings, state: DeployedState) -> tuple[str, ...]:
    """Their names; once the stack has installed KAI, Helm has looked, and nobody is asked.

    Symptom: Helm's `exists and cannot be imported into the current release`, minutes into the first run, with the GPU
    Operator installed.
    """
    if RELEASE in {release for _, release in state.releases}:
        return ()
    ours = (settings.kai.namespace, RELEASE)
    classes = cluster.objects(_PATH, Installed, metadata=True)
    return tuple(
        sorted(
            priority_class.name
            for priority_class in classes
            if priority_class.name in PRIORITY_CLASSES and priority_class.release != ours
        )
    )


def judge_taken_priority_classes(settings: StackSettings, names: Sequence[str]) -> Iterator[Finding]:
    """What is wrong with that. A chart of a site's own may bring none."""
    if names:
        named = " and ".join(map(repr, names))
        yield Finding(
            f"the cluster has PriorityClass {named} already, and KAI's chart brings one of that name: Helm does not "
            "take over somebody else's.",
            "Ask whose it is, and which pods use it. Once it is gone, the run goes on. Or choose another context. See "
            f"it: kubectl describe priorityclass {' '.join(names)}",
            fatal=not settings.kai.chart.is_local,
        )
