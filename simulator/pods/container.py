"""What a pod's container becomes as a process: arguments, variables, files."""

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from simulator.files import write_private
from simulator.operands.world import Object, at
from simulator.pods.images import ProgramError
from toolchain import ImageProgram

Files = Mapping[str, bytes]
"""By name."""

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where a container finds its ServiceAccount's token, the authority to trust, and its namespace."""
_TEMPORARY = "/tmp"  # noqa: S108 (the container's, not this machine's)


def only_container(pod: Object) -> Object:
    """The pod's container.

    Raises:
        ProgramError: it has several, or one that does not run its image's own program.
    """
    containers = pod["spec"]["containers"]
    if len(containers) > 1:
        raise ProgramError("a pod with several containers can't be run as a process")
    container: Object = containers[0]
    if container.get("command"):
        raise ProgramError(f"container {container['name']} has a command of its own: only an image's program is run")
    return container


def arguments(program: ImageProgram, container: Object, files: Path) -> list[str]:
    """The command line: the container's own, with the places of its mounts as they are here."""
    words = [*program.arguments, *(str(argument) for argument in container.get("args") or program.default_arguments)]
    # A longer path first: a mount may lie in another.
    for mount in sorted((mount["mountPath"] for mount in container.get("volumeMounts") or ()), key=len, reverse=True):
        words = [argument.replace(mount, str(_below(files, mount))) for argument in words]
    return [str(program.path), *words]


def environment(program: ImageProgram, pod: Object, container: Object, files: Path, server: str) -> dict[str, str]:
    """The variables: the image's, the container's, the API server's address, and the folder that stands for /tmp.

    KAI has certificates in that one.

    Raises:
        ProgramError: one comes from something else than the pod itself.
    """
    address = urlsplit(server)
    variables = {
        **program.environment,
        "HOME": str(files),
        "TMPDIR": str(_below(files, _TEMPORARY)),
        "KUBERNETES_SERVICE_HOST": str(address.hostname),
        "KUBERNETES_SERVICE_PORT": str(address.port),
    }
    for variable in container.get("env") or ():
        if "valueFrom" in variable:
            path = at(variable, "valueFrom", "fieldRef", "fieldPath")
            value = at(pod, *path.split(".")) if path else None
            if value is None:
                raise ProgramError(f"variable {variable['name']}: only fields of the pod that are set can be read")
            variables[variable["name"]] = str(value)
        else:
            variables[variable["name"]] = str(variable.get("value") or "")
    return variables


def mounts(container: Object) -> tuple[str, ...]:
    """The paths that the container has of its own, and not of this machine."""
    return (ACCOUNT, *(mount["mountPath"] for mount in container.get("volumeMounts") or ()))


def write_account(files: Path, token: str, authority: bytes, namespace: str) -> Path:
    """Write what a container has of its ServiceAccount; gives the token's place."""
    place = _below(files, ACCOUNT)
    place.mkdir(parents=True, exist_ok=True)
    for name, content in (("token", token.encode()), ("ca.crt", authority), ("namespace", namespace.encode())):
        write_private(place / name, content)
    return place / "token"


def sources(pod: Object) -> Iterator[tuple[str, str]]:
    """The Secrets and ConfigMaps that the pod's volumes come from: kind and name."""
    for volume in pod["spec"].get("volumes") or ():
        for kind, name, _ in _sources(volume):
            yield kind, name


def write_files(pod: Object, container: Object, files: Path, data: Mapping[tuple[str, str], Files]) -> None:
    """Write what the container mounts of Secrets and ConfigMaps, below `files`; unchanged files are left alone.

    Raises:
        ProgramError: one is missing, or is a volume of another kind.
    """
    _below(files, _TEMPORARY).mkdir(parents=True, exist_ok=True)
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
    for mount in container.get("volumeMounts") or ():
        volume, place = volumes[mount["name"]], _below(files, mount["mountPath"])
        if not volume.keys() & {"emptyDir", "projected", "secret", "configMap"}:
            raise ProgramError(f"volume {volume['name']} is neither of a Secret nor of a ConfigMap")
        content: dict[str, bytes] = {}
        for kind, name, optional in _sources(volume):
            if (kind, name) in data:
                content |= data[kind, name]
            elif not optional:
                raise ProgramError(f"volume {volume['name']}: {kind} {name} does not exist")
        if content and (key := mount.get("subPath")):
            place, content = place.parent, {place.name: content.get(key, b"")}
        place.mkdir(parents=True, exist_ok=True)
        for name, value in content.items():
            write_private(place / name, value)


def _sources(volume: Object) -> Iterator[tuple[str, str, bool]]:
    """Kind, name, and whether it may be missing."""
    projected = at(volume, "projected", "sources") or ()
    # The ServiceAccount's, see `write_account`.
    for source in () if any("serviceAccountToken" in entry for entry in projected) else (volume, *projected):
        match source:
            case {"secret": {"secretName": name} | {"name": name} as reference}:
                yield "Secret", name, bool(reference.get("optional"))
            case {"configMap": {"name": name} as reference}:
                yield "ConfigMap", name, bool(reference.get("optional"))
            case _:
                pass


def decoded(kind: str, resource: Object) -> Files:
    """The data of a Secret or ConfigMap as files."""
    values: Mapping[str, str] = resource.get("data") or {}
    return {key: base64.b64decode(value) if kind == "Secret" else value.encode() for key, value in values.items()}


def _below(files: Path, place: str) -> Path:
    return files / place.lstrip("/")
