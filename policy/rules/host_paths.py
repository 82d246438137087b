"""No folder of the node in a pod: hostPath, local PersistentVolumes, and paths that leave their volume."""

from collections.abc import Iterator

from policy import checks
from policy.findings import Violation, told_path
from policy.reading import dict_of, text_of
from policy.rule import Rule
from policy.stack_platform import StackFacts
from policy.workloads import Document

_LEAVES = "a path with '..' leaves its volume on kubelets that follow it (CVE-2017-1002101, CVE-2021-25741)"


def _check(document: Document, _: StackFacts) -> Iterator[Violation]:
    for field in document.fields("hostPath"):
        if field.value:
            yield Violation(field.path, told_path(dict_of(field.value).get("path", field.value)))
    for field in document.fields("local"):
        if document.is_kind("PersistentVolume") and field.value and field.path[-2:-1] == ("spec",):
            yield Violation(field.path, told_path(dict_of(field.value).get("path", field.value)))
    for field in document.fields("subPath", "subPathExpr"):
        if ".." in text_of(field.value).split("/") or text_of(field.value).startswith("/"):
            yield Violation(field.path, told_path(field.value), _LEAVES, "name a path inside the volume, without '..'")


RULE = Rule(
    name="host-paths",
    title="No pod mounts a folder of its node, directly or through a PersistentVolume.",
    why=checks.HOST_PATHS.why,
    remedy=checks.HOST_PATHS.remedy,
    reads=frozenset(
        {
            "hostPath",
            "hostPath.path",
            "volumes",
            "PersistentVolume:spec.local",
            "PersistentVolume:local.path",
            "subPath",
        }
    ),
    check=_check,
)
