"""What the cluster makes of a reservation pod: asked by a dry run, as KAI's binder, for each node with a GPU."""

from collections.abc import Iterator, Mapping
from typing import Any

from cluster.access.answers.server import Objection
from cluster.access.client import Cluster
from cluster.reservation_pods import ask, differences_of, expectation, may_not_ask, own_container, word
from config.stack import StackSettings
from operations.verify.steps import Outcome, Step

NAME = "reservation pods"


def verify(cluster: Cluster, settings: StackSettings, node: str) -> Step:
    """Ask for one node. Nothing is stored.

    Raises:
        ClusterError: the API server can't be asked.
    """
    answer = ask(cluster, settings, node)
    if isinstance(answer, Objection):
        if may_not_ask(answer):
            says = "not verified, since this user may not act as KAI's binder (verb impersonate on serviceaccounts)."
            return Step(name=NAME, place=node, outcome=Outcome.SKIPPED, says=says, evidence=(answer.message,))
        says = "the cluster refuses them, so no pod with a fraction starts on this node."
        return Step(name=NAME, place=node, outcome=Outcome.FAILED, says=says, evidence=(answer.message,))
    expected = expectation(settings, node)
    differences = tuple(differences_of(answer, expected))
    if differences:
        says = "they are not what the stack says. Put back what was changed: pulumi up --refresh."
        return Step(name=NAME, place=node, outcome=Outcome.FAILED, says=says, evidence=differences)
    says = "as KAI makes them, without privilege." if expected is None else "they get what the stack says."
    return Step(name=NAME, place=node, outcome=Outcome.HELD, says=says, evidence=tuple(_shown(answer)))


def _shown(pod: Mapping[str, Any]) -> Iterator[str]:
    spec, container = pod["spec"], own_container(pod)
    yield f"privileged: {word(bool((container.get('securityContext') or {}).get('privileged')))}"
    paths = [volume["hostPath"]["path"] for volume in spec.get("volumes") or () if "hostPath" in volume]
    yield f"host paths: {', '.join(paths) or 'none'}"
    yield f"runtime class: {spec.get('runtimeClassName') or 'none'}"
