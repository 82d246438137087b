"""Everything that the manifests of a stack are, as plain documents."""

import dataclasses
from typing import Any

from config.stack import StackSettings
from manifests import every_object
from manifests.node_labels import node_labels


def documents_of(settings: StackSettings) -> dict[str, Any]:
    """Objects, releases and node labels of a stack, by their names in its golden files."""
    releases = {name: dataclasses.asdict(each) for name, each in every_object.releases(settings).items()}
    return {**every_object.objects(settings), **releases, "node-labels": node_labels(settings)}
