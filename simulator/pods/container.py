"""What a pod's container becomes as a process: arguments, variables, files."""

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path

from simulator.files import write_private
from simulator.operands.world import Object, at
from simulator.pods.images import ProgramError
from toolchain import ImageProgram

Files = Mapping[str, bytes]
"""By name."""

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
    said = [*program.arguments, *(str(argument) for argument in container.get("args") or program.default_arguments)]
    # A longer path first: a mount may lie in another.
    for mount in sorted((mount["mountPath"] for mount in container.get("volumeMounts") or ()), key=len, reverse=True):
        said = [argument.replace(mount, str(_below(files, mount))) for argument in said]
    return [str(program.path), *said]


def environment(program: ImageProgram, pod: Object, container: Object, files: Path) -> dict[str, str]:
    """The variables: the image's, the container's, and the folder that stands for /tmp, where KAI has certificates.

    Raises:
        ProgramError: one comes from something else than the pod itself.
    """
    variables = {**program.environment, "HOME": str(files), "TMPDIR": str(_below(files, _TEMPORARY))}
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


def sources(pod: Object) -> Iterator[tuple[str, str]]:
    """The Secrets and ConfigMaps that the pod's volumes come from: kind and name."""
    for volume in pod["spec"].get("volumes") or ():
        if source := _source(volume):
            yield source


def write_files(pod: Object, container: Object, files: Path, data: Mapping[tuple[str, str], Files]) -> None:
    """Write what the container mounts of Secrets and ConfigMaps, below `files`; unchanged files are left alone.

    Raises:
        ProgramError: one is missing, or is a volume of another kind.
    """
    _below(files, _TEMPORARY).mkdir(parents=True, exist_ok=True)
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
    for mount in container.get("volumeMounts") or ():
        volume, place = volumes[mount["name"]], _below(files, mount["mountPath"])
        source = _source(volume)
        if source is None:
            # A projected one is the ServiceAccount's token, which the process gets in its kubeconfig.
            if not volume.keys() & {"emptyDir", "projected"}:
                raise ProgramError(f"volume {volume['name']} is neither of a Secret nor of a ConfigMap")
            place.mkdir(parents=True, exist_ok=True)
            continue
        if source not in data:
            raise ProgramError(f"volume {volume['name']}: {' '.join(source)} does not exist")
        content = data[source]
        if key := mount.get("subPath"):
            place, content = place.parent, {place.name: content.get(key, b"")}
        place.mkdir(parents=True, exist_ok=True)
        for name, value in content.items():
            write_private(place / name, value)


def _source(volume: Object) -> tuple[str, str] | None:
    match volume:
        case {"secret": {"secretName": name}}:
            return "Secret", name
        case {"configMap": {"name": name}}:
            return "ConfigMap", name
        case _:
            return None


def decoded(kind: str, found: Object) -> Files:
    """The data of a Secret or ConfigMap as files."""
    values: Mapping[str, str] = found.get("data") or {}
    return {key: base64.b64decode(value) if kind == "Secret" else value.encode() for key, value in values.items()}


def _below(files: Path, place: str) -> Path:
    return files / place.lstrip("/")
