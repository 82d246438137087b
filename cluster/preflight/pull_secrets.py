"""Secrets with the login of a registry that the settings name and nobody has made."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cluster.access.answers.objects import ObjectMetadata
from cluster.access.client import Cluster
from cluster.errors import ClusterError, ClusterUnreachableError
from cluster.preflight.findings import Finding
from config.stack import StackSettings
from manifests import reservation


@dataclass(frozen=True)
class PullSecret:
    """One that is named.

    Attributes:
        setting: that names it.
        name: its name.
        namespace: where pods pull with it.
    """

    setting: str
    name: str
    namespace: str


def pull_secrets(settings: StackSettings) -> Iterator[PullSecret]:
    """Every one that pods of this stack pull with."""
    kai = settings.kai
    parts: list[tuple[str, Sequence[str], tuple[str, ...]]] = [
        # KAI's binder gives its reservation pods Secrets of the same names.
        ("kai.images", kai.images.pull_secrets, (kai.namespace, reservation.NAMESPACE)),
    ]
    if settings.gpu_operator.install:
        operator = settings.gpu_operator
        parts.append(("gpu_operator.images", operator.images.pull_secrets, (operator.namespace,)))
    if settings.webhooks:
        parts.append(("admission", settings.admission.pull_secrets, (settings.admission.namespace,)))
    if settings.gvirtus is not None:
        parts.append(("gvirtus", settings.gvirtus.pull_secrets, (settings.gvirtus.namespace,)))
    if settings.monitoring.enabled:
        parts.append(("monitoring", settings.monitoring.pull_secrets, (settings.monitoring.namespace,)))
    for part, names, namespaces in parts:
        for name in names:
            for namespace in namespaces:
                yield PullSecret(f"{part}.pull_secrets", name, namespace)


def read_missing_secrets(cluster: Cluster, settings: StackSettings) -> tuple[PullSecret, ...]:
    """Those that are not there; none where the user may not see Secrets. Their content is not asked for.

    Raises:
        ClusterUnreachableError: if the API server does not answer.
    """
    try:
        return tuple(secret for secret in pull_secrets(settings) if not _is_there(cluster, secret))
    except ClusterUnreachableError:
        raise
    except ClusterError:
        return ()


def judge_missing_secrets(missing: Sequence[PullSecret]) -> Iterator[Finding]:
    """What comes of it.

    Symptom without it: `pulumi up` waits for pods whose images can't be pulled. Where a Secret is missing in the
    namespace of KAI's reservation pods alone, it succeeds, and the first pod with a fraction stays Pending.
    """
    for setting, name in dict.fromkeys((secret.setting, secret.name) for secret in missing):
        namespaces = [secret.namespace for secret in missing if (secret.setting, secret.name) == (setting, name)]
        named = " and ".join(f"'{namespace}'" for namespace in namespaces)
        yield Finding(
            f"{setting} names the Secret '{name}', which is not in namespace {named}: pods there pull images without "
            "its login.",
            "Create it there. A namespace that does not exist yet comes first, and the stack adopts it "
            "(docs/air-gapped.md, A registry with a login).",
            fatal=False,
        )


def _is_there(cluster: Cluster, secret: PullSecret) -> bool:
    path = f"/api/v1/namespaces/{secret.namespace}/secrets"
    named = {"fieldSelector": f"metadata.name={secret.name}"}
    return bool(cluster.objects(path, ObjectMetadata, params=named, metadata=True))
