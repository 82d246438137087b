"""No access to a GPU or a disk that the scheduler does not know of."""

from collections.abc import Iterator

from pod_checks import table
from policy import interpreter
from policy.findings import Told, Violation, told_name
from policy.reading import one_of, parent, text_of
from policy.rule import Rule
from policy.stack_platform import StackFacts
from policy.workloads import Document


def _check(document: Document, stack: StackFacts) -> Iterator[Violation]:
    yield from interpreter.violations(document, "devices", stack)
    yield from _runtime_classes(document)
    yield from _outside_containers(document)
    for field in document.fields("adminAccess"):
        if interpreter.is_true(field.value):
            yield Violation(
                field.path, field.value, "admin access takes devices that others have been given", "remove it"
            )
    for field in document.fields("volumeMode"):
        if field.value == "Block":
            yield Violation(
                field.path, Told("Block"), table.BY_NAME["raw_devices"].why, "leave it out: the default is Filesystem"
            )


def _runtime_classes(document: Document) -> Iterator[Violation]:
    """Those of patches that have no container; in a chart's values the name may be anybody's."""
    pods = {pod.path for pod in document.pods}
    check = table.BY_NAME["runtime_classes"]
    for field in document.fields("runtimeClassName"):
        if text_of(field.value).startswith(table.NVIDIA_CLASSES) and field.path[:-1] not in pods:
            resources = (entry.value for entry in document.fields("resources"))
            if parent(field.path) == "spec" and not any(map(interpreter.requests_gpu, resources)):
                yield Violation(field.path, told_name(field.value), check.why, check.remedy)
    has_nvidia_name = document.name.startswith(table.NVIDIA_CLASSES)
    handler = document.root.get("handler")
    if document.is_kind("RuntimeClass") and not has_nvidia_name and text_of(handler).startswith(table.NVIDIA_CLASSES):
        yield Violation(
            (*document.path, "handler"),
            told_name(handler),
            "pods that name this class get the NVIDIA runtime, and no check knows it by its name",
            f"name the class after its handler, or begin its name with {table.NVIDIA_CLASSES}",
        )


def _outside_containers(document: Document) -> Iterator[Violation]:
    """The variable in a ConfigMap (envFrom), in chart values: by name, or as an entry of a list."""
    for field in document.fields(table.VISIBLE_DEVICES):
        if isinstance(field.value, str) and not one_of(field.value, table.NO_DEVICES):
            yield Violation(field.path, field.value)
    entries = [field for field in document.fields("name") if field.value == table.VISIBLE_DEVICES]
    for field in entries:
        value = field.holder.get("value")
        inside = any(field.path[: len(pod.path)] == pod.path for pod in document.pods)
        if not inside and value is not None and not one_of(value, table.NO_DEVICES):
            yield Violation((*field.path[:-1], "value"), value)


RULE = Rule(
    name="devices",
    title="No container takes GPUs, disks or others' devices without a request.",
    why=table.BY_NAME["unrequested_gpus"].why,
    remedy=table.BY_NAME["unrequested_gpus"].remedy,
    reads=interpreter.fields_read("devices")
    | {"adminAccess", "devices.requests", "env", "envFrom", "envFrom.prefix", "spec.runtimeClassName"},
    check=_check,
)
