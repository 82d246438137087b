"""What `doctor` says of the stack: components that run, GPUs that are advertised, labels that are right."""

from operations.doctor.check import Severity
from operations.doctor.diagnosis import Diagnosis, Problem
from operations.verify.steps import Outcome, Step

NAME = "components"


def verify(diagnosis: Diagnosis) -> Step:
    """One step for everything that is looked at and not tried out."""
    problems = tuple(map(_line, diagnosis.problems))
    # A check may find many problems.
    failed, warned = (
        {problem.cause.check.code for problem in diagnosis.problems if problem.cause.check.severity is severity}
        for severity in (Severity.ERROR, Severity.WARNING)
    )
    passed = diagnosis.checked - len(failed | warned)
    if failed:
        says = f"{len(failed)} of {diagnosis.checked} checks failed. Evidence and remedies: kai-anywhere doctor."
        return Step(name=NAME, outcome=Outcome.FAILED, says=says, evidence=problems)
    if diagnosis.not_checked:
        says = f"{len(diagnosis.not_checked)} checks need more than this user may read; {passed} passed."
        unseen = sorted({gap.why for gap in diagnosis.unseen})
        return Step(name=NAME, outcome=Outcome.SKIPPED, says=says, evidence=(*problems, *unseen))
    if not diagnosis.checked:
        says = "no check was done: --only and --skip leave none. Hosts are asked by `kai-anywhere doctor --hosts`."
        return Step(name=NAME, outcome=Outcome.SKIPPED, says=says)
    warn = f", {len(warned)} warned" if warned else ""
    return Step(name=NAME, outcome=Outcome.HELD, says=f"{passed} checks of doctor passed{warn}.", evidence=problems)


def _line(problem: Problem) -> str:
    check, finding = problem.cause.check, problem.cause.finding
    return f"{check.severity} {check.code}: {finding.what}"
