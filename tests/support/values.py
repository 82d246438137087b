"""Everything that the manifests of a stack are, as plain documents."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from config.stack import StackSettings
from manifests import every_object
from manifests.node_labels import node_labels


def documents_of(settings: StackSettings) -> dict[str, Any]:
    """Objects, releases and node labels of a stack, by their names in its golden files."""
    releases = {name: dataclasses.asdict(release) for name, release in every_object.releases(settings).items()}
    return {**every_object.objects(settings), **releases, "node-labels": node_labels(settings)}


def paths_of(settings: object, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of each setting and section."""
    if prefix:
        yield prefix
    if isinstance(settings, dict):
        for key, inner in settings.items():
            yield from paths_of(inner, (*prefix, key))
