"""What a rule is: metadata and one pure function."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from policy.findings import Violation
from policy.reading import Path, names
from policy.stack_platform import StackFacts
from policy.workloads import Document


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        name: in kebab case.
        title: what it demands, one sentence.
        why: what would be possible without it.
        remedy: what to do instead.
        reads: security fields: an unknown value there is a finding. Each is a key, or the last keys of a path joined
            by dots, with an optional `Kind:` before it, and `=` where it is the whole path; compared without case.
        check: everything that the rule forbids in a document. An unknown value that `reads` names needs no care.
        programs: those of `reads` that are images, commands and manifests: unknown, they are an advisory.
    """

    name: str
    title: str
    why: str
    remedy: str
    reads: frozenset[str]
    check: Callable[[Document, StackFacts], Iterator[Violation]]
    programs: frozenset[str] = frozenset()

    def reads_path(self, document: Document, path: Path) -> bool:
        """Whether the value at a path is one of the security fields."""
        return _is_in(self.reads | self.programs, document, path)

    def is_program(self, document: Document, path: Path) -> bool:
        """Whether the value at a path is an image, a command or a manifest."""
        return _is_in(self.programs, document, path)


def _is_in(patterns: frozenset[str], document: Document, path: Path) -> bool:
    dotted = "." + ".".join(names(path[len(document.path) :]))
    return any(_matches(pattern, dotted, document) for pattern in patterns)


def _matches(pattern: str, dotted: str, document: Document) -> bool:
    kind, _, keys = pattern.rpartition(":")
    keys = keys.casefold()
    whole = keys.startswith("=")
    same = dotted == f".{keys[1:]}" if whole else dotted.endswith(f".{keys}")
    return same and (not kind or document.is_kind(kind))
