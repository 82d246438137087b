"""No privileged container, in whatever becomes a pod."""

from collections.abc import Iterator

from pod_checks import table
from policy import interpreter
from policy.findings import Violation
from policy.reading import Hole, Path
from policy.rule import Rule
from policy.stack_platform import StackFacts
from policy.workloads import Document


def in_security_context(path: Path) -> bool:
    """Whether a field stands directly in a security context of any name, such as KAI's reservation ones."""
    return len(path) > 1 and str(path[-2]).casefold().endswith("securitycontext")


def _check(document: Document, stack: StackFacts) -> Iterator[Violation]:
    yield from interpreter.violations(document, "privileged", stack)
    for field in document.fields("privileged"):
        # Where Kubernetes reads it, everything but false is wrong; elsewhere (Helm values) it may be a section.
        set_here = field.value is not None and field.value is not False and not isinstance(field.value, Hole)
        if set_here and in_security_context(field.path):
            yield Violation(field.path, field.value)


RULE = Rule(
    name="privileged",
    title="No container is privileged, except KAI's reservation container on Tegra nodes.",
    why=table.BY_NAME["privileged"].why,
    remedy=table.BY_NAME["privileged"].remedy,
    reads=interpreter.fields_read("privileged")
    | frozenset(
        {
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
