"""What shows after an install, without starting a pod, that the stack does its work."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cluster.access.answers.server import Objection
from cluster.access.client import Cluster
from cluster.errors import ClusterError
from cluster.preflight.first_contact import planned_labels
from cluster.reservation_pods import ask, differences_of, expectation, may_not_ask, shared_nodes
from cluster.waiting import Condition, deployment_missing, gpus_advertised, wait_for
from config.stack import StackSettings
from manifests.kai import DEPLOYMENTS
from manifests.node_labels import GPU_MEMORY, node_labels
from manifests.tolerations import operand_tolerations

SETTLES_SECONDS = 60
"""How long the API server and its watchers may take until what was written is in force."""


@dataclass(frozen=True)
class Check:
    """Something that has to hold.

    Attributes:
        condition: what.
        timeout_seconds: how long it may take.
    """

    condition: Condition
    timeout_seconds: int


def checks(settings: StackSettings) -> list[Check]:
    """What has to hold of a stack that is installed, from the most basic on."""
    named_nodes, namespace = frozenset(node_labels(settings)), settings.gpu_operator.namespace
    advertised = gpus_advertised(
        named_nodes, operator_namespace=namespace, tolerations=operand_tolerations(settings.cluster)
    )
    return [
        Check(kai_available(settings), settings.kai.timeout_seconds),
        Check(advertised, SETTLES_SECONDS),
        Check(labels_right(settings), SETTLES_SECONDS),
        Check(overrides_in_force(settings), SETTLES_SECONDS),
    ]


def validate(cluster: Cluster, settings: StackSettings, report: Callable[[str], None]) -> None:
    """Check everything, and wait for it as long as it may take.

    Args:
        cluster: where the stack is installed.
        settings: what it says.
        report: is told what is waited for.

    Raises:
        ClusterError: something does not hold; the text names all of it.
    """
    failures: list[str] = []
    for check in checks(settings):
        try:
            wait_for(cluster, check.condition, timeout_seconds=check.timeout_seconds, report=report)
        except ClusterError as error:
            failures.append(str(error))
    if failures:
        raise ClusterError(
            "Everything is installed, but does not work as the stack says (validation: after_up):\n\n"
            + "\n\n".join(failures)
            + "\n\nkai-anywhere doctor names the cause, pulumi up --refresh puts back what was changed by hand, and "
            "kai-anywhere verify tries it again. Without `validation: after_up` in the settings, pulumi does not ask."
        )


def kai_available(settings: StackSettings) -> Condition:
    """Every Deployment of KAI's control plane."""
    namespace = settings.kai.namespace

    def missing(cluster: Cluster) -> str | None:
        reasons = {name: deployment_missing(cluster, namespace, name) for name in DEPLOYMENTS}
        return "; ".join(f"'{name}': {reason}" for name, reason in reasons.items() if reason) or None

    return Condition(
        what=f"KAI's Deployments in namespace '{namespace}'",
        missing=missing,
        causes=(
            "Likely causes: an image can't be pulled, a pod finds no node, or somebody scaled a Deployment to 0.\n"
            f"Look at: kubectl --namespace {namespace} get pods,deployments,events"
        ),
    )


def labels_right(settings: StackSettings) -> Condition:
    """The stack's labels, and a label with its memory on every node whose GPUs KAI shares."""

    def missing(cluster: Cluster) -> str | None:
        return "; ".join(_wrong_labels(cluster, settings)) or None

    return Condition(
        what="nodes to have their labels",
        missing=missing,
        causes=(
            "Likely causes: somebody else writes the same labels, or GPU Feature Discovery does not run on a node.\n"
            "Look at: kubectl get nodes --show-labels --show-managed-fields --output yaml"
        ),
    )


def _wrong_labels(cluster: Cluster, settings: StackSettings) -> Iterator[str]:
    nodes = cluster.nodes()
    planned = planned_labels(settings)
    for name in shared_nodes(settings, nodes):
        planned.setdefault(name, {}).setdefault(GPU_MEMORY, None)
    for name, labels in sorted(planned.items()):
        if name not in nodes:
            yield f"node '{name}' is not there"
            continue
        for label, value in labels.items():
            current = nodes[name].labels.get(label)
            if current is None:
                yield f"node '{name}' has no label {label}"
            elif value not in {None, current}:
                yield f"node '{name}' has {label}={current}, the stack says {value}"


def overrides_in_force(settings: StackSettings) -> Condition:
    """What a reservation pod gets, on each node whose GPUs KAI shares."""

    def missing(cluster: Cluster) -> str | None:
        nodes = shared_nodes(settings, cluster.nodes())
        return "; ".join(text for node in nodes for text in _wrong_pods(cluster, settings, node)) or None

    return Condition(
        what="reservation pods to get what the stack says",
        missing=missing,
        causes=(
            "Likely causes: the admission policy, its binding or the admission server's webhook is gone or was changed "
            "by hand, or another webhook or policy changes or refuses these pods.\n"
            "Look at: kubectl get mutatingadmissionpolicies,mutatingadmissionpolicybindings,"
            "validatingadmissionpolicies,mutatingwebhookconfigurations"
        ),
    )


def _wrong_pods(cluster: Cluster, settings: StackSettings, node: str) -> Iterator[str]:
    answer = ask(cluster, settings, node)
    if not isinstance(answer, Objection):
        for difference in differences_of(answer, expectation(settings, node)):
            yield f"on node '{node}', {difference.rstrip('.')}"
    elif may_not_ask(answer):
        raise ClusterError(
            "What reservation pods get can't be checked: this user may not act as KAI's binder (verb impersonate on "
            f"serviceaccounts). {answer.message}"
        )
    else:
        yield f"on node '{node}', the cluster refuses them: {answer.message}"
