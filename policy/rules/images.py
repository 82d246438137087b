"""Every image names what is run: a tag other than latest, or a digest."""

from collections.abc import Iterator

from pod_checks import table
from policy import interpreter
from policy.findings import Violation
from policy.rule import Rule
from policy.stack_platform import StackFacts
from policy.workloads import Document


def _check(document: Document, stack: StackFacts) -> Iterator[Violation]:
    yield from interpreter.violations(document, "images", stack)
    for field in document.fields("tag"):
        # How charts take an image apart.
        if field.value == "latest" and "repository" in field.holder:
            yield Violation(field.path, field.value)


RULE = Rule(
    name="images",
    title="Every image has a tag other than latest, or a digest.",
    why=table.BY_NAME["images"].why,
    remedy=table.BY_NAME["images"].remedy,
    reads=frozenset(),
    check=_check,
    programs=frozenset(
        {"containers.image", "initContainers.image", "ephemeralContainers.image", "volumes.image", "image.reference"}
    ),
)
