"""Pods as JSON: what of their shape the mutations rely on, and merging by name as Kubernetes does."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from agents.admission.errors import RefusalError

MAX_CONTAINERS = 100
MAX_ENTRIES = 1000
"""Of each other list. Kubernetes has no bound of its own but the size of a request."""
Pod: TypeAlias = Mapping[str, Any]
"""A pod as JSON. Mutations never change one, they return another."""


class _Named(msgspec.Struct):
    name: str


class _Mount(msgspec.Struct):
    mountPath: str  # noqa: N815 - Kubernetes' own name


class _Resources(msgspec.Struct):
    limits: dict[str, Any] | None = None


class _Container(msgspec.Struct):
    name: str
    env: list[_Named] | None = None
    volumeMounts: list[_Mount] | None = None  # noqa: N815
    securityContext: dict[str, Any] | None = None  # noqa: N815
    resources: _Resources | None = None


class _Spec(msgspec.Struct):
    containers: list[_Container] | None = None
    initContainers: list[_Container] | None = None  # noqa: N815
    volumes: list[_Named] | None = None
    nodeName: str | None = None  # noqa: N815
    securityContext: dict[str, Any] | None = None  # noqa: N815


class _Metadata(msgspec.Struct):
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Shape(msgspec.Struct):
    spec: _Spec
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


_SHAPE = msgspec.json.Decoder(_Shape)
_DOCUMENT = msgspec.json.Decoder(dict[str, Any])


def read_pod(raw: bytes | msgspec.Raw) -> Pod:
    """Read a pod, checking as much of its shape as mutations rely on; everything else is kept as it is.

    Raises:
        RefusalError: it is not a pod.
    """
    try:
        _SHAPE.decode(raw)
        return _DOCUMENT.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise RefusalError(f"the pod can't be read: {error}", code=400) from None


def check_lengths(pod: Pod) -> None:
    """Refuse a pod whose lists are longer than any pod's that is meant to run, before they are worked on.

    Raises:
        RefusalError: names the list, its length and what is allowed.
    """
    spec = pod["spec"]
    _check("spec", spec, {"containers": MAX_CONTAINERS, "initContainers": MAX_CONTAINERS, "volumes": MAX_ENTRIES})
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            _check(f"spec.{kind}[{index}]", container, {"env": MAX_ENTRIES, "volumeMounts": MAX_ENTRIES})


def _check(place: str, holder: Mapping[str, Any], most: Mapping[str, int]) -> None:
    for name, bound in most.items():
        length = len(holder.get(name) or ())
        if length > bound:
            raise RefusalError(
                f"{place}.{name} has {length} entries; the admission server changes pods with {bound} at most: make "
                "the pod smaller"
            )


def annotations_of(pod: Pod) -> Mapping[str, str]:
    """A pod's annotations, perhaps none."""
    return (pod.get("metadata") or {}).get("annotations") or {}


def labels_of(pod: Pod) -> Mapping[str, str]:
    """A pod's labels, perhaps none."""
    return (pod.get("metadata") or {}).get("labels") or {}


def merge_by(
    key: str, entries: Sequence[Mapping[str, Any]] | None, additions: Iterable[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Merge a list as server-side apply does with a list whose entries have a key.

    An addition goes over the fields of the entry with its key, maps within included. Order matters to Kubernetes, which
    expands `$(NAME)` from earlier variables only, so it is that of structured-merge-diff (v6, typed/merge.go): what is
    in both lists follows the additions' order, and the entries' own order holds around it.
    """
    left = list(entries or [])
    right = list(additions)
    by_key = {entry.get(key): entry for entry in left}
    shared = [addition[key] for addition in right if addition[key] in by_key]
    if not shared:
        return [*left, *right]
    names = {addition[key] for addition in right}
    merged: list[Mapping[str, Any]] = []
    for addition in right:
        name = addition[key]
        # Entries before it: those of their own, and none that comes at another addition's turn.
        while left and (
            left[0].get(key) not in names or (left[0].get(key) != name and left[0].get(key) not in shared[:1])
        ):
            entry = left.pop(0)
            if entry.get(key) not in names:
                merged.append(entry)
        if left and left[0].get(key) == name:
            left.pop(0)
        merged.append(merge(by_key.get(name), addition))
        if shared[:1] == [name]:
            shared.pop(0)
    return [*merged, *(entry for entry in left if entry.get(key) not in names)]


def merge(value: Mapping[str, Any] | None, addition: Mapping[str, Any]) -> Mapping[str, Any]:
    """Merge two maps, maps within included; the addition wins."""
    merged = dict(value or {})
    for name, entry in addition.items():
        merged[name] = merge(merged.get(name), entry) if isinstance(entry, dict) else entry
    return merged
