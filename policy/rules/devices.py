"""No way to a GPU or a disk that passes the scheduler by."""

import re
from collections.abc import Iterator

from policy import checks
from policy.checks import Check
from policy.findings import Told, Violation, told_name, told_path
from policy.reading import Hole, Path, dict_of, list_of, one_of, parent, text_of
from policy.rule import Rule
from policy.rules.privileged import is_true
from policy.stack_platform import StackFacts
from policy.workloads import Document, Pod

_GPU = re.compile(checks.GPU_RESOURCES)
_POSITIVE = re.compile(checks.POSITIVE)


def _check(document: Document, _: StackFacts) -> Iterator[Violation]:
    for pod in document.pods:
        yield from _of_containers(pod)
    yield from _runtime_classes(document)
    yield from _outside_containers(document)
    yield from _raw_volumes(document)
    for field in document.fields("adminAccess"):
        if is_true(field.value):
            yield Violation(
                field.path, field.value, "admin access takes devices that others have been given", "remove it"
            )
    for key, fields in document.keys.items():
        if key.startswith(checks.CDI_ANNOTATIONS):
            for field in fields:
                yield _found(checks.INJECTED_DEVICES, field.path, field.value)


def _found(check: Check, path: Path, value: object) -> Violation:
    return Violation(path, value, check.why, check.remedy)


def _raw_volumes(document: Document) -> Iterator[Violation]:
    for field in document.fields("volumeMode"):
        if field.value == "Block":
            yield Violation(
                field.path, Told("Block"), checks.RAW_DEVICES.why, "leave it out: the default is Filesystem"
            )
    for field in document.fields("volumeDevices"):
        if field.value and not isinstance(field.value, Hole):
            yield Violation(field.path, field.value, checks.RAW_DEVICES.why, checks.RAW_DEVICES.remedy)


def _of_containers(pod: Pod) -> Iterator[Violation]:
    given = _fraction_container(pod)
    for path, container in pod.containers():
        if path != given:
            yield from _environment(path, container)
        for index, source in enumerate(list_of(container.get("envFrom"))):
            prefix = text_of(dict_of(source).get("prefix"))
            if prefix and checks.VISIBLE_DEVICES.startswith(prefix):
                where = (*path, "envFrom", index, "prefix")
                yield _found(checks.VARIABLE_PREFIXES, where, Told(prefix))
        for index, mount in enumerate(list_of(container.get("volumeMounts"))):
            if text_of(dict_of(mount).get("mountPath")).startswith(checks.VOLUME_DEVICES):
                where = (*path, "volumeMounts", index, "mountPath")
                yield _found(checks.DEVICE_MOUNTS, where, told_path(dict_of(mount).get("mountPath")))


def _runtime_classes(document: Document) -> Iterator[Violation]:
    """Those of pods, and of patches that have no container; in a chart's values the name may be anybody's."""
    pods = {pod.path: pod for pod in document.pods}
    for field in document.fields("runtimeClassName"):
        if not text_of(field.value).startswith(checks.NVIDIA_CLASSES):
            continue
        pod = pods.get(field.path[:-1])
        if pod is None:
            requested = parent(field.path) != "spec" or any(map(_requests_gpu, _resources(document)))
        else:
            requested = bool(_fraction_container(pod)) or any(
                _requests_gpu(container.get("resources")) for _, container in pod.containers()
            )
        if not requested:
            yield _found(checks.RUNTIME_CLASSES, field.path, told_name(field.value))
    named = document.name.startswith(checks.NVIDIA_CLASSES)
    handler = document.root.get("handler")
    if document.is_kind("RuntimeClass") and not named and text_of(handler).startswith(checks.NVIDIA_CLASSES):
        yield Violation(
            (*document.path, "handler"),
            told_name(handler),
            "pods that name this class get the NVIDIA runtime, and no check knows it by its name",
            f"name the class after its handler, or begin its name with {checks.NVIDIA_CLASSES}",
        )


def _resources(document: Document) -> Iterator[object]:
    for field in document.fields("resources"):
        yield field.value


def _fraction_container(pod: Pod) -> Path | None:
    """The container that gets the pod's fraction, where KAI schedules it."""
    annotations = dict_of(pod.metadata.get("annotations"))
    fractions = (annotations.get(name) for name in checks.FRACTIONS)
    if pod.spec.get("schedulerName") != checks.KAI_SCHEDULER or not any(map(_is_positive, fractions)):
        return None
    # Ephemeral containers come later, when KAI does not look any more.
    named = {text_of(each.get("name")): path for path, each in pod.containers() if path[-2] != "ephemeralContainers"}
    return named.get(text_of(annotations.get(checks.FRACTION_CONTAINER, next(iter(named), ""))))


def _outside_containers(document: Document) -> Iterator[Violation]:
    """The variable in a ConfigMap (envFrom), in chart values: by name, or as an entry of a list."""
    for field in document.fields(checks.VISIBLE_DEVICES):
        if isinstance(field.value, str) and not one_of(field.value, checks.NO_DEVICES):
            yield Violation(field.path, field.value)
    entries = [field for field in document.fields("name") if field.value == checks.VISIBLE_DEVICES]
    for field in entries:
        value = field.holder.get("value")
        inside = any(field.path[: len(pod.path)] == pod.path for pod in document.pods)
        if not inside and value is not None and not one_of(value, checks.NO_DEVICES):
            yield Violation((*field.path[:-1], "value"), value)


def _requests_gpu(resources: object) -> bool:
    """Whether a container's resources have a GPU; Kubernetes takes extended resources from the limits."""
    limits = dict_of(dict_of(resources).get("limits"))
    return any(_GPU.fullmatch(name) and _is_positive(amount) for name, amount in limits.items())


def _is_positive(amount: object) -> bool:
    return isinstance(amount, str | int | float) and _POSITIVE.fullmatch(str(amount)) is not None


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
    reads=frozenset(
        {
            "volumeDevices",
            "adminAccess",
            "devices.requests",
            "env",
            "envFrom",
            "envFrom.prefix",
            "spec.runtimeClassName",
        }
    ),
    check=_check,
)
