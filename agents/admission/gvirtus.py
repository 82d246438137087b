"""Pods that ask for a remote GPU get the address of a backend: no shell, no init container, no writable image.

GVirtuS reads its configuration from the path in `GVIRTUS_CONFIG` in every version (GVirtuS, src/frontend/Frontend.cpp).
The file's content is an annotation of the pod, mounted through a downwardAPI volume; by subPath, since GVirtuS reads
the file again for each thread, and a plain mount would follow a changed annotation.
"""

import ipaddress
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from agents.admission import files
from agents.admission.errors import RefusalError, SettingsError
from agents.admission.pods import Pod, annotations_of, check_lengths, labels_of, merge_by

ENABLED = "gvirtus.io/enabled"
BACKEND = "gvirtus.io/backend"
PROPERTIES = "gvirtus.io/properties"
CONFIG = "GVIRTUS_CONFIG"
CONFIG_PATH = "/run/gvirtus/properties.json"
VOLUME = "gvirtus-config"
FILE = "properties.json"
LUPINE_SERVER = "LUPINE_SERVER"
_FIELD = f"metadata.annotations['{PROPERTIES}']"
_FRACTION = "gpu-fraction"
_GPU = "nvidia.com/gpu"


class Backend(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One backend.

    Attributes:
        host: IPv4 address of its Service; for `lupine`, a DNS name is fine too.
        port: as text: GVirtuS exits on a number.
        kind: which program the pod's libraries speak to.
    """

    host: str
    port: str
    kind: Literal["gvirtus", "lupine"]

    def __post_init__(self) -> None:
        if self.kind == "gvirtus":
            ipaddress.IPv4Address(self.host)
        if not (self.port.isdecimal() and 0 < int(self.port) < 65536):  # noqa: PLR2004 - ports
            raise ValueError(f"port {self.port!r} is not a port number in quotes")


class Backends(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The backends of a cluster.

    Attributes:
        backends: by name.
        default: taken by pods that name none, or None.
    """

    backends: dict[str, Backend]
    default: str | None

    def __post_init__(self) -> None:
        if self.default is not None and self.default not in self.backends:
            raise ValueError(f"default {self.default!r} is none of the backends")

    def choose(self, pod: Pod) -> str:
        """The name of the backend that a pod asks for.

        Raises:
            RefusalError: there is none of that name, or none is named and there is no default.
        """
        name = annotations_of(pod).get(BACKEND, self.default or "")
        if name in self.backends:
            return name
        problem = f"there is no GPU backend '{name}'" if name else "this pod asks for a remote GPU and names no backend"
        way_out = f"set the annotation {BACKEND} to one of: {', '.join(sorted(self.backends)) or 'none yet'}"
        otherwise = f"; without it, pods get {self.default}" if self.default is not None else ""
        raise RefusalError(f"{problem}: {way_out}{otherwise}")


@dataclass
class BackendsFile:
    """The mounted file, read again when it changes; the kubelet replaces it when the ConfigMap changes."""

    path: Path
    _seen: tuple[int, int] | None = None
    _backends: Backends | None = None

    def current(self) -> Backends | None:
        """The backends of now, or None while there is no file.

        Raises:
            SettingsError: the file is wrong.
        """
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._seen = self._backends = None
            return None
        except OSError as error:
            raise SettingsError(f"{self.path}: can't be read: {error.strerror}") from None
        seen = status.st_ino, status.st_mtime_ns
        if seen != self._seen:
            self._backends = files.read(self.path, Backends)
            self._seen = seen
        return self._backends


def asks(pod: Pod) -> bool:
    """Whether a pod asks for a remote GPU."""
    return labels_of(pod).get(ENABLED) == "true"


def mutate(pod: Pod, backends: Backends) -> Pod:
    """The pod with the address of its backend in every container, init containers and sidecars included.

    A container with its own `GVIRTUS_CONFIG` (`LUPINE_SERVER`) is left alone. The backend's name is written back, so
    that `kubectl describe` shows it.

    Raises:
        RefusalError: the backend is unknown, the pod uses our volume's name or path for something else, or it is too
            long.
    """
    if not asks(pod):
        return pod
    check_lengths(pod)
    name = backends.choose(pod)
    backend = backends.backends[name]
    annotations = {BACKEND: name}
    spec: Mapping[str, Any] = pod["spec"]
    match backend.kind:
        case "gvirtus":
            spec = _with_file(spec)
            annotations[PROPERTIES] = properties(backend)
        case "lupine":
            variable = {"name": LUPINE_SERVER, "value": f"{backend.host}:{backend.port}"}
            spec = _in_containers(spec, lambda container: _with_variable(container, variable))
    metadata = pod.get("metadata") or {}
    return {**pod, "metadata": {**metadata, "annotations": {**annotations_of(pod), **annotations}}, "spec": spec}


def warnings(pod: Pod, backends: Backends) -> Iterator[str]:
    """What is doubtful about a pod that was let through; shown by kubectl to whoever created it."""
    if not asks(pod):
        return
    if _FRACTION in annotations_of(pod):
        yield (
            f"the annotation {_FRACTION} asks KAI for a share of a local GPU, and {ENABLED} for a remote one: "
            "remove one of them"
        )
    ours = {"gvirtus": (CONFIG, CONFIG_PATH), "lupine": (LUPINE_SERVER, None)}
    variable, value = ours[backends.backends[backends.choose(pod)].kind]
    for container in _containers(pod["spec"]):
        own = _named(container.get("env"), variable)
        if own is not None and value is not None and own.get("value") != value:
            yield f"container {container['name']} sets {variable} itself, so it gets no backend from {BACKEND}"
        limits = (container.get("resources") or {}).get("limits")
        if isinstance(limits, Mapping) and str(limits.get(_GPU, "1")) not in {"0", "1"}:
            yield f"container {container['name']} asks for {limits[_GPU]} GPUs; a backend has one"


def properties(backend: Backend) -> str:
    """GVirtuS's properties.json for a frontend: these four keys are all that it reads."""
    endpoint = {"suite": "tcp/ip", "protocol": "tcp", "server_address": backend.host, "port": backend.port}
    return json.dumps({"communicator": [{"endpoint": endpoint}]}, separators=(",", ":"))


def _with_file(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    existing = _named(spec.get("volumes"), VOLUME)
    if existing is not None and not _is_ours(existing):
        raise RefusalError(f"the volume name {VOLUME} is taken by the remote GPU's properties file: rename your volume")
    changed = _in_containers(spec, _with_mount)
    if existing is not None:
        return changed
    # With the defaults that the API server fills in: what comes back to us is what we sent.
    field = {"apiVersion": "v1", "fieldPath": _FIELD}
    volume = {"name": VOLUME, "downwardAPI": {"items": [{"path": FILE, "fieldRef": field}], "defaultMode": 0o644}}
    return {**changed, "volumes": [*(spec.get("volumes") or []), volume]}


def _is_ours(volume: Mapping[str, Any]) -> bool:
    source = volume.get("downwardAPI")
    items = source.get("items") if isinstance(source, Mapping) else None
    return isinstance(items, list) and any(
        isinstance(item, Mapping)
        and item.get("path") == FILE
        and isinstance(field := item.get("fieldRef"), Mapping)
        and field.get("fieldPath") == _FIELD
        for item in items
    )


def _with_mount(container: Mapping[str, Any]) -> Mapping[str, Any]:
    own = _named(container.get("env"), CONFIG)
    taken = any(
        mount["mountPath"] == CONFIG_PATH and mount.get("name") != VOLUME
        for mount in container.get("volumeMounts") or ()
    )
    if own is None and taken:
        raise RefusalError(
            f"something else is mounted at {CONFIG_PATH}, where the remote GPU's properties file goes: mount it "
            f"elsewhere, and set {CONFIG} to its path if it is a properties file of your own"
        )
    if taken or (own is not None and own.get("value") != CONFIG_PATH):
        return container
    changed = _with_variable(container, {"name": CONFIG, "value": CONFIG_PATH})
    mount = {"name": VOLUME, "mountPath": CONFIG_PATH, "subPath": FILE, "readOnly": True}
    return {**changed, "volumeMounts": merge_by("mountPath", container.get("volumeMounts"), [mount])}


def _with_variable(container: Mapping[str, Any], variable: Mapping[str, Any]) -> Mapping[str, Any]:
    if _named(container.get("env"), variable["name"]) is not None:
        return container
    return {**container, "env": [*(container.get("env") or []), variable]}


def _in_containers(
    spec: Mapping[str, Any], change: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> Mapping[str, Any]:
    kinds = [kind for kind in ("initContainers", "containers") if spec.get(kind)]
    return {**spec, **{kind: [change(container) for container in spec[kind]] for kind in kinds}}


def _containers(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*(spec.get("initContainers") or []), *spec["containers"]]


def _named(entries: Iterable[Mapping[str, Any]] | None, name: str) -> Mapping[str, Any] | None:
    return next((entry for entry in entries or () if entry["name"] == name), None)
