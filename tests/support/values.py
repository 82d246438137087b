"""Everything that the manifests of a stack are, as plain documents."""

import dataclasses
from typing import Any

from config.stack import StackSettings
from manifests import every_object, gpu_operator, kai
from manifests.node_labels import node_labels
from manifests.objects import HelmRelease, Manifest
from tests.support.recording_monitor import SERVICE_ADDRESS


def objects_of(settings: StackSettings) -> dict[str, Manifest]:
    """Every Kubernetes object that a stack registers itself, by a name for its golden file."""
    return every_object.objects(settings, backend_address=SERVICE_ADDRESS)


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
