"""What hooks of a Helm release made: Helm neither marks such objects nor removes them with the release.

Only a release's stored revision says which they are. It holds the chart's values too, so nothing of it is kept but what
the hooks' objects are called.
"""

import base64
import binascii
import gzip
import io
import json
import zlib
from collections.abc import Iterator

import yaml
from pydantic import AliasPath, Field

from cluster.answers import Answer, HelmRevision
from cluster.client import Cluster, object_path
from cluster.leftovers import PROVIDER, Leftover
from manifests.objects import Manifest
from manifests.ownership import key

HOOK = "helm.sh/hook"
"""The annotation that makes an object of a chart a hook; it is on the live object too."""
_MOST_BYTES = 64 * 1024 * 1024
"""Of an unpacked revision; its Secret has at most one MiB."""
_OF_A_NAMESPACE = frozenset({"ConfigMap", "Job", "Pod", "Role", "RoleBinding", "Secret", "ServiceAccount"})
"""Kinds of hooks that belong to the release's namespace where their manifest names none."""


class _Stored(Answer):
    """A revision's Secret."""

    release: str = Field(default="", validation_alias=AliasPath("data", "release"), repr=False)


def hook_objects(cluster: Cluster, revision: HelmRevision) -> list[Manifest]:
    """What the hooks of a revision are called: no more than kind, namespace and name.

    Args:
        cluster: where.
        revision: of a release of the stack's own.

    Raises:
        ClusterError: if the API server refuses its Secret.
    """
    place = f"/api/v1/namespaces/{revision.namespace}/secrets"
    found = cluster.objects(place, _Stored, params={"fieldSelector": f"metadata.name={revision.secret}"})
    return [each for stored in found for each in _named(stored.release, revision.namespace)]


def left_by_hooks(cluster: Cluster, objects: list[Manifest]) -> Iterator[Leftover]:
    """Those of a revision's hooks that are there: hooks still, and made by Helm in Pulumi's provider."""
    for manifest in objects:
        live = cluster.find_object(manifest)
        if live is not None and HOOK in live.annotations and PROVIDER in live.managers:
            yield Leftover(key(manifest), object_path(manifest), str(live.content["metadata"].get("uid", "")))


def _named(release: str, namespace: str) -> Iterator[Manifest]:
    for hook in _hooks(release):
        try:
            content = yaml.safe_load(str(hook.get("manifest", "")))
        except yaml.YAMLError:
            continue
        if isinstance(content, dict) and {"apiVersion", "kind", "metadata"} <= content.keys():
            metadata = {"name": content["metadata"]["name"]}
            where = content["metadata"].get("namespace") or (namespace if content["kind"] in _OF_A_NAMESPACE else "")
            yield {
                "apiVersion": content["apiVersion"],
                "kind": content["kind"],
                "metadata": metadata | ({"namespace": where} if where else {}),
            }


def _hooks(release: str) -> list[dict[str, object]]:
    """The hooks of a stored release; none where it is not as Helm 3 and 4 store it."""
    try:
        packed = base64.b64decode(base64.b64decode(release))
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            stored = json.loads(file.read(_MOST_BYTES))
    except (ValueError, OSError, EOFError, zlib.error, binascii.Error):
        return []
    hooks = stored.get("hooks") if isinstance(stored, dict) else None
    return [each for each in hooks or () if isinstance(each, dict)]
