"""No namespaces, ports, kernel settings or weakened confinement of the node: Pod Security's baseline."""

import re
from collections.abc import Iterator

from pod_checks import table
from policy import interpreter
from policy.findings import Violation
from policy.reading import dict_of, list_of
from policy.rule import Rule
from policy.stack_platform import StackFacts
from policy.workloads import Document

_NAME = "host-access"
_NUMBERS = re.compile(r"[0-9 \t,-]*")
_SYSCTL_WHY = "a runtime that joins settings to one text takes what follows as another one (CVE-2022-0811)"


def _check(document: Document, stack: StackFacts) -> Iterator[Violation]:
    yield from interpreter.violations(document, _NAME, stack)
    for field in document.fields("sysctls"):
        for index, sysctl in enumerate(list_of(field.value)):
            value = dict_of(sysctl).get("value")
            if isinstance(value, str) and not _NUMBERS.fullmatch(value):
                yield Violation((*field.path, index, "value"), value, _SYSCTL_WHY, "write numbers")


RULE = Rule(
    name=_NAME,
    title="No pod shares the node's namespaces, ports or kernel settings, or leaves its confinement.",
    why="it reaches the node or its neighbours past the container's walls",
    remedy=table.BY_NAME["host_namespaces"].remedy,
    reads=interpreter.fields_read(_NAME)
    | {"capabilities", "seccompProfile", "appArmorProfile", "seLinuxOptions", "windowsOptions"}
    | {"sysctls", "sysctls.value"},
    check=_check,
)
