"""KAI's Config, which a hook of its chart makes: Helm neither knows it nor removes it."""

from pydantic import AliasPath, Field

from cluster.access.answers.objects import ObjectMetadata
from cluster.access.client import Cluster
from cluster.ownership.leftovers import Leftover
from gpu_sharing.request import SCHEDULER

_CONFIGS = "/apis/kai.scheduler/v1/configs"
_NAME = "kai-config"


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
