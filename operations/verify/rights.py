"""Whether the user may install the stack, as far as the API server says it beforehand."""

from collections.abc import Iterator
from dataclasses import dataclass

from cluster.access.client import Cluster, plural
from config.stack import StackSettings
from config.validation import Validation
from manifests import every_object
from manifests.node_labels import node_labels
from operations.verify.steps import Outcome, Step

NAME = "rights"
_OWN = ("get", "create", "patch", "delete")
_READS = (("list", "nodes", ""), ("get", "namespaces", ""), ("list", "deployments", "apps"), ("list", "pods", ""))
"""What preflight and the waits read."""
_HELM = ("get", "list", "create", "update", "delete")
"""What Helm does with the Secrets in which it keeps a release."""


@dataclass(frozen=True, order=True)
class Right:
    """Something that a user may do or not.

    Attributes:
        resource: its plural.
        group: of the API; empty for the core.
        namespace: empty for the whole cluster.
        verb: what is done.
    """

    resource: str
    group: str
    namespace: str
    verb: str


def verify(cluster: Cluster, settings: StackSettings) -> Step:
    """Ask the API server; nothing is changed.

    Raises:
        ClusterError: it does not say.
    """
    if cluster.allows("*", "*", group="*"):
        return Step(name=NAME, outcome=Outcome.HELD, says="this user may do everything, as cluster-admin.")
    lacking = [
        right
        for right in sorted(set(needed(settings)))
        if not cluster.allows(right.verb, right.resource, group=right.group, namespace=right.namespace)
    ]
    if lacking:
        says = f"this user lacks {len(lacking)} of the rights that the install needs; cluster-admin has them."
        return Step(name=NAME, outcome=Outcome.FAILED, says=says, evidence=tuple(_lines(lacking)))
    says = (
        "this user may make the stack's own objects. Not seen: whether it may make all that the charts bring, such as "
        "ClusterRoles with more rights than its own; cluster-admin may."
    )
    return Step(name=NAME, outcome=Outcome.SKIPPED, says=says)


def needed(settings: StackSettings) -> Iterator[Right]:
    """What `pulumi up` needs beside what the charts bring."""
    for verb, resource, group in _READS:
        yield Right(resource, group, "", verb)
    for manifest in every_object.objects(settings).values():
        group = manifest["apiVersion"].rpartition("/")[0]
        for verb in _OWN:
            yield Right(plural(manifest["kind"]), group, manifest["metadata"].get("namespace", ""), verb)
    for release in every_object.releases(settings).values():
        for verb in _HELM:
            yield Right("secrets", "", release.namespace, verb)
    if node_labels(settings):
        yield Right("nodes", "", "", "patch")
    if settings.validation is Validation.AFTER_UP:
        yield Right("serviceaccounts", "", settings.kai.namespace, "impersonate")


def _lines(lacking: list[Right]) -> Iterator[str]:
    verbs: dict[tuple[str, str], list[str]] = {}
    for right in lacking:
        resource = f"{right.resource}.{right.group}" if right.group else right.resource
        verbs.setdefault((resource, right.namespace), []).append(right.verb)
    for (resource, namespace), listed in verbs.items():
        yield f"{', '.join(listed)} {resource}{f' in namespace {namespace}' if namespace else ''}"
