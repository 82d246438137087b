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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import yaml
from pydantic import AliasPath, Field

from cluster.access.answers.answer import Answer
from cluster.access.answers.objects import HelmRevision, ObjectMetadata
from cluster.access.client import Cluster
from cluster.ownership.leftovers import PROVIDER, Leftover, kinds, leftover

HOOK = "helm.sh/hook"
"""The annotation that makes an object of a chart a hook; it is on the live object too."""
OF_INSTALLATION = frozenset({"pre-install", "post-install", "pre-upgrade", "post-upgrade"})
OF_UNINSTALLATION = frozenset({"pre-delete", "post-delete"})
_POLICY = "helm.sh/hook-delete-policy"
_MOST_BYTES = 64 * 1024 * 1024
"""Of an unpacked revision; its Secret has at most one MiB."""


class _Stored(Answer):
    """A revision's Secret."""

    release: str = Field(default="", validation_alias=AliasPath("data", "release"), repr=False)


@dataclass(frozen=True)
class Hook:
    """What an object of a hook is called.

    Attributes:
        group: its API group; empty for the core one.
        kind: of that group.
        namespace: where it is, if its kind has a namespace.
        name: the object's.
        events: at which Helm makes it, such as `post-delete`.
        made_anew: whether Helm deletes one that is there before it makes it; otherwise it fails at that one.
    """

    group: str
    kind: str
    namespace: str
    name: str
    events: frozenset[str] = frozenset()
    made_anew: bool = True

    @property
    def is_in_the_way(self) -> bool:
        """Whether one that is there fails an uninstallation of the release.

        Symptom: `uninstallation completed with 1 error(s): ... already exists`, after which Helm has forgotten the
        release, and what the hook is for was not done. Seen with KAI's post-delete hook, of a destroy that was killed
        while Helm waited in it (Helm 3.18, KAI v0.17.0 and v0.18.6). Helm means it: the chart says when its hooks go.
        """
        return bool(self.events & OF_UNINSTALLATION) and not self.made_anew


def hooks_of(cluster: Cluster, revision: HelmRevision) -> tuple[Hook, ...]:
    """What the hooks of a revision are called.

    Args:
        cluster: where.
        revision: of a release of the stack's own.

    Raises:
        ClusterError: if the API server refuses its Secret.
    """
    place = f"/api/v1/namespaces/{revision.namespace}/secrets"
    secrets = cluster.objects(place, _Stored, params={"fieldSelector": f"metadata.name={revision.secret}"})
    return tuple(hook for secret in secrets for hook in _named(secret.release, revision.namespace))


def left_by_hooks(cluster: Cluster, hooks: Iterable[Hook], *, since: str = "") -> tuple[Leftover, ...]:
    """The objects of hooks that are there: hooks still, and made by Helm in Pulumi's provider.

    Args:
        cluster: where.
        hooks: of revisions of the stack's own releases.
        since: leaves out what was made before this time, as the API server writes it.

    Raises:
        ClusterError: if the API server refuses.
    """
    distinct = dict.fromkeys(hooks)
    if not distinct:
        return ()
    served = {(kind.group, kind.kind): kind for kind in kinds(cluster)}
    leftovers: dict[str, Leftover] = {}
    for hook in distinct:
        if (kind := served.get((hook.group, hook.kind))) is None:
            continue
        place = kind.path_in(hook.namespace)
        selector = {"fieldSelector": f"metadata.name={hook.name}"}
        for live in cluster.objects(place, ObjectMetadata, params=selector, metadata=True):
            by_provider = any(entry.manager == PROVIDER for entry in live.owners)
            if HOOK in live.annotations and by_provider and live.created >= since:
                leftovers[live.uid] = leftover(kind, live)
    return tuple(leftovers.values())


def listed(annotations: Mapping[str, str] | None, name: str) -> frozenset[str]:
    """What an annotation of a hook lists, such as its events."""
    return frozenset(filter(None, (word.strip() for word in (annotations or {}).get(name, "").split(","))))


def _named(release: str, namespace: str) -> Iterator[Hook]:
    for hook in _hooks(release):
        try:
            content = yaml.safe_load(str(hook.get("manifest", "")))
            metadata = content["metadata"]
            group = str(content["apiVersion"]).rpartition("/")[0]
            place = metadata.get("namespace") or namespace
            events, policies = (listed(metadata.get("annotations"), name) for name in (HOOK, _POLICY))
            # Without a policy it is Helm's own.
            made_anew = not policies or "before-hook-creation" in policies
            yield Hook(group, content["kind"], place, metadata["name"], events, made_anew)
        except (yaml.YAMLError, KeyError, TypeError, AttributeError):
            continue


def _hooks(release: str) -> list[dict[str, object]]:
    """The hooks of a stored release; none where it is not as Helm 3 and 4 store it."""
    try:
        packed = base64.b64decode(base64.b64decode(release))
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            stored = json.loads(file.read(_MOST_BYTES))
    except (ValueError, OSError, EOFError, zlib.error, binascii.Error):
        return []
    hooks = stored.get("hooks") if isinstance(stored, dict) else None
    return [hook for hook in hooks or () if isinstance(hook, dict)]
