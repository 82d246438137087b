"""KAI's Config, which a hook of its chart makes: Helm neither knows it nor removes it."""

from dataclasses import replace

from pydantic import AliasPath, Field

from cluster.access.answers.objects import ObjectMetadata
from cluster.access.client import Cluster
from cluster.ownership.helm_hooks import Hook
from cluster.ownership.leftovers import Leftover, definitions
from gpu_sharing.request import SCHEDULER
from manifests import kai

_CONFIGS = "/apis/kai.scheduler/v1/configs"
_NAME = "kai-config"
_DEFINITION = "configs.kai.scheduler"
_OPERATOR = kai.DEPLOYMENTS[0]


OF_LAST_HOOK = tuple(
    Hook("rbac.authorization.k8s.io", kind, "", "post-delete-cleanup") for kind in ("ClusterRole", "ClusterRoleBinding")
)
"""What the last hook of KAI's chart has outside of its namespace, where it was killed: each later uninstallation of a
KAI would fail at it (KAI v0.18.6, templates/rbac)."""


class _Config(ObjectMetadata):
    place: str = Field(default="", validation_alias=AliasPath("spec", "namespace"))
    scheduler: str = Field(default="", validation_alias=AliasPath("spec", "global", "schedulerName"))


def config_of(cluster: Cluster, namespace: str) -> Leftover | None:
    """The Config of the KAI in a namespace. KAI's webhook configurations go with it, which it owns.

    Args:
        cluster: where.
        namespace: of KAI's control plane.

    Raises:
        ClusterError: if the API server can't be asked, or refuses.
    """
    for config in cluster.objects(_CONFIGS, _Config):
        if config.name == _NAME and config.place == namespace:
            return Leftover(f"Config/{config.name}", f"{_CONFIGS}/{config.name}", config.uid)
    return None


def schedulers(cluster: Cluster) -> set[str]:
    """By which names pods ask for KAI.

    Raises:
        ClusterError: if the API server can't be asked, or refuses.
    """
    return {config.scheduler for config in cluster.objects(_CONFIGS, _Config) if config.scheduler} or {SCHEDULER}


def config_left_of(cluster: Cluster, namespace: str) -> Leftover | None:
    """The Config of a KAI that is gone from a namespace, such as where its last hook never ran; None where one runs.

    Nothing in it says whose KAI that was. What a chart of Pulumi's provider did not bring is told as that of others.

    Args:
        cluster: where.
        namespace: of KAI's control plane.

    Raises:
        ClusterError: if the API server can't be asked, or refuses.
    """
    config = config_of(cluster, namespace)
    if config is None or any(deployment.name == _OPERATOR for deployment in cluster.deployments()):
        return None
    by_pulumi = any(definition.name == _DEFINITION and definition.by_pulumi for definition in definitions(cluster))
    doubt = (
        f"of a KAI in namespace {namespace} that is gone, whose webhooks it keeps: no release of Pulumi's made its "
        "definition"
    )
    return config if by_pulumi else replace(config, doubt=doubt)
