"""A diagnosis as a person reads it."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from manifests.wording import first_of
from operations.doctor.check import Severity
from operations.doctor.diagnosis import Diagnosis, Judged, Problem
from operations.doctor.facts import Facts
from operations.doctor.pod import PodVerdict
from operations.doctor.report import PAGE
from operations.status.words import clean

_FINDINGS, _EVIDENCE, _NAMES, _REMEDIES = 5, 6, 4, 3
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow"}


def render(console: Console, diagnosis: Diagnosis, *, where: str, there: Callable[[str], str] = str) -> None:
    """Print a diagnosis: problems, what could not be seen, and one line that sums it up.

    Args:
        console: where.
        diagnosis: what the checks say.
        where: what was looked at, in words.
        there: has the commands of a remedy be for that.
    """
    for _, group in groupby(diagnosis.problems, key=lambda problem: problem.cause.check.code):
        _problem(console, list(group), there)
        console.print()
    _gaps(console, diagnosis)
    console.print(_summary(diagnosis, where), soft_wrap=True)


def render_pod(console: Console, verdict: PodVerdict, facts: Facts, *, there: Callable[[str], str] = str) -> None:
    """Print why a pod is as it is, and what could not be looked at for it; arguments as of `render`."""
    console.print(Text(clean(verdict.sentence)), soft_wrap=True)
    for line in verdict.evidence:
        _indented(console, Text(clean(line), style="dim"), 2)
    if verdict.remedy:
        _labelled(console, "Do", there(verdict.remedy))
    if verdict.code:
        _labelled(console, "More", f"{PAGE}#{verdict.code.lower()}")
    if facts.unseen:
        unseen = ", ".join(
            f"{gap.what} (but for namespace {gap.but})" if gap.but else gap.what for gap in facts.unseen.values()
        )
        _labelled(console, "Not seen", f"{unseen}; --json has the API server's answers.")


def _problem(console: Console, problems: Sequence[Problem], there: Callable[[str], str]) -> None:
    first = problems[0].cause
    severity = first.check.severity
    heading = Text.assemble((severity.value, _STYLES[severity]), f" {first.check.code} {first.check.title}")
    console.print(heading, soft_wrap=True)
    for problem in problems[:_FINDINGS]:
        _indented(console, Text(clean(problem.cause.finding.what)), 2)
        for line in problem.cause.finding.evidence[:_EVIDENCE]:
            _indented(console, Text(clean(line), style="dim"), 4)
    if len(problems) > _FINDINGS:
        _indented(console, Text(f"and {len(problems) - _FINDINGS} more: --json has all of them"), 2)
    _labelled(console, "Cause", first.check.cause)
    remedies = list(dict.fromkeys(problem.cause.remedy for problem in problems[:_FINDINGS]))
    for remedy in remedies[: _REMEDIES if len(problems) <= _FINDINGS else 1]:
        _labelled(console, "Do", there(remedy))
    for line in _symptoms([symptom for problem in problems for symptom in problem.symptoms]):
        _labelled(console, "Hence", line)
    _labelled(console, "More", f"{PAGE}#{first.check.code.lower()}")


def _symptoms(symptoms: Sequence[Judged]) -> Iterator[str]:
    by_code: dict[str, list[Judged]] = {}
    for symptom in symptoms:
        by_code.setdefault(symptom.check.code, []).append(symptom)
    for code, group in by_code.items():
        names = [str(symptom.finding.subject) for symptom in group]
        yield f"{code} {group[0].check.title}: {first_of(names, _NAMES)}"


def _gaps(console: Console, diagnosis: Diagnosis) -> None:
    for unseen, codes in diagnosis.unseen.items():
        console.print(Text(clean(f"not seen: {unseen.what}. {unseen.why}")), soft_wrap=True)
        _labelled(console, "Not checked", ", ".join(codes))
    if diagnosis.unseen:
        console.print()


def _summary(diagnosis: Diagnosis, where: str) -> Text:
    errors, warnings = diagnosis.count(Severity.ERROR), diagnosis.count(Severity.WARNING)
    outcome = f"{_count(errors, 'error')}, {_count(warnings, 'warning')}"
    if not errors + warnings:
        outcome = "Nothing is wrong in what could be looked at" if diagnosis.not_checked else "Nothing is wrong"
    line = f"{outcome} in {where}: {_count(diagnosis.checked, 'check')} done"
    if diagnosis.not_checked:
        line += f", {len(diagnosis.not_checked)} not"
    if diagnosis.suppressed:
        line += f"; {_count(len(diagnosis.suppressed), 'finding')} suppressed"
    return Text(f"{line}.")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _labelled(console: Console, label: str, text: str) -> None:
    _indented(console, Text.assemble((f"{label}: ", "bold"), clean(text.replace("`", ""))), 2)


def _indented(console: Console, text: Text, columns: int) -> None:
    """Wrapped on a terminal; elsewhere a line stays a line, for programs that read it."""
    if console.is_terminal:
        console.print(Padding(text, (0, 0, 0, columns)))
    else:
        console.print(Text(" " * columns) + text, soft_wrap=True)
