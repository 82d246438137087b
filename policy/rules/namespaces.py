"""No namespace lowers Pod Security, except the reservation pods' on Tegra."""

import re
from collections.abc import Iterator

from policy import grants
from policy.findings import Told, Violation
from policy.interpreter import is_true
from policy.reading import Hole, dict_of, list_of, one_of, parent, text_of
from policy.rule import Rule
from policy.stack_platform import RESERVATION, StackFacts
from policy.workloads import Document, Field

ENFORCE = "pod-security.kubernetes.io/enforce"
VERSION = f"{ENFORCE}-version"
GUARD = "kai-anywhere.io/pod-guard"
OLD_VERSION = r"v1\.(?:[0-9]|1[0-9]|2[0-2])"
"""Levels got checks of seccomp profiles in v1.19, of users in v1.23, and then none before v1.34 (Kubernetes v1.36)."""
OLD_WHY = "before v1.23 the levels lack checks, such as those of seccomp profiles and users"
OLD_REMEDY = "set it to latest, or to the version of the cluster; or leave the label out"
_LEVELS = frozenset({"baseline", "restricted"})
_DRA_ADMIN = ("resource.kubernetes.io/admin-access", "resource.k8s.io/admin-access")
_CONSTRAINTS = (
    "allowPrivilegedContainer",
    "allowHostDirVolumePlugin",
    "allowHostNetwork",
    "allowHostPID",
    "allowHostIPC",
    "allowHostPorts",
)
"""OpenShift's SecurityContextConstraints."""
_EXEMPTIONS = ("usernames", "namespaces", "runtimeClasses")


def _check(document: Document, stack: StackFacts) -> Iterator[Violation]:
    granted = stack.grants and grants.is_reservation_namespace(document) and document.path == ()
    for field in _labels(document, ENFORCE):
        if not granted and not one_of(field.value, _LEVELS):
            yield Violation(field.path, field.value)
    for field in _labels(document, VERSION):
        version = text_of(field.value)
        if re.fullmatch(OLD_VERSION, version):
            yield Violation(field.path, Told(version), OLD_WHY, OLD_REMEDY)
    for field in _labels(document, GUARD):
        if field.value != "enforce":
            yield Violation(
                field.path,
                field.value,
                "the cluster's guard would not judge this namespace's pods any more",
                "set it to enforce; where no pod is to be judged, leave the label out",
            )
    yield from _reservation_namespace(document)
    yield from _beside_levels(document)


def _labels(document: Document, name: str) -> Iterator[Field]:
    """Where a label is set, not selected."""
    for field in document.fields(name):
        is_label = parent(field.path).endswith("labels") and parent(field.path) != "matchlabels"
        if is_label and not isinstance(field.value, Hole):
            yield field
    # A JSON patch may set all labels at once.
    for field in document.fields("labels"):
        value = dict_of(field.value).get(name, Hole.UNKNOWN)
        if not isinstance(value, Hole):
            yield Field((*field.path, name), value, dict_of(field.value))


def _reservation_namespace(document: Document) -> Iterator[Violation]:
    if document.name == RESERVATION and document.is_kind("Namespace"):
        labels = document.metadata.get("labels")
        if not isinstance(labels, Hole) and ENFORCE not in dict_of(labels):
            yield Violation(
                (*document.path, "metadata", "labels"),
                labels,
                "the reservation pods' namespace would take any pod",
                f"set the label {ENFORCE}: baseline",
            )


def _beside_levels(document: Document) -> Iterator[Violation]:
    for field in document.fields(*_DRA_ADMIN):
        if is_true(field.value):
            yield Violation(field.path, field.value, "claims in this namespace may take devices of others")
    for field in document.fields(*_CONSTRAINTS):
        if is_true(field.value):
            yield Violation(
                field.path, field.value, "accounts with these constraints may run such pods", "set it to false"
            )
    for field in document.fields("exemptions"):
        for key in _EXEMPTIONS:
            if list_of(dict_of(field.value).get(key)):
                yield Violation((*field.path, key), dict_of(field.value)[key], "Pod Security does not judge these pods")


RULE = Rule(
    name="namespaces",
    title="No namespace goes unguarded, or enforces less than the level baseline, but the reservation pods' on Tegra.",
    why="in such a namespace any pod may be privileged",
    remedy="set the level baseline or restricted",
    reads=frozenset(
        {
            "Namespace:=metadata",
            "Namespace:=metadata.labels",
            f"labels.{ENFORCE}",
            f"labels.{VERSION}",
            f"labels.{GUARD}",
            "exemptions",
        }
    ),
    check=_check,
)
