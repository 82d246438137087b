"""No namespaces, ports, kernel settings or weakened confinement of the node: Pod Security's baseline."""

import re
from collections.abc import Iterator

from policy import checks
from policy.findings import Violation
from policy.reading import Hole, dict_of, list_of, one_of, parent, text_of
from policy.rule import Rule
from policy.rules.privileged import is_true
from policy.stack_platform import StackFacts
from policy.workloads import Document, Field

_NUMBERS = re.compile(r"[0-9 \t,-]*")
_SYSCTL_WHY = "a runtime that joins settings to one text takes what follows as another one (CVE-2022-0811)"
_PROBES = frozenset({"httpget", "tcpsocket"})


def _check(document: Document, _: StackFacts) -> Iterator[Violation]:
    yield from _namespaces_and_ports(document)
    yield from _capabilities(document)
    yield from _confinement(document)
    yield from _annotations(document)


def _namespaces_and_ports(document: Document) -> Iterator[Violation]:
    for field in document.fields("hostPID", "hostIPC", "hostNetwork", "hostProcess"):
        if is_true(field.value):
            yield Violation(field.path, field.value, checks.HOST_NAMESPACES.why)
    for field in document.fields("hostPort"):
        if field.value and isinstance(field.value, int | float | str) and text_of(field.value) != "0":
            yield Violation(field.path, field.value, checks.HOST_PORTS.why, checks.HOST_PORTS.remedy)
    for field in document.fields("host"):
        if field.value and isinstance(field.value, str) and parent(field.path) in _PROBES:
            yield Violation(field.path, field.value, checks.HANDLER_HOSTS.why, checks.HANDLER_HOSTS.remedy)


def _capabilities(document: Document) -> Iterator[Violation]:
    for field in document.fields("add"):
        if parent(field.path) == "capabilities":
            added = field.value if isinstance(field.value, list) else [field.value]
            for index, capability in enumerate(added):
                if not _may_be(capability, checks.CAPABILITY_NAMES):
                    path = (*field.path, index)
                    yield Violation(path, capability, checks.CAPABILITIES.why, checks.CAPABILITIES.remedy)


def _confinement(document: Document) -> Iterator[Violation]:
    in_user_namespace = {pod.path for pod in document.pods if pod.spec.get("hostUsers") is False}
    for field in document.fields("procMount"):
        inside = any(field.path[: len(path)] == path for path in in_user_namespace)
        if not _may_be(field.value, checks.PROC_MOUNT_TYPES) and not inside:
            yield Violation(field.path, field.value, checks.PROC_MOUNTS.why)
    for field in document.fields("seccompProfile", "appArmorProfile"):
        kind = dict_of(field.value).get("type")
        if not _may_be(kind, checks.PROFILE_TYPES):
            yield Violation((*field.path, "type"), kind, checks.PROFILES.why)
    for field in document.fields("seLinuxOptions"):
        yield from _selinux(field)
    for field in document.fields("sysctls"):
        for index, sysctl in enumerate(list_of(field.value)):
            name = dict_of(sysctl).get("name")
            if not _may_be(name, checks.SYSCTL_NAMES):
                yield Violation((*field.path, index, "name"), name, checks.SYSCTLS.why)
            value = dict_of(sysctl).get("value")
            if isinstance(value, str) and not _NUMBERS.fullmatch(value):
                yield Violation((*field.path, index, "value"), value, _SYSCTL_WHY, "write numbers")


def _selinux(field: Field) -> Iterator[Violation]:
    options = dict_of(field.value)
    kind = options.get("type")
    if not _may_be(kind, checks.SELINUX_DOMAINS):
        yield Violation((*field.path, "type"), kind, checks.SELINUX_TYPES.why)
    for key in ("user", "role"):
        if options.get(key) and not isinstance(options[key], Hole):
            yield Violation((*field.path, key), options[key], checks.SELINUX_USERS.why)


def _may_be(value: object, allowed: frozenset[str]) -> bool:
    """Whether a value is allowed; what is unknown is judged elsewhere."""
    return value is None or isinstance(value, Hole) or one_of(value, allowed)


def _annotations(document: Document) -> Iterator[Violation]:
    for key, fields in document.keys.items():
        if key.startswith(checks.PROFILE_ANNOTATIONS.fields):
            for field in fields:
                value = text_of(field.value)
                if value and not value.startswith(checks.CONFINED):
                    yield Violation(field.path, value, checks.PROFILE_ANNOTATIONS.why)


RULE = Rule(
    name="host-access",
    title="No pod shares the node's namespaces, ports or kernel settings, or leaves its confinement.",
    why="it reaches the node or its neighbours past the container's walls",
    remedy=checks.HOST_NAMESPACES.remedy,
    reads=frozenset(
        {
            "hostPID",
            "hostIPC",
            "hostNetwork",
            "hostProcess",
            "hostPort",
            "httpGet.host",
            "tcpSocket.host",
            "capabilities",
            "capabilities.add",
            "procMount",
            "seccompProfile",
            "seccompProfile.type",
            "appArmorProfile",
            "appArmorProfile.type",
            "seLinuxOptions",
            "seLinuxOptions.type",
            "seLinuxOptions.user",
            "seLinuxOptions.role",
            "sysctls",
            "sysctls.name",
            "sysctls.value",
            "windowsOptions",
        }
    ),
    check=_check,
)
