"""No way to a GPU or a disk that passes the scheduler by."""

from collections.abc import Iterator

from policy.findings import Told, Violation, told_path
from policy.reading import Hole, Path, dict_of, list_of, one_of, text_of
from policy.rule import Rule
from policy.rules.privileged import is_true
from policy.stack_platform import StackFacts
from policy.workloads import Document, Pod

_VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
_NO_DEVICES = frozenset({"", "none", "void"})
_VOLUME_DEVICES = "/var/run/nvidia-container-devices"
"""Mounts here name devices to the NVIDIA container runtime (`accept-nvidia-visible-devices-as-volume-mounts`)."""
_CDI = "cdi.k8s.io/"
"""Pod annotations with this prefix inject CDI devices."""
_FRACTIONS = frozenset({"gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"})
"""KAI's own requests, as annotations of the pod (KAI v0.17.0)."""
_RAW = "a raw block device is read and written past every file permission"
_REMEDY = "request the GPU: nvidia.com/gpu under resources.limits, or KAI's annotation gpu-fraction"


def _check(document: Document, _: StackFacts) -> Iterator[Violation]:
    for pod in document.pods:
        yield from _without_request(pod)
    yield from _outside_containers(document)
    for field in document.fields("volumeMode"):
        if field.value == "Block":
            yield Violation(field.path, Told("Block"), _RAW, "leave it out: the default is Filesystem")
    for field in document.fields("volumeDevices"):
        if field.value and not isinstance(field.value, Hole):
            yield Violation(
                field.path,
                field.value,
                _RAW,
                "mount the volume as a file system (volumeMounts)",
            )
    for field in document.fields("adminAccess"):
        if is_true(field.value):
            yield Violation(
                field.path, field.value, "admin access takes devices that others have been given", "remove it"
            )
    for key, fields in document.keys.items():
        if key.startswith(_CDI):
            for field in fields:
                yield Violation(field.path, field.value, "the runtime injects devices that nobody requested", _REMEDY)


def _without_request(pod: Pod) -> Iterator[Violation]:
    fraction = not _FRACTIONS.isdisjoint(dict_of(pod.metadata.get("annotations")))
    for path, container in pod.containers():
        if not fraction and not _requests_gpu(container):
            yield from _environment(path, container)
        for index, mount in enumerate(list_of(container.get("volumeMounts"))):
            if text_of(dict_of(mount).get("mountPath")).startswith(_VOLUME_DEVICES):
                where = (*path, "volumeMounts", index, "mountPath")
                yield Violation(where, told_path(dict_of(mount).get("mountPath")))


def _outside_containers(document: Document) -> Iterator[Violation]:
    """The variable in a ConfigMap (envFrom), in chart values: by name, or as an entry of a list."""
    if any(key.startswith("nvidia.com/") for key in document.keys):
        return
    for field in document.fields(_VISIBLE_DEVICES):
        if isinstance(field.value, str) and not one_of(field.value, _NO_DEVICES):
            yield Violation(field.path, field.value)
    in_pods = tuple(pod.path for pod in document.pods)
    for field in document.fields("name"):
        value = field.holder.get("value")
        if field.value == _VISIBLE_DEVICES and value is not None and not one_of(value, _NO_DEVICES):
            if not any(field.path[: len(path)] == path for path in in_pods):
                yield Violation((*field.path[:-1], "value"), value)


def _requests_gpu(container: dict[str, object]) -> bool:
    resources = dict_of(container.get("resources"))
    names = {name for part in ("limits", "requests") for name in dict_of(resources.get(part))}
    return bool(resources.get("claims")) or any(name.startswith("nvidia.com/") for name in names)


def _environment(path: Path, container: dict[str, object]) -> Iterator[Violation]:
    for index, variable in enumerate(list_of(container.get("env"))):
        entry = dict_of(variable)
        if entry.get("name") != _VISIBLE_DEVICES:
            continue
        value = entry.get("value", Told("a value from elsewhere") if "valueFrom" in entry else "")
        if not one_of(value, _NO_DEVICES):
            yield Violation((*path, "env", index, "value"), value)


RULE = Rule(
    name="devices",
    title="No container takes GPUs, disks or others' devices without a request.",
    why="with the NVIDIA runtime it gets GPUs that the scheduler gave to others",
    remedy=_REMEDY,
    reads=frozenset({"volumeDevices", "adminAccess", "devices.requests", "env"}),
    check=_check,
)
