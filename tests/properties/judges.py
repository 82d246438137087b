"""What is wrong with registered resources, judged without the program's own code and without the policy pack's.

Each function yields a sentence for each thing that it finds.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from tests.support.recording_monitor import Graph, Registration

Path: TypeAlias = tuple[str | int, ...]

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_CONFIG_KEY = re.compile(r"[-._A-Za-z0-9]{1,253}")
_PATH_NAME = re.compile(r"(?!\.\.?\Z)[^/%]{1,253}")
_IMAGE = re.compile(
    r"[a-zA-Z0-9][-a-zA-Z0-9._]*(:\d+(?=/))?(/[a-z0-9][-a-z0-9._]*)*(:[\w][\w.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
_RBAC = frozenset({"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"})
_MOST_ANNOTATION_BYTES = 256 * 1024
_MOST_CONFIG_MAP_BYTES = 1024 * 1024
_BY_NAME = frozenset({"imagePullSecrets", "volumes", "containers", "initContainers", "env", "variables", "webhooks"})
"""Lists whose items Kubernetes tells apart by name: server-side apply refuses one that is there twice."""


def kubernetes_objects(graph: Graph) -> list[Registration]:
    """What becomes an object of the cluster; a patch of a node is one too."""
    return [registration for registration in graph.registrations if registration.inputs.get("metadata", {}).get("name")]


def wrong_names(graph: Graph) -> Iterator[str]:
    """Names that two resources or two objects share, or that Kubernetes would refuse."""
    keys = [registration.key for registration in graph.registrations]
    yield from (f"{key} is registered twice" for key in {key for key in keys if keys.count(key) > 1})
    there: set[tuple[str, str, str]] = set()
    for kubernetes_object in kubernetes_objects(graph):
        metadata, kind = kubernetes_object.inputs["metadata"], kubernetes_object.type.rpartition(":")[2]
        named = (kubernetes_object.type, metadata.get("namespace", ""), metadata["name"])
        if named in there:
            yield f"{kubernetes_object.key}: {named} is there twice"
        there.add(named)
        pattern = _name_pattern(kind)
        if not pattern.fullmatch(metadata["name"]):
            yield f"{kubernetes_object.key} has the name {metadata['name']!r}"
        if "namespace" in metadata and not _DNS_LABEL.fullmatch(metadata["namespace"]):
            yield f"{kubernetes_object.key} is in the namespace {metadata['namespace']!r}"


def _name_pattern(kind: str) -> re.Pattern[str]:
    if kind in _RBAC:
        return _PATH_NAME
    return {"Service": _SERVICE_NAME, "Namespace": _DNS_LABEL}.get(kind, _SUBDOMAIN)


def wrong_metadata(graph: Graph) -> Iterator[str]:
    """Labels, annotations and selectors that Kubernetes would refuse, wherever they stand."""
    for kubernetes_object in kubernetes_objects(graph):
        for path, value in _walk(kubernetes_object.inputs):
            if path[-1:] in {("labels",), ("matchLabels",), ("nodeSelector",)} and isinstance(value, dict):
                for key, text in value.items():
                    if not _is_qualified(key) or not isinstance(text, str) or not _LABEL_VALUE.fullmatch(text):
                        yield f"{kubernetes_object.key}: {path} has {key!r}: {text!r}"
            if path[-1:] == ("annotations",) and isinstance(value, dict):
                for key, text in value.items():
                    if not _is_qualified(key.lower()) or not isinstance(text, str):
                        yield f"{kubernetes_object.key}: {path} has {key!r}: {text!r}"
                if sum(len(f"{key}{text}".encode()) for key, text in value.items()) > _MOST_ANNOTATION_BYTES:
                    yield f"{kubernetes_object.key}: {path} is larger than Kubernetes takes"


def _is_qualified(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return bool(_LABEL_NAME.fullmatch(name)) and (not slash or bool(_SUBDOMAIN.fullmatch(prefix)))


def wrong_objects(graph: Graph) -> Iterator[str]:
    """What else an API server refuses, and no schema: names in lists, images, mounts, data, control characters."""
    for registration in graph.registrations:
        for path, value in _walk(registration.inputs):
            match path[-1:], value:
                case (str(key),), list() if key in _BY_NAME:
                    names = [item["name"] for item in value if isinstance(item, dict) and "name" in item]
                    yield from (f"{registration.key}: {path} has {name!r} twice" for name in _twice(names))
                case ("volumeMounts",), list():
                    mounts = [mount["mountPath"] for mount in value]
                    yield from (f"{registration.key}: {path} mounts {mount!r} twice" for mount in _twice(mounts))
                    yield from (f"{registration.key}: {path} mounts at {mount!r}" for mount in mounts if ":" in mount)
                case ("image",), str() if "containers" in path and not _IMAGE.fullmatch(value):
                    yield f"{registration.key}: {path} is {value!r}"
                case (("data" | "binaryData"),), dict() if len(path) == 1:
                    yield from (
                        f"{registration.key}: {path} has {key!r}" for key in value if not _CONFIG_KEY.fullmatch(key)
                    )
                    if len(json.dumps(value).encode()) > _MOST_CONFIG_MAP_BYTES:
                        yield f"{registration.key}: {path} is larger than Kubernetes takes"
                case _, str() if re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", value):
                    yield f"{registration.key}: {path} has a control character: {value!r}"
                case _:
                    pass
        for pod in _pods(registration.inputs):
            yield from (f"{registration.key}: {problem}" for problem in _wrong_pod(pod))


def _wrong_pod(spec: Mapping[str, Any]) -> Iterator[str]:
    containers = [*spec.get("initContainers", ()), *spec["containers"]]
    for named in (*containers, *spec.get("volumes", ())):
        if not _DNS_LABEL.fullmatch(named["name"]):
            yield f"the name {named['name']!r} is none of a container or a volume"
    volumes = {volume["name"] for volume in spec.get("volumes", ())}
    for container in containers:
        for mount in container.get("volumeMounts", ()):
            if mount["name"] not in volumes:
                yield f"{container['name']} mounts {mount['name']!r}, and there is no such volume"


def _pods(value: object) -> Iterator[Mapping[str, Any]]:
    for _, inner in _walk({"": value}):
        if isinstance(inner, dict) and isinstance(inner.get("containers"), list) and "volumes" in inner:
            yield inner


def _twice(names: list[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})


_POWER = re.compile(
    r"""(?ix)
    ["']? \b (privileged | hostNetwork | hostPID | hostIPC | hostProcess | allowPrivilegeEscalation) ["']? \s* [:=] \s*
        ["']? (true|yes|on|1) \b
    | \b hostPath \b
    | pod-security\.kubernetes\.io/enforce ["']? \s* [:=] \s* ["']? privileged
    | --privileged \b
    | \b capabilities ["']? \s* : \s* (Object[\w.]*)? \{ [^}]* \b add \b
    """
)
_REFUSES = frozenset({"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"})
"""Kinds that only refuse: what they name is what nobody may have."""


def powers(graph: Graph) -> Iterator[tuple[str, Path, object]]:
    """Every power over a node that a stack gives: its resource, the place, the value.

    In fields of objects and of chart values, and in texts: CEL, JSON and YAML in ConfigMaps, commands.
    """
    for registration in graph.registrations:
        if registration.type.rpartition(":")[2] in _REFUSES:
            continue
        for path, value in _walk(registration.inputs):
            if _is_power(path, value):
                yield registration.key, path, value


def _is_power(path: Path, value: object) -> bool:  # noqa: PLR0911 - a table, one row a field
    match path[-1:], value:
        case (("privileged" | "hostNetwork" | "hostPID" | "hostIPC" | "hostProcess" | "allowPrivilegeEscalation"),), _:
            return value not in {False, None} if isinstance(value, bool | str | int | None) else False
        case (("hostPath" | "hostPort"),), _:
            return bool(value)
        case ("runAsUser",), 0:
            return True
        case ("runAsNonRoot",), False:
            return True
        case ("add",), _ if "capabilities" in path:
            return bool(value)
        case ("pod-security.kubernetes.io/enforce",), _:
            return value not in {"baseline", "restricted"}
        case _, str():
            return _POWER.search(value) is not None
        case _:
            return False


def _walk(value: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    if path:
        yield path, value
    match value:
        case dict():
            for key, inner in value.items():
                yield from _walk(inner, (*path, key))
        case list():
            for index, inner in enumerate(value):
                yield from _walk(inner, (*path, index))
        case _:
            pass
