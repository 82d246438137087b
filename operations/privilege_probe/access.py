"""What the probe's user must be allowed to do, asked before anything is made."""

from dataclasses import dataclass

from cluster.access.client import Cluster
from config.stack import StackSettings
from manifests import reservation
from manifests.objects import RBAC_GROUP
from operations.privilege_probe.ladder import NAMESPACE


@dataclass(frozen=True)
class Right:
    """A verb on a resource of a group, in the probe's namespace unless another one is named."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = NAMESPACE


_RIGHTS = (
    *(Right(verb, "namespaces", namespace="") for verb in ("create", "patch", "delete")),
    *(Right(verb, "pods") for verb in ("create", "get", "list", "patch", "delete")),
    Right("get", "pods/log"),
    Right("list", "events"),
    Right("create", "serviceaccounts"),
    Right("create", "roles", RBAC_GROUP),
    Right("create", "rolebindings", RBAC_GROUP),
)
"""`patch pods` is what the pod's account gets: nobody may grant what he lacks himself."""
_OF_PULL_SECRETS = (Right("get", "secrets", namespace=reservation.NAMESPACE), Right("create", "secrets"))


def lacking(cluster: Cluster, settings: StackSettings) -> list[str]:
    """What the user may not do, of all that the probe does."""
    needed = _RIGHTS + (_OF_PULL_SECRETS if settings.kai.images.pull_secrets else ())
    return [
        f"{right.verb} {right.resource}"
        for right in needed
        if not cluster.allows(right.verb, right.resource, group=right.group, namespace=right.namespace)
    ]
