"""Judges one resource: rules, unknown values, the platform's grants, exceptions."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from policy import grants
from policy.exceptions import Exemption, exemptions
from policy.findings import HIDDEN, Finding, Told, Violation, finding
from policy.own_exceptions import OwnException
from policy.reading import TEXT, Hole, Path, dict_of, list_of
from policy.rule import Rule
from policy.stack_platform import StackFacts
from policy.workloads import Document, documents

_UNKNOWN_WHY = "the value of this security field is not known before the update, so the rule can't judge it: {why}"
_UNKNOWN_REMEDY = (
    "make it known in the preview: write the value itself, or take it from the stack's configuration, instead of the "
    "output of another resource"
)
_PROGRAM_WHY = "what runs is not known before the update, so no rule can judge it: {why}"
_ELSEWHERE_WHY = "what the file or address says becomes part of the chart, and no rule can judge it"
_ELSEWHERE_REMEDY = (
    "put the file into the program's folder and run the pack there, or write the values into the program"
)
_NOT_READ_WHY = "nothing below this point was judged"
_NOT_READ_REMEDY = "write it flatter or smaller; no Kubernetes object needs this"


@dataclass(frozen=True)
class Judgement:
    """What came out.

    Attributes:
        findings: in the order of rules.
        used: exceptions that covered something, the user's own among them.
        present: exceptions whose object is in the resource.
    """

    findings: tuple[Finding, ...]
    used: frozenset[Exemption | OwnException]
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
    findings: dict[tuple[str, Path], Finding] = {}
    used: set[Exemption | OwnException] = set()
    parts = documents(token, props)
    for rule in rules:
        for document in parts:
            for violation in _violations(rule, document, stack):
                covering = [
                    exception for exception in accepted if exception.covers(document, rule.name, violation.path)
                ]
                used.update(covering)
                if covering or grants.allows(document, rule.name, violation.path, stack):
                    continue
                candidate = _finding(rule, document, token, name, violation)
                own = [exception for exception in stack.accepted if _accepts(exception, candidate, document, violation)]
                used.update(own)
                if not own:
                    findings.setdefault((rule.name, violation.path), candidate)
    present = frozenset(exception for exception in accepted for document in parts if exception.is_about(document))
    return Judgement(tuple(findings.values()), frozenset(used), present)


def _accepts(exception: OwnException, candidate: Finding, document: Document, violation: Violation) -> bool:
    shown = violation.found.text if isinstance(violation.found, Told) else violation.found
    values = [_value_at(document, violation.path), *([] if shown == HIDDEN else [shown])]
    return exception.covers(candidate.rule, candidate.kind, candidate.name, candidate.path, values)


def _value_at(document: Document, path: Path) -> object:
    """What stands at a place that a rule found; nothing where there is no such place."""
    path = path[:-1] if path[-1:] == (TEXT,) else path
    value: object = document.root
    for step in path[len(document.path) :]:
        items = list_of(value)
        value = (items[step] if step < len(items) else None) if isinstance(step, int) else dict_of(value).get(step)
    return value


def _violations(rule: Rule, document: Document, stack: StackFacts) -> Iterator[Violation]:
    for path, hole in document.holes:
        match hole:
            case Hole.UNKNOWN:
                if rule.is_program(document, path):
                    yield Violation(path, hole, _PROGRAM_WHY.format(why=rule.why), _UNKNOWN_REMEDY)
                elif rule.reads_path(document, path):
                    yield Violation(path, hole, _UNKNOWN_WHY.format(why=rule.why), _UNKNOWN_REMEDY)
            case Hole.ELSEWHERE:
                if rule.reads_path(document, path):
                    yield Violation(path, hole, _ELSEWHERE_WHY, _ELSEWHERE_REMEDY)
            case Hole.TOO_DEEP | Hole.TOO_LARGE:
                yield Violation(path, hole, _NOT_READ_WHY, _NOT_READ_REMEDY)
    for violation in rule.check(document, stack):
        if violation.found is Hole.UNKNOWN:
            yield Violation(violation.path, Hole.UNKNOWN, _UNKNOWN_WHY.format(why=rule.why), _UNKNOWN_REMEDY)
        else:
            yield replace(violation, why=violation.why or rule.why, remedy=violation.remedy or rule.remedy)


def _finding(rule: Rule, document: Document, token: str, name: str, violation: Violation) -> Finding:
    subject = document if document.outer is None else document.outer
    kind = "/".join(sorted(subject.kinds)) or token
    own = subject.name or name
    full_name = f"{subject.namespace}/{own}" if subject.namespace else own
    unknown = violation.found is Hole.UNKNOWN and rule.is_program(document, violation.path)
    return replace(finding(rule.name, kind, full_name, violation), unknown_program=unknown)
