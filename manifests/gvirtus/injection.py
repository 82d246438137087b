"""What a pod that asks for a remote GPU gets: one pure function, which both carriers render.

GVirtuS' frontend reads `GVIRTUS_CONFIG` before `$GVIRTUS_HOME/etc/properties.json` (src/frontend/Frontend.cpp, all
branches checked), so nothing in the image changes: the file is an annotation of the pod, mounted by the downward API.
By subPath, since every thread reads the file again, and one that changed would split a process over two backends.
LUPINE's client needs one variable with a DNS name.
"""

import copy
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from config.gvirtus import BackendKind
from manifests.objects import Manifest

ENABLED_LABEL = "gvirtus.io/enabled"
"""`true` on a pod asks for a remote GPU."""
BACKEND_ANNOTATION = "gvirtus.io/backend"
"""Chooses the backend by name; written back where the pod left the choice to us."""
PROPERTIES_ANNOTATION = "gvirtus.io/properties"
VOLUME = "gvirtus-config"
FILE = "properties.json"
"""GVirtuS takes no file whose name does not end in `.json` (include/gvirtus/common/JSON.h)."""
PATH = f"/run/gvirtus/{FILE}"
GVIRTUS_VARIABLE = "GVIRTUS_CONFIG"
LUPINE_VARIABLE = "LUPINE_SERVER"

ENDPOINT_SEPARATOR = ":"


@dataclass(frozen=True)
class Endpoint:
    """Where a backend answers.

    Attributes:
        name: the backend's name.
        kind: what it is.
        host: an IPv4 address for GVirtuS, which resolves no names; a DNS name for LUPINE.
        port: as text, which is what GVirtuS wants.
    """

    name: str
    kind: BackendKind
    host: str
    port: str


@dataclass(frozen=True)
class Injection:
    """Every backend that pods may choose.

    Attributes:
        endpoints: by name.
        default: of pods that name none, or None where they must.
    """

    endpoints: Mapping[str, Endpoint]
    default: str | None

    def chosen(self, pod: Mapping[str, Any]) -> str:
        """The name that a pod asks for, known or not; empty without name and default."""
        annotations = pod["metadata"].get("annotations") or {}
        return str(annotations.get(BACKEND_ANNOTATION, self.default or ""))


@dataclass(frozen=True)
class Fragment:
    """What a pod gets.

    Attributes:
        annotations: of the pod.
        variable: name and value, in every container that does not set it itself.
        volume: of the pod, or None.
        mount: beside the variable, or None.
    """

    annotations: Mapping[str, str]
    variable: tuple[str, str]
    volume: Manifest | None
    mount: Manifest | None


def frontend_properties(host: str, port: str) -> str:
    """GVirtuS' file for a client: the endpoint alone; plugins and security are read by the backend only."""
    endpoint = {"suite": "tcp/ip", "protocol": "tcp", "server_address": host, "port": port}
    return json.dumps({"communicator": [{"endpoint": endpoint}]}, separators=(",", ":"))


def fragment(endpoint: Endpoint) -> Fragment:
    """What a pod gets for a backend. Defaults that the API server fills in are written out, so that pods compare."""
    chosen = {BACKEND_ANNOTATION: endpoint.name}
    match endpoint.kind:
        case BackendKind.LUPINE:
            address = f"{endpoint.host}{ENDPOINT_SEPARATOR}{endpoint.port}"
            return Fragment(chosen, (LUPINE_VARIABLE, address), None, None)
        case BackendKind.GVIRTUS:
            return Fragment(
                annotations=chosen | {PROPERTIES_ANNOTATION: frontend_properties(endpoint.host, endpoint.port)},
                variable=(GVIRTUS_VARIABLE, PATH),
                volume=properties_volume(),
                mount={"name": VOLUME, "mountPath": PATH, "subPath": FILE, "readOnly": True},
            )


def properties_volume() -> Manifest:
    """The annotation as a file."""
    field = {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{PROPERTIES_ANNOTATION}']"}
    return {"name": VOLUME, "downwardAPI": {"items": [{"path": FILE, "fieldRef": field}], "defaultMode": 0o644}}


def inject(pod: Manifest, injection: Injection) -> Manifest:
    """The pod with its remote GPU; the same pod if it asks for none, or for a backend that there is not.

    Container by container, what the user set stays: a container with its own `GVIRTUS_CONFIG` or `LUPINE_SERVER` is
    left alone. Injecting twice is injecting once.
    """
    endpoint = injection.endpoints.get(injection.chosen(pod))
    if (pod["metadata"].get("labels") or {}).get(ENABLED_LABEL) != "true" or endpoint is None:
        return pod
    given = fragment(endpoint)
    result = copy.deepcopy(pod)
    metadata, spec = result["metadata"], result["spec"]
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **given.annotations}
    if given.volume is not None and not _named(spec.get("volumes"), given.volume["name"]):
        spec["volumes"] = [*(spec.get("volumes") or []), given.volume]
    for container in _containers(spec):
        if wants(container, given):
            _add(container, given)
    return result


def wants(container: Mapping[str, Any], given: Fragment) -> bool:
    """Whether a container gets the variable: it has no own one, and nothing of its own where the file goes."""
    name, value = given.variable
    own = _named(container.get("env"), name)
    if own and (given.mount is None or own.get("value") != value):
        return False
    return not any(_takes_the_place(mount, given.mount) for mount in container.get("volumeMounts") or ())


def refusal(pod: Mapping[str, Any], injection: Injection) -> str | None:
    """Why an injected pod can't be accepted, with the way out; None if it can."""
    name = injection.chosen(pod)
    endpoint = injection.endpoints.get(name)
    if endpoint is None:
        return unknown_backend(name, injection)
    given = fragment(endpoint)
    if given.volume is None:
        return None
    if any(volume["name"] == VOLUME and not _is_ours(volume) for volume in pod["spec"].get("volumes") or ()):
        return VOLUME_TAKEN
    for container in _containers(pod["spec"]):
        taken = any(_takes_the_place(mount, given.mount) for mount in container.get("volumeMounts") or ())
        if taken and not _named(container.get("env"), GVIRTUS_VARIABLE):
            return PATH_TAKEN
    return None


VOLUME_TAKEN = f"the volume name {VOLUME} is taken by the remote GPU's properties file: rename your volume"
PATH_TAKEN = (
    f"something else is mounted at {PATH}, where the remote GPU's properties file goes: mount it elsewhere, and set "
    f"{GVIRTUS_VARIABLE} to its path if it is a properties file of your own"
)

NOT_SERVED = (
    "this pod was not given its GPU backend: a change of the backends takes the cluster some seconds, so create the "
    "pod again (Deployments and Jobs do so by themselves); if this stays, make repair puts back what is missing"
)


def unknown_backend(name: str, injection: Injection) -> str:
    """The refusal of a name that is no backend's."""
    problem = f"there is no GPU backend '{name}'" if name else "this pod asks for a remote GPU and names no backend"
    return f"{problem}: {way_out(injection)}"


def way_out(injection: Injection) -> str:
    """What to write instead of an unknown name."""
    names = ", ".join(sorted(injection.endpoints))
    if injection.default is None:
        return f"set the annotation {BACKEND_ANNOTATION} to one of: {names}"
    return f"set the annotation {BACKEND_ANNOTATION} to one of: {names}; without it, pods get {injection.default}"


def webhook_document(injection: Injection) -> dict[str, Any]:
    """The backends as the admission server reads them, for the carrier `webhook`."""
    return {
        "backends": {
            name: {"host": endpoint.host, "port": endpoint.port, "kind": endpoint.kind.value}
            for name, endpoint in sorted(injection.endpoints.items())
        },
        "default": injection.default,
    }


def _containers(spec: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    yield from spec.get("initContainers") or ()
    yield from spec["containers"]


def _named(items: Iterable[Mapping[str, Any]] | None, name: str) -> Mapping[str, Any] | None:
    return next((item for item in items or () if item["name"] == name), None)


def _takes_the_place(mount: Mapping[str, Any], ours: Mapping[str, Any] | None) -> bool:
    return ours is not None and mount["mountPath"] == ours["mountPath"] and mount["name"] != ours["name"]


def _is_ours(volume: Mapping[str, Any]) -> bool:
    items = (volume.get("downwardAPI") or {}).get("items") or ()
    wanted = properties_volume()["downwardAPI"]["items"][0]
    return any(
        item["path"] == wanted["path"]
        and (item.get("fieldRef") or {}).get("fieldPath") == wanted["fieldRef"]["fieldPath"]
        for item in items
    )


def _add(container: dict[str, Any], given: Fragment) -> None:
    name, value = given.variable
    if not _named(container.get("env"), name):
        container["env"] = [*(container.get("env") or []), {"name": name, "value": value}]
    if given.mount is not None:
        place = given.mount["mountPath"]
        mounts = container.get("volumeMounts") or []
        if not any(mount["mountPath"] == place for mount in mounts):
            mounts = [*mounts, {"mountPath": place}]
        # As server-side apply merges them: by path, field by field.
        container["volumeMounts"] = [m | given.mount if m["mountPath"] == place else m for m in mounts]
