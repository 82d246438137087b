"""Judges one resource: rules, unknown values, the platform's grants, exceptions."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from policy import grants
from policy.exceptions import Exemption, exemptions
from policy.findings import Finding, Violation, finding
from policy.reading import Hole, Path
from policy.rule import Rule
from policy.stack_platform import StackFacts
from policy.workloads import Document, documents

_UNKNOWN_WHY = "the value of this security field is not known before the update, so the rule can't judge it: {why}"
_UNKNOWN_REMEDY = (
    "make it known in the preview: write the value itself, or take it from the stack's configuration, instead of the "
    "output of another resource"
)
_NOT_READ_WHY = "nothing below this point was judged"
_NOT_READ_REMEDY = "write it flatter or smaller; no Kubernetes object needs this"


@dataclass(frozen=True)
class Judgement:
    """What came out.

    Attributes:
        findings: in the order of rules.
        used: exceptions that covered something.
        present: exceptions whose object is in the resource.
    """

    findings: tuple[Finding, ...]
    used: frozenset[Exemption]
    present: frozenset[Exemption]


def judge(token: str, name: str, props: object, stack: StackFacts, rules: Iterable[Rule]) -> Judgement:
    """Judge a resource.

    Args:
        token: its type.
        name: its logical name, for messages about objects without one.
        props: its inputs, as the engine's proxies or plain.
        stack: the stack.
        rules: which rules to apply.
    """
    accepted = exemptions(stack)
    found: dict[tuple[str, Path], Finding] = {}
    used: set[Exemption] = set()
    parts = documents(token, props)
    for rule in rules:
        for document in parts:
            for violation in _violations(rule, document, stack):
                covering = [each for each in accepted if each.covers(document, rule.name, violation.path)]
                used.update(covering)
                if not covering and not grants.allows(document, rule.name, violation.path, stack):
                    found.setdefault((rule.name, violation.path), _finding(rule, document, token, name, violation))
    present = frozenset(each for each in accepted for document in parts if each.is_about(document))
    return Judgement(tuple(found.values()), frozenset(used), present)


def _violations(rule: Rule, document: Document, stack: StackFacts) -> Iterator[Violation]:
    for path, hole in document.holes:
        match hole:
            case Hole.UNKNOWN:
                if rule.reads_path(document, path):
                    yield Violation(path, hole, _UNKNOWN_WHY.format(why=rule.why), _UNKNOWN_REMEDY)
            case Hole.TOO_DEEP | Hole.TOO_LARGE:
                yield Violation(path, hole, _NOT_READ_WHY, _NOT_READ_REMEDY)
    for violation in rule.check(document, stack):
        if violation.found is Hole.UNKNOWN:
            yield Violation(violation.path, Hole.UNKNOWN, _UNKNOWN_WHY.format(why=rule.why), _UNKNOWN_REMEDY)
        else:
            yield replace(violation, why=violation.why or rule.why, remedy=violation.remedy or rule.remedy)


def _finding(rule: Rule, document: Document, token: str, name: str, violation: Violation) -> Finding:
    told = document if document.outer is None else document.outer
    kind = "/".join(sorted(told.kinds)) or token
    own = told.name or name
    return finding(rule.name, kind, f"{told.namespace}/{own}" if told.namespace else own, violation)
