"""`review`, `drift` and `post`: what the workflows run, and anybody can."""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import simulator
import toolchain
from cluster.errors import ClusterError
from cluster.ownership.deployed_state import STASH
from config.stack import StackConfigError
from operations import engine
from operations.engine_events import Record, failed
from operations.errors import OperationError
from operations.new_files import write_whole
from operations.options import SimulatorOnly, Stack
from operations.pull_request import report
from operations.pull_request import review as previews
from operations.pull_request.comment import (
    Occasion,
    drift_issue,
    marker,
    preview_comment,
    retired_comment,
    skipped_comment,
)
from operations.pull_request.concern import concerns, place_of
from operations.pull_request.github import GitHub, GitHubError
from operations.pull_request.verified import Changes, Verified, posted_comment
from operations.redaction import Redactor, environment_secrets
from operations.stack_file import raw_settings, stack_names
from operations.target import ROOT, Target, open_target

Out = Annotated[Path, typer.Option("--out", help="The folder that gets the texts.")]
Folder = Annotated[str, typer.Option("--folder", help="Where the stacks' files are in the repository.")]
PullRequest = Annotated[int, typer.Option("--pull-request", min=1, help="Its number.")]
_RUN_URL = re.compile(r"https://[\w.:-]+(/[\w.-]+)*")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_NO_CHANGES_EXPECTED = 7
"""Exit status of `pulumi preview --expect-no-changes` where there are changes (3.259)."""

_REPORT = "preview.json"
_IN_STEP = "no-drift"
"""The file that says that a check ended and found nothing: an issue is closed for no other reason."""


def review(stack: Stack = "jetson", out: Out = Path("review"), *, on_simulator: SimulatorOnly = False) -> None:
    """Preview with the policy pack; write comment.md, and the report for the job that posts, whatever comes of it."""
    redactor = Redactor(environment_secrets(os.environ))
    _occasion(stack)
    for left_over in ("comment.md", _REPORT):
        (out / left_over).unlink(missing_ok=True)
    try:
        with open_target(stack, simulator_only=on_simulator) as target:
            _open_stack(target)
            status, record = previews.preview(target, out)
    except (
        OperationError,
        StackConfigError,
        ClusterError,
        simulator.SimulatorError,
        toolchain.ToolchainError,
    ) as error:
        # A reviewer learns of it where the plan would stand.
        report.write(out / _REPORT, stack, 1, [report.failure(str(error))], redactor)
        _write(out / "comment.md", preview_comment(failed(str(error)), _occasion(stack, 1), redactor))
        raise
    report.write(out / _REPORT, stack, status, previews.events(out), redactor)
    _write(out / "comment.md", preview_comment(record, _occasion(stack, status), redactor))
    if status == 0 and not record.packs:
        raise OperationError("The policy pack did not run, so nothing was judged. Is policy/run executable?")
    if status != 0:
        raise OperationError(f"pulumi preview failed (status {status}); the reason is above.")


def drift(stack: Stack = "jetson", out: Out = Path("review"), folder: Folder = "") -> None:
    """Compare the cluster with the program, and judge the state; where anything is wrong, write issue.md and fail."""
    redactor = Redactor(environment_secrets(os.environ))
    occasion = _occasion(stack, folder=folder)
    for left_over in ("issue.md", _IN_STEP):
        (out / left_over).unlink(missing_ok=True)
    # In a simulator that was only now made, everything would be missing.
    with open_target(stack, start=False) as target:
        _open_stack(target)
        status, record = previews.preview(target, out, refresh=True)
        judged = previews.analyze(target, out)
    if status == _NO_CHANGES_EXPECTED and only_forgets(record):
        status = 0
    if judged is not None:
        record = replace(record, errors=(*record.errors, judged))
        status = status or 1
    if status == 0:
        if target.settings.hosts_alone:
            typer.echo(f"The state of stack '{stack}' is as its settings say. Only `up` asks the hosts.")
        else:
            typer.echo(f"The {'simulator' if target.simulated else 'cluster'} is as stack '{stack}' says.")
        (out / _IN_STEP).touch()
        return
    _write(out / "issue.md", drift_issue(record, replace(occasion, status=status), redactor))
    if status == _NO_CHANGES_EXPECTED:
        raise OperationError(f"The cluster is not as stack '{stack}' says; {out / 'issue.md'} tells the differences.")
    raise OperationError(f"The check of stack '{stack}' failed (status {status}); the reason is above.")


def only_forgets(record: Record) -> bool:
    """Whether an `up` would only change what the stack remembers of objects that it adopted.

    The run that gives one back remembers it to its end, since it may be killed, and the next run forgets it.
    """
    changes = [*record.steps, *record.drifted]
    return record.complete and all(step.type == STASH and step.component == "KaiAnywhere" for step in changes)


def post(  # noqa: PLR0913 - all by name
    *,
    stack: Stack = "jetson",
    out: Out = Path("review"),
    pull_request: Annotated[int | None, typer.Option(min=1, help="Its number; without it, drift's issue.")] = None,
    head: Annotated[
        str, typer.Option(help="The pull request's commit that was previewed: nothing is posted of an older one.")
    ] = "",
    folder: Folder = "",
    skipped: Annotated[
        bool, typer.Option("--skipped", help="No credentials were there: say so where an older comment stands.")
    ] = False,
) -> None:
    """Write the comment on the pull request, or open, update or close the issue of drift; on GitHub, in a job."""
    github = _github()
    occasion = _occasion(stack, folder=folder)
    issue = marker("drift", stack, occasion.folder)
    try:
        if pull_request is not None and head and (current := github.head(pull_request)) != head:
            # The run of an older push, or one that was run again, would replace the comment of the newest.
            typer.echo(
                f"Nothing is posted for stack '{stack}': its preview is of commit {head}, and the newest of the pull "
                f"request is {current}. The run of that one writes the comment."
            )
        elif pull_request is not None and skipped:
            address = github.update_comment(pull_request, skipped_comment(occasion))
            typer.echo(address or f"Stack '{stack}' was skipped, and no comment of it is there.")
        elif pull_request is not None:
            typer.echo(github.put_comment(pull_request, _comment(github, pull_request, occasion, out)))
        elif (out / "issue.md").exists():
            body = _read(out / "issue.md", issue)
            typer.echo(github.put_issue(f"Drift: the cluster is not as stack {occasion.place} says", body))
        elif not (out / _IN_STEP).exists():
            raise OperationError(
                f"There is nothing to post in {out}: `kai-anywhere drift` did not come to its end. It said why."
            )
        else:
            typer.echo(github.close_issue(issue) or "No issue of drift is open.")
    except GitHubError as error:
        raise OperationError(str(error)) from error


def retire(pull_request: PullRequest, folder: Folder = "") -> None:
    """Say it in the comments of stacks that the pull request does not concern any more; on GitHub, in a job.

    What concerns a stack is decided here, by the base branch's code: the pull request's own could hide a stack.
    """
    github = _github()
    try:
        changes = github.changes(pull_request)
        if not changes.listed_all:
            typer.echo("GitHub did not list all changed files, so every comment stays.")
            return
        for stack, url, body in github.previews(pull_request, place_of(folder)):
            text = retired_comment(_occasion(stack, folder=folder))
            if body != text and not concerns(changes, stack, place_of(folder), stack_names(ROOT)):
                typer.echo(github.update(url, text))
    except GitHubError as error:
        raise OperationError(str(error)) from error


def _github() -> GitHub:
    repository, token = os.environ.get("GITHUB_REPOSITORY", ""), os.environ.get("GITHUB_TOKEN", "")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository) or not token:
        raise OperationError(
            "GITHUB_REPOSITORY (owner/name) and GITHUB_TOKEN must be set: this command runs in a job of GitHub Actions."
        )
    return GitHub(repository, token, api=os.environ.get("GITHUB_API_URL", "https://api.github.com"))


def _comment(github: GitHub, pull_request: int, occasion: Occasion, out: Path) -> str:
    """The comment, whatever the pull request's own code left: where that is nothing, an older comment must not stay."""
    stack = occasion.stack
    changes = github.changes(pull_request)
    read: report.Report | str
    try:
        read = report.read(out / _REPORT, stack)
    except report.ReportError as error:
        read = f"its report can't be used: {error}"
        verified = Verified(changes, None, "there is no plan")
    else:
        verified = _judged(changes, read, stack)
    return posted_comment(verified, read, occasion, Redactor(environment_secrets(os.environ)))


def _judged(changes: Changes, read: report.Report, stack: str) -> Verified:
    # It brings Pulumi's protocol, which other commands need not wait for.
    from operations.pull_request import base_pack  # noqa: PLC0415

    resources = read.resources()
    file = ROOT / f"Pulumi.{stack}.yaml"
    if not file.exists():
        why = f"the base branch has no stack `{stack}` yet, and so no settings that say what may have privilege"
        return Verified(changes, None, why)
    try:
        findings = base_pack.findings(resources, raw_settings(file), stack)
    except (base_pack.NotJudgedError, OperationError) as error:
        return Verified(changes, None, str(error))
    return Verified(changes, findings, resources=len(resources))


def _open_stack(target: Target) -> None:
    """A simulator's stack is made where it is missing; a real one is not, since a review changes nothing."""
    engine.check_context(target)
    if target.simulated:
        engine.select_stack(target)
    engine.bind_cluster(target)


def _occasion(stack: str, status: int = 0, *, folder: str = "") -> Occasion:
    """The run, as GitHub Actions tells it; what is not of the expected form is left out."""
    server, repository, run = (os.environ.get(f"GITHUB_{n}", "") for n in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    url, commit = f"{server}/{repository}/actions/runs/{run}", os.environ.get("GITHUB_SHA", "")
    return Occasion(
        stack,
        status,
        folder=place_of(folder),
        commit=commit if _COMMIT.fullmatch(commit) else "",
        log_url=url if run and _RUN_URL.fullmatch(url) else "",
    )


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, text)
    typer.echo(f"Wrote {file}")
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8") as page:
            page.write(text)


def _read(file: Path, expected: str) -> str:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise OperationError(f"There is no {file}: `python -m operations review` or `drift` writes it.") from error
    if text.split("\n", 1)[0] != expected:
        raise OperationError(f"{file} is not of this stack: it must begin with {expected}")
    return text
