"""No folder of the node in a pod: hostPath, local PersistentVolumes, and paths that leave their volume."""

import re
from collections.abc import Iterator

from pod_checks import table
from policy import interpreter
from policy.findings import Violation, told_name, told_path
from policy.reading import dict_of, parent, text_of
from policy.rule import Rule
from policy.stack_platform import StackFacts
from policy.workloads import Document

_HOST_DRIVER = re.compile(r"(?:^|[./-])host-?path(?:[./-]|$)")
_PATTERN = "who makes a claim chooses the node's folder by its name or annotations (CVE-2025-62878)"
_LEAVES = "a path with '..' leaves its volume on kubelets that follow it (CVE-2017-1002101, CVE-2021-25741)"


def _check(document: Document, stack: StackFacts) -> Iterator[Violation]:
    yield from interpreter.violations(document, "host-paths", stack)
    for field in document.fields("hostDisk"):
        if field.value:
            yield Violation(field.path, told_path(dict_of(field.value).get("path", field.value)))
    yield from _drivers(document)
    for field in document.fields("local"):
        if document.is_kind("PersistentVolume") and field.value and field.path[-2:-1] == ("spec",):
            yield Violation(field.path, told_path(dict_of(field.value).get("path", field.value)))
    for field in document.fields("subPath", "subPathExpr"):
        if ".." in text_of(field.value).split("/") or text_of(field.value).startswith("/"):
            yield Violation(field.path, told_path(field.value), _LEAVES, "name a path inside the volume, without '..'")


def _drivers(document: Document) -> Iterator[Violation]:
    """Volumes that a driver takes from the node's folders."""
    for field in document.fields("driver"):
        if parent(field.path) == "csi" and _HOST_DRIVER.search(text_of(field.value)):
            yield Violation(field.path, told_name(field.value))
    if document.is_kind("StorageClass"):
        provisioner = text_of(document.root.get("provisioner"))
        pattern = dict_of(document.root.get("parameters")).get("pathPattern")
        if _HOST_DRIVER.search(provisioner):
            yield Violation((*document.path, "provisioner"), told_name(provisioner))
        if pattern and "local-path" in provisioner:
            path = (*document.path, "parameters", "pathPattern")
            yield Violation(path, told_path(pattern), _PATTERN, "remove the pattern: the provisioner names the folder")


RULE = Rule(
    name="host-paths",
    title="No pod mounts a folder of its node, directly or through a PersistentVolume.",
    why=table.BY_NAME["host_paths"].why,
    remedy=table.BY_NAME["host_paths"].remedy,
    reads=interpreter.fields_read("host-paths")
    | {"hostPath.path", "volumes", "PersistentVolume:spec.local", "PersistentVolume:local.path", "subPath", "hostDisk"}
    | {"csi.driver", "StorageClass:provisioner"},
    check=_check,
)
