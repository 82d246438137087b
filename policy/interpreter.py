"""Reads the table of pod checks for the pack's rules; the other interpreter is the cluster's guard.

The guard judges pods as the API server has them. Here a field counts wherever it stands, since a pod hides in patches,
custom resources and chart values; but for the checks whose fields mean something else outside of a pod.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache

from pod_checks import language, table
from pod_checks.language import Check, Place, Unless
from policy.findings import Told, Violation, told_image, told_name, told_path
from policy.reading import Hole, Path, dict_of, list_of, one_of, parent, text_of
from policy.stack_platform import StackFacts
from policy.workloads import Document, Pod

_IN_PODS = frozenset({"device_mounts", "images", "node_names", "runtime_classes", "variable_prefixes", "volume_images"})
"""Names of checks whose fields have other meanings elsewhere."""
_ALONE = frozenset({"privileged", "hostProcess", "hostPort", "procMount"})
"""Last keys that say it all without the keys before them."""
_REQUIRED = ("path", "driver", "repository")
"""Keys without which Kubernetes takes no hostPath, flexVolume and gitRepo."""
_TOLD: dict[str, Callable[[object], object]] = {
    "device_mounts": told_path,
    "host_paths": lambda value: told_path(dict_of(value).get("path", value)),
    "images": told_image,
    "node_names": told_name,
    "runtime_classes": told_name,
    "variable_prefixes": lambda value: Told(text_of(value)),
    "volume_images": told_image,
}
"""How a found value is shown, by the check's name; of the others, only known words are."""
_TRUE = frozenset({"true", "yes", "on", "1", "y", "t"})
_GPU = re.compile(table.GPU_RESOURCES)
_POSITIVE = re.compile(table.POSITIVE)
_EMPTY = Told("an empty string")
_ELSEWHERE = Told("a value from elsewhere")


def violations(document: Document, rule: str, stack: StackFacts) -> Iterator[Violation]:
    """What the checks of a rule forbid in a document."""
    for check in table.CHECKS:
        if check.rule == rule:
            for path, value in _values(check, document):
                if not _is_lifted(check.unless, path, document, stack):
                    shown = _TOLD[check.name](value) if check.name in _TOLD else value
                    yield Violation(path, shown, check.why, check.remedy)


def fields_read(rule: str) -> frozenset[str]:
    """The fields that count wherever they stand, as a rule's `reads` has them."""
    shapes = [check for check in table.CHECKS if check.rule == rule and check.name not in _IN_PODS]
    checks = [check for check in shapes if check.place not in {Place.ANNOTATIONS, Place.ENVIRONMENT}]
    return frozenset(".".join(filter(None, _shape(field))) for check in checks for field in check.fields)


def is_true(value: object) -> bool:
    """Whether a value means true to a template or a lenient reader."""
    return value is True or value == 1 or (isinstance(value, str) and value.casefold() in _TRUE)


def is_pinned(image: str) -> bool:
    """Whether an image reference has a digest, or a tag that is not `latest`."""
    tagged = re.fullmatch(table.TAGGED, image) and not re.fullmatch(table.LATEST, image)
    return table.DIGEST in image or bool(tagged)


def requests_gpu(resources: object) -> bool:
    """Whether a container's resources have a GPU; Kubernetes takes extended resources from the limits."""
    limits = dict_of(dict_of(resources).get("limits"))
    return any(_GPU.fullmatch(name) and _is_positive(amount) for name, amount in limits.items())


def _values(check: Check, document: Document) -> Iterator[tuple[Path, object]]:
    """Every forbidden value of a check, with its place. What is unknown is the judge's, by a rule's `reads`."""
    match check.place:
        case Place.ANNOTATIONS:
            places = _annotations(check, document)
        case Place.ENVIRONMENT:
            places = _environment(check, document)
        case _:
            below = _in_pods if check.name in _IN_PODS else _anywhere
            places = (place for field in check.fields for place in below(check, field, document))
            places = ((path, value) for path, value in places if not isinstance(value, Hole))
    return ((path, value) for path, value in places if _is_bad(check.allowed, value))


def _annotations(check: Check, document: Document) -> Iterator[tuple[Path, object]]:
    ends = [field.casefold().partition("*")[::2] for field in check.fields]
    for key, fields in document.keys.items():
        if any(key.startswith(first) and key.endswith(last) for first, last in ends):
            for field in fields:
                # An empty one is there too.
                yield field.path, (field.value or _EMPTY) if isinstance(check.allowed, language.Absent) else field.value


def _environment(check: Check, document: Document) -> Iterator[tuple[Path, object]]:
    for pod in document.pods:
        for path, container in pod.containers():
            for index, variable in enumerate(map(dict_of, list_of(container.get("env")))):
                if variable.get("name") in check.fields:
                    # Beside an empty `value` the API server takes `valueFrom`.
                    value = _ELSEWHERE if variable.get("valueFrom") else variable.get("value", "")
                    yield (*path, "env", index, "value"), value


def _in_pods(check: Check, field: str, document: Document) -> Iterator[tuple[Path, object]]:
    steps, whole = _steps(field), isinstance(check.allowed, language.Absent)
    for pod in document.pods:
        match check.place:
            case Place.CONTAINERS:
                for path, container in pod.containers():
                    yield from _below(path, container, steps, whole=whole)
            case Place.VOLUMES:
                yield from _below(pod.path, pod.spec, ("volumes", *steps), whole=whole)
            case _:
                yield from _below(pod.path, pod.spec, steps, whole=whole)


def _anywhere(check: Check, field: str, document: Document) -> Iterator[tuple[Path, object]]:
    whole = isinstance(check.allowed, language.Absent)
    holder, last = _shape(field)
    if holder:
        for place in document.fields(holder):
            yield from _below(place.path, place.value, (last,), whole=whole)
    for place in document.fields(last):
        # What the holder itself has was found there; a JSON patch has its keys in its path.
        seen = holder and last in place.holder and place.path[-1] == last
        if not holder or (not seen and parent(place.path) == holder.casefold()):
            yield from _below(place.path, place.value, (), whole=whole)


@cache
def _shape(field: str) -> tuple[str, str]:
    """The keys by which a field is known wherever it stands: its last one, and the one before where that says more."""
    *before, last = _steps(field)
    return ("" if last in _ALONE or not before else before[-1]), last


@cache
def _steps(field: str) -> tuple[str, ...]:
    return tuple(field.replace("[]", "").split("."))


def _below(path: Path, value: object, steps: tuple[str, ...], *, whole: bool) -> Iterator[tuple[Path, object]]:
    """What stands at some keys below a value, in each item of lists on the way; one at the end may stay whole."""
    if isinstance(value, list) and (steps or not whole):
        for index, item in enumerate(value):
            yield from _below((*path, index), item, steps, whole=whole)
    elif not steps and isinstance(value, dict) and "enabled" in value and not any(map(value.get, _REQUIRED)):
        # A section of a chart's values: it is what its switch says.
        yield (*path, "enabled"), value["enabled"]
    elif not steps:
        yield path, value
    elif isinstance(value, dict) and steps[0] in value:
        yield from _below((*path, steps[0]), value[steps[0]], steps[1:], whole=whole)


def _is_bad(allowed: language.Allowed, value: object) -> bool:  # noqa: PLR0911 - one for each kind
    """Whether a value is forbidden, also where it has a type that Kubernetes would refuse."""
    text = text_of(value)
    match allowed:
        case language.OneOf(values):
            return value is not None and not one_of(value, values)
        case language.NotTrue():
            return is_true(value)
        case language.Zero():
            return isinstance(value, int | float | str) and bool(value) and text != "0"
        case language.Absent():
            return bool(value)
        case language.Begins(prefixes):
            return bool(text) and not text.startswith(prefixes)
        case language.BeginsNot(prefix):
            return text.startswith(prefix)
        case language.NoStartOf(whole):
            return bool(text) and whole.startswith(text)
        case language.Pinned():
            return bool(text) and not is_pinned(text)


def _is_lifted(unless: Unless | None, path: Path, document: Document, stack: StackFacts) -> bool:
    if unless is None:
        return False
    # Each of them: a list of containers around or in a pod may be none that Kubernetes reads.
    around = [pod for pod in document.pods if path[: len(pod.path)] == pod.path]
    if not around:
        return False
    match unless:
        case Unless.OWN_USERS:
            return all(pod.spec.get("hostUsers") is False for pod in around)
        case Unless.GPU_REQUESTED:
            return all(
                _asks_for_fraction(pod)
                or (stack.nv_fractions and _asks_for_memory(pod))
                or any(requests_gpu(container.get("resources")) for _, container in pod.containers())
                for pod in around
            )
        case Unless.WRITTEN_BY_KAI:
            return False
        case Unless.GIVEN_BY_KAI:
            return not stack.nv_fractions and all(
                container_path is not None and container_path == path[: len(container_path)]
                for container_path in map(_fraction_container, around)
            )


def _asks_for_fraction(pod: Pod) -> bool:
    """Whether KAI schedules the pod and gives it a fraction."""
    annotations = dict_of(pod.metadata.get("annotations"))
    fractions = (annotations.get(name) for name in table.FRACTIONS)
    return pod.spec.get("schedulerName") == table.KAI_SCHEDULER and any(map(_is_positive, fractions))


def _fraction_container(pod: Pod) -> Path | None:
    """The container that gets the pod's fraction, where every KAI takes the same one."""
    if not _asks_for_fraction(pod):
        return None
    annotations = dict_of(pod.metadata.get("annotations"))
    # Ephemeral containers come later, when KAI does not look any more.
    by_name = {
        text_of(container.get("name")): path
        for path, container in pod.containers()
        if path[-2] != "ephemeralContainers"
    }
    if table.FRACTION_CONTAINER in annotations:
        return by_name.get(text_of(annotations[table.FRACTION_CONTAINER]))
    first = next(iter(by_name), "")
    own = f"{table.OF_CONTAINER}{first}."
    is_another = any(key.startswith(table.OF_CONTAINER) and not key.startswith(own) for key in annotations)
    return None if is_another else by_name.get(first)


def _asks_for_memory(pod: Pod) -> bool:
    """Whether a container of a pod that KAI schedules is given GPU memory by NvFractions' own annotations."""
    annotations = dict_of(pod.metadata.get("annotations"))
    prefix, keys = table.CONTAINER_MEMORY
    amounts = (
        annotations.get(f"{prefix}{text_of(container.get('name'))}{key}")
        for path, container in pod.containers()
        if path[-2] != "ephemeralContainers"
        for key in keys
    )
    return pod.spec.get("schedulerName") == table.KAI_SCHEDULER and any(map(_is_positive, amounts))


def _is_positive(amount: object) -> bool:
    return isinstance(amount, str | int | float) and _POSITIVE.fullmatch(str(amount)) is not None
