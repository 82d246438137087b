"""No way to a GPU or a disk that passes the scheduler by."""

from collections.abc import Iterator

from policy import checks
from policy.findings import Told, Violation, told_path
from policy.reading import Hole, Path, dict_of, list_of, one_of, text_of
from policy.rule import Rule
from policy.rules.privileged import is_true
from policy.stack_platform import StackFacts
from policy.workloads import Document, Pod


def _check(document: Document, _: StackFacts) -> Iterator[Violation]:
    for pod in document.pods:
        yield from _without_request(pod)
    yield from _outside_containers(document)
    yield from _raw_volumes(document)
    for field in document.fields("adminAccess"):
        if is_true(field.value):
            yield Violation(
                field.path, field.value, "admin access takes devices that others have been given", "remove it"
            )
    for key, fields in document.keys.items():
        if key.startswith(checks.CDI_ANNOTATION):
            for field in fields:
                yield Violation(field.path, field.value, checks.INJECTED_DEVICES.why)


def _raw_volumes(document: Document) -> Iterator[Violation]:
    for field in document.fields("volumeMode"):
        if field.value == "Block":
            yield Violation(
                field.path, Told("Block"), checks.RAW_DEVICES.why, "leave it out: the default is Filesystem"
            )
    for field in document.fields("volumeDevices"):
        if field.value and not isinstance(field.value, Hole):
            yield Violation(field.path, field.value, checks.RAW_DEVICES.why, checks.RAW_DEVICES.remedy)


def _without_request(pod: Pod) -> Iterator[Violation]:
    fraction = not checks.FRACTIONS.isdisjoint(dict_of(pod.metadata.get("annotations")))
    for path, container in pod.containers():
        if not fraction and not _requests_gpu(container):
            yield from _environment(path, container)
        for index, mount in enumerate(list_of(container.get("volumeMounts"))):
            if text_of(dict_of(mount).get("mountPath")).startswith(checks.VOLUME_DEVICES):
                where = (*path, "volumeMounts", index, "mountPath")
                yield Violation(where, told_path(dict_of(mount).get("mountPath")))


def _outside_containers(document: Document) -> Iterator[Violation]:
    """The variable in a ConfigMap (envFrom), in chart values: by name, or as an entry of a list."""
    if any(key.startswith("nvidia.com/") for key in document.keys):
        return
    for field in document.fields(checks.VISIBLE_DEVICES):
        if isinstance(field.value, str) and not one_of(field.value, checks.NO_DEVICES):
            yield Violation(field.path, field.value)
    entries = [field for field in document.fields("name") if field.value == checks.VISIBLE_DEVICES]
    for field in entries:
        value = field.holder.get("value")
        inside = any(field.path[: len(pod.path)] == pod.path for pod in document.pods)
        if not inside and value is not None and not one_of(value, checks.NO_DEVICES):
            yield Violation((*field.path[:-1], "value"), value)


def _requests_gpu(container: dict[str, object]) -> bool:
    resources = dict_of(container.get("resources"))
    names = {name for part in ("limits", "requests") for name in dict_of(resources.get(part))}
    return bool(resources.get("claims")) or any(name.startswith(checks.GPU_RESOURCES) for name in names)


def _environment(path: Path, container: dict[str, object]) -> Iterator[Violation]:
    for index, variable in enumerate(list_of(container.get("env"))):
        entry = dict_of(variable)
        if entry.get("name") != checks.VISIBLE_DEVICES:
            continue
        # Beside an empty `value` the API server takes `valueFrom`.
        value = Told("a value from elsewhere") if entry.get("valueFrom") else entry.get("value", "")
        if not one_of(value, checks.NO_DEVICES):
            yield Violation((*path, "env", index, "value"), value)


RULE = Rule(
    name="devices",
    title="No container takes GPUs, disks or others' devices without a request.",
    why=checks.UNREQUESTED_GPUS.why,
    remedy=checks.UNREQUESTED_GPUS.remedy,
    reads=frozenset({"volumeDevices", "adminAccess", "devices.requests", "env"}),
    check=_check,
)
