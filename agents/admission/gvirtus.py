"""Pods that ask for a remote GPU get the address of a backend: no shell, no init container, no writable image.

GVirtuS reads its configuration from the path in `GVIRTUS_CONFIG` in every version (GVirtuS, src/frontend/Frontend.cpp).
The file's content is an annotation of the pod, mounted through a downwardAPI volume; by subPath, since GVirtuS reads
the file again for each thread, and a plain mount would follow a changed annotation.
"""

import ipaddress
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from agents.admission import files
from agents.admission.errors import RefusalError, SettingsError
from agents.admission.pods import Pod, annotations_of, labels_of, merge_by

ENABLED = "gvirtus.io/enabled"
BACKEND = "gvirtus.io/backend"
PROPERTIES = "gvirtus.io/properties"
CONFIG = "GVIRTUS_CONFIG"
CONFIG_PATH = "/run/gvirtus/properties.json"
VOLUME = "gvirtus-config"
FILE = "properties.json"
LUPINE_SERVER = "LUPINE_SERVER"
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

    def choose(self, pod: Pod) -> Backend:
        """The backend that a pod asks for.

        Raises:
            RefusalError: there is none of that name, or none is named and there is no default.
        """
        name = annotations_of(pod).get(BACKEND, self.default)
        known = ", ".join(sorted(self.backends)) or "none"
        if name is None:
            raise RefusalError(
                f"the pod has the label {ENABLED}, but names no backend, and there is no default. "
                f"Set the annotation {BACKEND} to one of: {known}."
            )
        if name not in self.backends:
            raise RefusalError(
                f"there is no GVirtuS backend {name!r}. Set the annotation {BACKEND} to one of: {known}."
            )
        return self.backends[name]


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


def mutate(pod: Pod, backends: Backends) -> Pod:
    """The pod with the address of its backend in every container, init containers and sidecars included.

    A container with its own `GVIRTUS_CONFIG` (`LUPINE_SERVER`) is left alone.

    Raises:
        RefusalError: the backend is unknown, or the pod uses our volume's name or path for something else.
    """
    if labels_of(pod).get(ENABLED) != "true":
        return pod
    backend = backends.choose(pod)
    match backend.kind:
        case "gvirtus":
            return _with_file(pod, backend)
        case "lupine":
            address = {"name": LUPINE_SERVER, "value": f"{backend.host}:{backend.port}"}
            return _in_containers(pod, address, mount=None)


def warnings(pod: Pod, backends: Backends) -> Iterator[str]:
    """What is doubtful about a pod that was let through; shown by kubectl to whoever created it."""
    if labels_of(pod).get(ENABLED) != "true":
        return
    if _FRACTION in annotations_of(pod):
        yield (
            f"the annotation {_FRACTION} asks KAI for a share of a local GPU, and {ENABLED} for a remote one: "
            "remove one of them"
        )
    variable = LUPINE_SERVER if backends.choose(pod).kind == "lupine" else CONFIG
    for container in _containers(pod):
        own = next((entry for entry in container.get("env") or () if entry["name"] == variable), None)
        if own is not None and (variable != CONFIG or own.get("value") != CONFIG_PATH):
            yield f"container {container['name']} sets {variable} itself, so it gets no backend from {BACKEND}"
        limits = (container.get("resources") or {}).get("limits")
        if isinstance(limits, Mapping) and str(limits.get(_GPU, "1")) not in {"0", "1"}:
            yield f"container {container['name']} asks for {limits[_GPU]} GPUs; a backend has one"


def properties(backend: Backend) -> str:
    """GVirtuS's properties.json for a frontend: these four keys are all that it reads."""
    endpoint = {"suite": "tcp/ip", "protocol": "tcp", "server_address": backend.host, "port": backend.port}
    return json.dumps({"communicator": [{"endpoint": endpoint}]}, separators=(",", ":"))


def _with_file(pod: Pod, backend: Backend) -> Pod:
    source = {"items": [{"path": FILE, "fieldRef": {"fieldPath": f"metadata.annotations['{PROPERTIES}']"}}]}
    volumes = pod["spec"].get("volumes") or []
    existing = next((volume for volume in volumes if volume["name"] == VOLUME), None)
    if existing is not None and not _is_ours(existing):
        raise RefusalError(f"the volume name {VOLUME!r} is taken by another volume of the pod: rename that one.")
    mount = {"name": VOLUME, "mountPath": CONFIG_PATH, "subPath": FILE, "readOnly": True}
    changed = _in_containers(pod, {"name": CONFIG, "value": CONFIG_PATH}, mount)
    if changed is pod:
        return pod
    metadata = pod.get("metadata") or {}
    spec = changed["spec"]
    if existing is None:
        spec = {**spec, "volumes": [*volumes, {"name": VOLUME, "downwardAPI": source}]}
    annotations = {**(metadata.get("annotations") or {}), PROPERTIES: properties(backend)}
    return {**changed, "metadata": {**metadata, "annotations": annotations}, "spec": spec}


def _is_ours(volume: Mapping[str, Any]) -> bool:
    """Whether a volume is the one that we add, with or without what the API server fills in."""
    items = (volume.get("downwardAPI") or {}).get("items")
    return (
        isinstance(items, list)
        and len(items) == 1
        and isinstance(items[0], Mapping)
        and items[0].get("path") == FILE
        and (items[0].get("fieldRef") or {}).get("fieldPath") == f"metadata.annotations['{PROPERTIES}']"
    )


def _containers(pod: Pod) -> list[Mapping[str, Any]]:
    spec = pod["spec"]
    return [*(spec.get("initContainers") or []), *spec["containers"]]


def _in_containers(pod: Pod, variable: Mapping[str, Any], mount: Mapping[str, Any] | None) -> Pod:
    """The pod with a variable, and perhaps a mount, in each container that does not set the variable itself.

    The same object if every container sets it to something else.
    """
    spec = pod["spec"]
    before = _containers(pod)
    if not any(_takes(container, variable) for container in before):
        return pod
    changed = {
        kind: [_with(container, variable, mount) for container in spec[kind]]
        for kind in ("initContainers", "containers")
        if spec.get(kind)
    }
    return {**pod, "spec": {**spec, **changed}}


def _takes(container: Mapping[str, Any], variable: Mapping[str, Any]) -> bool:
    own = [entry for entry in container.get("env") or () if entry["name"] == variable["name"]]
    return not own or own == [variable]


def _with(
    container: Mapping[str, Any], variable: Mapping[str, Any], mount: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    if not _takes(container, variable):
        return container
    changed = {**container, "env": merge_by("name", container.get("env"), [variable])}
    if mount is None:
        return changed
    mounts = container.get("volumeMounts")
    for entry in mounts or ():
        if entry["mountPath"] == mount["mountPath"] and entry.get("name") != mount["name"]:
            raise RefusalError(
                f"container {container['name']} mounts something else at {mount['mountPath']}: move it, or set "
                f"{CONFIG} in that container to keep your own file."
            )
    return {**changed, "volumeMounts": merge_by("mountPath", mounts, [mount])}
