"""What `kai-anywhere doctor --json` prints: version 1. docs/doctor.schema.json is made of these models."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from operations.doctor.check import Severity
from operations.doctor.diagnosis import Diagnosis, Judged, Problem
from operations.doctor.facts import Facts
from operations.doctor.pod import PodVerdict
from operations.exit_status import ExitStatus

PAGE = "docs/troubleshooting.md"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ReportedObject(_Model):
    """An object of the cluster."""

    kind: str
    namespace: str = Field(description="Empty where it has none.")
    name: str


class ReportedFinding(_Model):
    """One object that is not as it must be."""

    code: str = Field(description="Stable: KA and four digits.")
    severity: Literal["error", "warning"]
    category: str
    title: str
    object: ReportedObject
    what: str = Field(description="What was seen, in a sentence.")
    evidence: list[str] = Field(description="What the cluster says.")
    cause: str
    remedy: str
    documentation: str = Field(description="Where more stands, in the repository.")


class ReportedProblem(ReportedFinding):
    """A cause, and what follows from it."""

    symptoms: list[ReportedFinding] = Field(description="They go when the cause goes.")


class ReportedSuppression(_Model):
    """A finding that nobody wants to see."""

    code: str
    object: ReportedObject


class ReportedGap(_Model):
    """A check that could not be done."""

    code: str
    title: str
    unseen: dict[str, str] = Field(description="What could not be read, and the API server's answer.")


class Report(_Model):
    """Everything that the checks say of a cluster."""

    version: Literal[1] = 1
    server: str = Field(description="Empty where hosts were asked without their cluster.")
    context: str = Field(description="Empty as well then.")
    taken: datetime
    status: int = Field(description="The command's exit status.")
    errors: int
    warnings: int
    checked: int = Field(description="How many checks were done.")
    problems: list[ReportedProblem]
    suppressed: list[ReportedSuppression]
    not_checked: list[ReportedGap]


class PodReport(_Model):
    """Why one pod is as it is."""

    version: Literal[1] = 1
    server: str
    context: str
    taken: datetime
    status: int = Field(description="The command's exit status.")
    namespace: str
    name: str
    phase: str
    runs: bool
    sentence: str
    evidence: list[str]
    code: str | None = Field(description="Of the check that found the cause.")
    remedy: str
    not_checked: list[ReportedGap]


def exit_status(diagnosis: Diagnosis, fail_on: Severity) -> ExitStatus:
    """What the command's exit status says.

    Args:
        diagnosis: what the checks say.
        fail_on: from which severity on a problem is a failure.
    """
    failing = {Severity.ERROR} if fail_on is Severity.ERROR else set(Severity)
    if any(diagnosis.count(severity) for severity in failing):
        return ExitStatus.FAILED
    if diagnosis.count(Severity.WARNING) or diagnosis.not_checked:
        return ExitStatus.WARNINGS
    return ExitStatus.WELL


def report(facts: Facts, diagnosis: Diagnosis, *, server: str, context: str, status: ExitStatus) -> Report:
    """The report of a diagnosis."""
    return Report(
        server=server,
        context=context,
        taken=facts.snapshot.taken,
        status=status,
        errors=diagnosis.count(Severity.ERROR),
        warnings=diagnosis.count(Severity.WARNING),
        checked=diagnosis.checked,
        problems=[_problem(problem) for problem in diagnosis.problems],
        suppressed=[
            ReportedSuppression(code=problem.cause.check.code, object=_object(problem.cause))
            for problem in diagnosis.suppressed
        ],
        not_checked=_gaps(diagnosis),
    )


def pod_report(  # noqa: PLR0913 - what a report is made of
    facts: Facts, diagnosis: Diagnosis, verdict: PodVerdict, *, server: str, context: str, status: ExitStatus
) -> PodReport:
    """The report of one pod."""
    return PodReport(
        server=server,
        context=context,
        taken=facts.snapshot.taken,
        status=status,
        namespace=verdict.pod.namespace,
        name=verdict.pod.name,
        phase=verdict.pod.phase,
        runs=verdict.runs,
        sentence=verdict.sentence,
        evidence=list(verdict.evidence),
        code=verdict.code,
        remedy=verdict.remedy,
        not_checked=_gaps(diagnosis),
    )


def _gaps(diagnosis: Diagnosis) -> list[ReportedGap]:
    return [
        ReportedGap(
            code=gap.check.code,
            title=gap.check.title,
            unseen={unseen.what: unseen.why for unseen in gap.unseen},
        )
        for gap in diagnosis.not_checked
    ]


def _problem(problem: Problem) -> ReportedProblem:
    return ReportedProblem(
        **_finding(problem.cause).model_dump(), symptoms=[_finding(symptom) for symptom in problem.symptoms]
    )


def _finding(judged: Judged) -> ReportedFinding:
    check, finding = judged.check, judged.finding
    return ReportedFinding(
        code=check.code,
        severity=check.severity.value,
        category=check.category.value,
        title=check.title,
        object=_object(judged),
        what=finding.what,
        evidence=list(finding.evidence),
        cause=check.cause,
        remedy=judged.remedy,
        documentation=f"{PAGE}#{check.code.lower()}",
    )


def _object(judged: Judged) -> ReportedObject:
    subject = judged.finding.subject
    return ReportedObject(kind=subject.kind, namespace=subject.namespace, name=subject.name)
