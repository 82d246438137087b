"""What the checks say of the facts: causes, what follows from them, what is suppressed, what was not checked."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from cluster.access.lists import Unseen
from operations.doctor.check import Category, Check, Finding, Severity
from operations.doctor.checks import CHECKS
from operations.doctor.facts import Facts


@dataclass(frozen=True)
class Choice:
    """Which checks run, and what of them is reported.

    Attributes:
        only: categories that are looked at; empty for all.
        skip: categories that are not.
        suppress: codes that are not reported.
    """

    only: frozenset[Category] = frozenset()
    skip: frozenset[Category] = frozenset()
    suppress: frozenset[str] = frozenset()

    def runs(self, check: Check) -> bool:
        """Whether a check runs."""
        return (not self.only or check.category in self.only) and check.category not in self.skip


@dataclass(frozen=True)
class Judged:
    """A finding with its check.

    Attributes:
        names: what its remedy names of the cluster.
    """

    check: Check
    finding: Finding
    names: Mapping[str, str]

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return self.check.remedy_of(self.finding, self.names)


@dataclass(frozen=True)
class Problem:
    """A cause, and the findings that follow from it."""

    cause: Judged
    symptoms: tuple[Judged, ...] = ()

    @property
    def all(self) -> tuple[Judged, ...]:
        """The cause first."""
        return (self.cause, *self.symptoms)


@dataclass(frozen=True)
class NotChecked:
    """A check that could not be done."""

    check: Check
    unseen: tuple[Unseen, ...]


@dataclass(frozen=True)
class Diagnosis:
    """Everything that the checks say.

    Attributes:
        problems: errors first, else in the order of causes.
        suppressed: problems that nobody wants to see.
        not_checked: checks that needed what could not be read.
        checked: how many checks were done.
    """

    problems: tuple[Problem, ...] = ()
    suppressed: tuple[Problem, ...] = ()
    not_checked: tuple[NotChecked, ...] = ()
    checked: int = 0

    @cached_property
    def unseen(self) -> Mapping[Unseen, list[str]]:
        """What could not be read, with the codes of the checks that needed it."""
        codes: dict[Unseen, list[str]] = defaultdict(list)
        for gap in self.not_checked:
            for unseen in gap.unseen:
                codes[unseen].append(gap.check.code)
        return codes

    def count(self, severity: Severity) -> int:
        """How many problems of a severity there are; what follows from them is not counted."""
        return sum(problem.cause.check.severity is severity for problem in self.problems)


def diagnose(facts: Facts, choice: Choice | None = None, checks: Sequence[Check] = CHECKS) -> Diagnosis:
    """Judge the facts.

    Args:
        facts: the cluster.
        choice: what of it is asked for.
        checks: in the order of causes.
    """
    choice = choice or Choice()
    # Hosts are asked where that is said; else their checks are no less done than what nobody asked for.
    applicable = [check for check in checks if check.category is not Category.HOSTS or facts.hosts is not None]
    chosen = [check for check in applicable if choice.runs(check)]
    blind = [NotChecked(check, unseen) for check in chosen if (unseen := _unseen(check, facts))]
    seeing = [check for check in chosen if not _unseen(check, facts)]
    results = [Judged(check, finding, facts.names) for check in seeing for finding in check.judge(facts)]
    problems = sorted(_problems(results), key=lambda problem: problem.cause.check.severity is not Severity.ERROR)
    suppressed = [problem for problem in problems if _is_suppressed(problem, choice.suppress)]
    return Diagnosis(
        problems=tuple(
            Problem(
                problem.cause,
                tuple(symptom for symptom in problem.symptoms if not _one_suppressed(symptom, choice.suppress)),
            )
            for problem in problems
            if not _is_suppressed(problem, choice.suppress)
        ),
        suppressed=tuple(suppressed),
        not_checked=tuple(blind),
        checked=len(seeing),
    )


def _unseen(check: Check, facts: Facts) -> tuple[Unseen, ...]:
    return tuple(facts.unseen[source] for source in sorted(check.needs) if source in facts.unseen)


def _is_suppressed(problem: Problem, codes: Collection[str]) -> bool:
    return _one_suppressed(problem.cause, codes)


def _one_suppressed(judged: Judged, codes: Collection[str]) -> bool:
    return judged.check.code in codes or judged.finding.subject.suppresses(judged.check.code)


@dataclass
class _Causes:
    """What explains findings of one code.

    Attributes:
        anywhere: the first that concerns the whole cluster.
        by_name: the first by what it reaches.
    """

    anywhere: int | None
    by_name: dict[str, int]

    def of(self, finding: Finding, index: int) -> int | None:
        """The first cause of a finding that is not the finding itself."""
        causes = [] if self.anywhere is None else [self.anywhere]
        causes += [self.by_name[name] for name in finding.about if name in self.by_name]
        return min((cause for cause in causes if cause != index), default=None)


def _problems(results: Sequence[Judged]) -> Iterator[Problem]:
    causes: dict[str, _Causes] = defaultdict(lambda: _Causes(None, {}))
    for index, result in enumerate(results):
        for code in result.check.explains:
            of_code = causes[code]
            if result.finding.reach is None:
                of_code.anywhere = index if of_code.anywhere is None else of_code.anywhere
            else:
                for name in result.finding.reach:
                    of_code.by_name.setdefault(name, index)
    parents = {
        index: parent
        for index, result in enumerate(results)
        if result.check.code in causes and (parent := causes[result.check.code].of(result.finding, index)) is not None
    }
    symptoms: dict[int, list[Judged]] = defaultdict(list)
    for index, result in enumerate(results):
        if index in parents:
            symptoms[_root(index, parents)].append(result)
    for index, result in enumerate(results):
        if index not in parents:
            yield Problem(result, tuple(symptoms[index]))


def _root(index: int, parents: Mapping[int, int]) -> int:
    while index in parents:
        index = parents[index]
    return index


def codes(problems: Iterable[Problem]) -> tuple[str, ...]:
    """The codes of problems' causes, each once."""
    return tuple(dict.fromkeys(problem.cause.check.code for problem in problems))
