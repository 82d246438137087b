"""Everything that the manifests of a stack are, as plain documents."""

import dataclasses
from typing import Any

from config.platform import TegraPlatform
from config.reservation import Carrier
from config.stack import StackSettings
from manifests import admission, gpu_operator, kai, reservation
from manifests.node_labels import node_labels
from manifests.objects import HelmRelease, Manifest


def objects_of(settings: StackSettings) -> dict[str, Manifest]:
    """Every Kubernetes object that a stack registers itself, by a name for its golden file."""
    objects: dict[str, Manifest | None] = {
        "reservation-namespace": reservation.reservation_namespace(settings),
        "guard-policy": reservation.guard_policy(settings),
        "guard-binding": reservation.guard_binding(),
        "kai-namespace": kai.kai_namespace(settings),
        "kai-default-shard": kai.default_shard(),
    }
    carrier = settings.reservation.carrier if settings.overrides_apply else None
    if carrier is Carrier.POLICY and isinstance(settings.platform, TegraPlatform):
        objects["overrides-policy"] = reservation.overrides_policy(reservation.tegra_fragment(settings.platform))
        objects["overrides-binding"] = reservation.overrides_binding()
    if settings.gpu_operator.install:
        objects["gpu-operator-namespace"] = gpu_operator.operator_namespace(settings)
        objects["gpu-operator-profiles"] = gpu_operator.time_slicing_config(settings)
        objects["gpu-operator-tegra"] = gpu_operator.tegra_feature_rule(settings)
        objects["gpu-operator-endpoints"] = gpu_operator.service_discovery(settings)
    objects |= {f"admission-{name}": manifest for name, manifest in admission.objects(settings).items()}
    for name, queue in kai.queues(settings).items():
        objects[f"queue-{name}"] = queue
    return {name: manifest for name, manifest in objects.items() if manifest is not None}


def releases_of(settings: StackSettings) -> dict[str, HelmRelease]:
    """Every Helm release of a stack."""
    releases = {"kai-release": kai.release(settings)}
    if settings.gpu_operator.install:
        releases["gpu-operator-release"] = gpu_operator.release(settings)
    return releases


def documents_of(settings: StackSettings) -> dict[str, Any]:
    """Objects, releases and node labels of a stack."""
    releases = {name: dataclasses.asdict(release) for name, release in releases_of(settings).items()}
    return {**objects_of(settings), **releases, "node-labels": node_labels(settings)}
