"""No privileged container, in whatever becomes a pod."""

from collections.abc import Iterator

from policy import checks
from policy.findings import Violation
from policy.reading import Hole, Path
from policy.rule import Rule
from policy.stack_platform import StackFacts
from policy.workloads import Document

_TRUE = frozenset({"true", "yes", "on", "1", "y", "t"})


def is_true(value: object) -> bool:
    """Whether a value means true to a template or a lenient reader."""
    return value is True or value == 1 or (isinstance(value, str) and value.casefold() in _TRUE)


def in_security_context(path: Path) -> bool:
    """Whether a field stands directly in a security context of any name, such as KAI's reservation ones."""
    return len(path) > 1 and str(path[-2]).casefold().endswith("securitycontext")


def _check(document: Document, _: StackFacts) -> Iterator[Violation]:
    for field in document.fields("privileged"):
        # Where Kubernetes reads it, everything but false is wrong; elsewhere (Helm values) it may be a section.
        set_here = field.value is not None and field.value is not False and not isinstance(field.value, Hole)
        if is_true(field.value) or (set_here and in_security_context(field.path)):
            yield Violation(field.path, field.value)


RULE = Rule(
    name="privileged",
    title="No container is privileged, except KAI's reservation container on Tegra nodes.",
    why=checks.PRIVILEGED.why,
    remedy=checks.PRIVILEGED.remedy,
    reads=frozenset(
        {
            "privileged",
            "securityContext",
            "containerSecurityContext",
            "podSecurityContext",
            "containers",
            "initContainers",
            "ephemeralContainers",
            "spec",
            "spec.template",
            "spec.jobTemplate",
            "jobTemplate.spec.template",
            "template.spec",
            "podTemplate",
            "=items",
        }
    ),
    check=_check,
)
