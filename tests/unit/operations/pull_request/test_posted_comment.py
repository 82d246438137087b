"""The comment as it is posted: what the base branch found is its own, and the rest stays marked, whatever it says."""

import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from operations.__main__ import app
from operations.engine_events import Finding, parse_events
from operations.policy_check import PACK, Pack
from operations.pull_request import base_pack, report
from operations.pull_request.comment import LIMIT_BYTES, Occasion, marker
from operations.pull_request.verified import _KINDS, Changes, Verified, kind_of, posted_comment
from operations.redaction import HIDDEN, Redactor
from testbed.stacks import ROOT, STACK_FILES, jetson
from tests.support.github_server import HEAD, REPOSITORY, TOKEN, GitHubServer, running
from tests.unit.operations.pull_request.logs import diagnostic, finding, lines, step, summary
from tests.unit.operations.pull_request.test_comment import ATTACKS, assert_only_ours

POD = "kubernetes:core/v1:Pod"
PRIVILEGED = {
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {"containers": [{"name": "app", "image": "app:1", "securityContext": {"privileged": True}}]},
}
THEIRS = "### Told by the pull request's own code"
CHANGES = Changes(("docs/teams.md",), HEAD, listed_all=True)


def _report(*events: Mapping[str, Any], status: int = 0) -> report.Report:
    return report.Report(stack="jetson", status=status, events=tuple(parse_events(lines(*events))[0]))


def _posted(review: report.Report | str, verified: Verified | None = None) -> str:
    return posted_comment(verified or Verified(CHANGES, (), resources=1), review, Occasion("jetson", 0), Redactor())


def _parts(text: str) -> tuple[str, str]:
    own, theirs = text.split(THEIRS)
    return own, theirs


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("policy/exceptions.py", "Exceptions of the policy pack"),
        ("policy-exceptions.yaml", "Exceptions of the policy pack"),
        ("clusters/policy-exceptions.yaml", "Exceptions of the policy pack"),
        ("clusters/my-policy-exceptions.yaml", "Other files"),
        ("policy/rules/rbac.py", "The policy pack"),
        (".github/workflows/preview.yml", "Workflows, and what decides whether a change lands"),
        (".github/actions/setup/action.yml", "Workflows, and what decides whether a change lands"),
        (".ci/run", "Workflows, and what decides whether a change lands"),
        ("Makefile", "Workflows, and what decides whether a change lands"),
        ("requirements-dev.txt", "Pinned versions of programs, charts and libraries"),
        ("agents/admission/requirements.txt", "Pinned versions of programs, charts and libraries"),
        ("manifests/versions.py", "Pinned versions of programs, charts and libraries"),
        ("toolchain/pulumi/go.sum", "Pinned versions of programs, charts and libraries"),
        ("Pulumi.jetson.yaml", "Settings of stacks"),
        ("clusters/Pulumi.berlin.yaml", "Settings of stacks"),
        ("Pulumi.yaml", "The program"),
        ("clusters/Pulumi.yaml", "The program"),
        ("__main__.py", "The program"),
        ("clusters/__main__.py", "The program"),
        ("components/queues.py", "The program"),
        ("agents/host/steps.py", "What runs on hosts and in the cluster"),
        ("operations/pull_request/verified.py", "The commands, this comment's code among them"),
        ("docs/policy.md", "Tests and documentation"),
        ("sitecustomize.py", "Other files"),
        ("POLICY/judge.py", "Other files"),
    ],
)
def test_each_file_is_of_the_kind_that_a_reviewer_looks_for(path: str, kind: str) -> None:
    assert kind_of(path) == kind


def test_every_folder_with_code_has_a_kind() -> None:
    folders = {file.parent.relative_to(ROOT).parts[0] for file in ROOT.glob("*/**/__init__.py")} - {".venv", "review"}
    tracked = {folder for folder in folders if not folder.startswith(".")}
    assert {folder for folder in tracked if kind_of(f"{folder}/new.py") == "Other files"} == set()


def test_dangerous_files_come_first_and_stand_out() -> None:
    changes = Changes(("docs/a.md", "policy/judge.py", "strange.bin", "policy/exceptions.py"), HEAD, listed_all=True)
    own, _ = _parts(_posted(_report(summary()), Verified(changes, ())))
    exceptions, pack, other, docs = (
        own.index(line)
        for line in (
            "- **Exceptions of the policy pack** (1): `policy/exceptions.py`",
            "- **The policy pack** (1): `policy/judge.py`",
            "- Other files (1): `strange.bin`",
            "- Tests and documentation (1): `docs/a.md`",
        )
    )
    assert exceptions < pack < other < docs
    assert "did not list all" not in own


@pytest.mark.parametrize("name", ["\U0001f600" * 150, "ä" * 120, "a" * 120, "`" * 119 + "\U0001f600", "\n" * 200, "a"])
@pytest.mark.parametrize("listed_all", [True, False])
def test_long_names_of_files_hide_no_kind(name: str, *, listed_all: bool) -> None:
    kinds = {
        "policy/exceptions": "**Exceptions of the policy pack**",
        "policy/": "**The policy pack**",
        ".github/": "**Workflows, and what decides whether a change lands**",
        "toolchain/": "**Pinned versions of programs, charts and libraries**",
        "bases/": "**Settings of stacks**",
        "components/": "**The program**",
        "agents/": "**What runs on hosts and in the cluster**",
        "operations/": "**The commands, this comment's code among them**",
        "": "Other files",
        "docs/": "Tests and documentation",
    }
    paths = tuple(f"{folder}{number:03}{name}.yaml" for folder in kinds for number in range(45))
    assert len({kind_of(path) for path in paths}) == len(kinds) == len(_KINDS) + 1
    findings = tuple(Finding(message="x" * 500, policy="p", pack="p", level="mandatory") for _ in range(100))
    changes = Changes(paths, HEAD, listed_all=listed_all)
    own, _ = _parts(_posted(_report(summary()), Verified(changes, findings)))
    shown = own.split("#### Changed files")[1]
    assert len(shown.encode()) < 8_000
    assert "in the log of the run" not in shown
    assert ("GitHub did not list all" in shown) == (not listed_all)
    for title in kinds.values():
        [line] = [line for line in shown.splitlines() if line.startswith(f"- {title} (45): `")]
        assert re.search(r" and \d+ more$", line)


def test_names_of_one_kind_have_the_room_of_those_that_are_not_there() -> None:
    changes = Changes(tuple(f"docs/{number:02}{'a' * 100}" for number in range(45)), HEAD, listed_all=True)
    own, _ = _parts(_posted(_report(summary()), Verified(changes, ())))
    [line] = [line for line in own.splitlines() if line.startswith("- Tests and documentation (45)")]
    assert line.count("`docs/") == 40
    assert line.endswith(" and 5 more")


def test_a_list_of_files_that_is_not_whole_says_so() -> None:
    own, _ = _parts(_posted(_report(summary()), Verified(Changes(("a",), HEAD, listed_all=False), ())))
    assert "**GitHub did not list all changed files" in own


def test_what_the_branch_says_is_below_the_line_that_says_so() -> None:
    own, theirs = _parts(_posted(_report(finding("approved"), summary(create=7), status=1)))
    assert "_Nothing below was checked." in theirs
    assert "approved" in theirs
    for word in ("approved", "blocks", "The preview failed", "policy pack `"):
        assert word not in own


def test_steps_are_counted_here_whatever_the_branch_counts() -> None:
    events = (step("delete", "a", old={}), step("delete", "b", old={}), step("same", "c", new={}), summary(same=9))
    own, theirs = _parts(_posted(_report(*events)))
    assert "2 steps that change something, 1 resources of the program" in own
    assert "**2 to be deleted**" in theirs
    assert "nothing changes" not in theirs


def test_what_the_base_branchs_pack_finds_stands_in_its_own_part() -> None:
    findings = (Finding(message="privileged: true", policy="privilege", pack="p", level="mandatory", urn="u::web"),)
    own, theirs = _parts(_posted(_report(summary()), Verified(CHANGES, findings, resources=3)))
    assert "**The base branch's policy pack, with the stack's settings of the base branch, refuses 1 thing in" in own
    assert "- **blocks**: `privilege` on `web`" in own
    assert "blocks" not in theirs


def test_a_plan_that_was_not_judged_is_not_taken_for_a_good_one() -> None:
    own, _ = _parts(_posted(_report(summary()), Verified(CHANGES, None, "the pack did not start")))
    assert "**The base branch's policy pack judged nothing: the pack did not start.**" in own
    assert "refuses 0" not in own


def _events(text: str) -> tuple[Mapping[str, Any], ...]:
    end = summary(create=1)
    end["summaryEvent"]["PolicyPacks"] = {text: text}
    return (
        diagnostic(text),
        diagnostic(text, severity="warning"),
        finding(text, name=text, level=text),
        step("update", text, type_=text, old={text: text, "a": [text]}, new={text: 1, "b": {text: text}}),
        step("create", text, new={text: text}),
        end,
    )


def _hostile(text: str) -> str:
    findings = (Finding(message=text, policy=text, pack=text, level="mandatory", urn=text),)
    verified = Verified(Changes((text, f"policy/{text}"), HEAD, listed_all=True), findings)
    return _posted(_report(*_events(text)), verified)


@pytest.mark.parametrize("text", ATTACKS)
def test_no_text_of_the_branch_becomes_markdown(text: str) -> None:
    assert_only_ours(_hostile(text), text)


@pytest.mark.parametrize("text", [THEIRS, f"x\n{THEIRS}\n", f"</code>\n\n{THEIRS}", f"````\n{THEIRS}"])
def test_the_branch_can_not_write_the_line_that_parts_the_comment(text: str) -> None:
    headings = [line for line in _hostile(text).splitlines() if line.startswith("### ")]
    inside = [line for line in _posted(_report(*_events("x"))).splitlines() if line.startswith("### ")]
    assert headings.count(THEIRS) >= 1
    assert_only_ours(_hostile(text), text)
    assert inside.count(THEIRS) == 1


@settings(deadline=None, max_examples=60)
@given(st.one_of(st.text(alphabet="`~<>&|\\[]()!@#*_-+ \n\tab", max_size=200), st.text(max_size=200)))
def test_whatever_the_branch_says_the_comment_is_ours_and_bounded(text: str) -> None:
    rendered = _hostile(text)
    assert len(rendered.encode()) <= LIMIT_BYTES
    assert_only_ours(rendered, text, _hostile("x"))


@pytest.mark.parametrize("text", ["x", "`", "\n", "\U0001f600", "eyJ-", "://a:", "-----BEGIN ", "[", "<!--", "<{%"])
def test_a_report_at_the_limit_is_rendered_within_seconds(text: str, tmp_path: Path) -> None:
    file = tmp_path / "preview.json"
    long = text * (1_200_000 // len(json.dumps(text)))
    report.write(file, "jetson", 0, parse_events(lines(diagnostic(long), finding(long), summary()))[0], Redactor())
    assert file.stat().st_size < report.LIMIT_BYTES
    started = time.monotonic()
    rendered = _posted(report.read(file, "jetson"))
    assert time.monotonic() - started < 60
    assert len(rendered.encode()) <= LIMIT_BYTES


def test_thousands_of_findings_and_files_leave_room_for_what_the_base_branch_says() -> None:
    many = Changes(tuple(f"policy/{number}{'x' * 200}" for number in range(3000)), HEAD, listed_all=False)
    findings = tuple(Finding(message="x" * 500, policy="p", pack="p", level="mandatory") for _ in range(3000))
    review = _report(*(finding(f"{number} {'y' * 300}") for number in range(3000)), summary(), status=1)
    rendered = _posted(review, Verified(many, findings, resources=3000))
    assert len(rendered.encode()) <= LIMIT_BYTES
    own, theirs = _parts(rendered)
    assert "refuses 3000 things" in own
    assert "more are in the log of the run" in own
    assert "**The policy pack** (3000)" in own
    assert "GitHub did not list all" in own
    assert "- **blocks**" in theirs


def test_the_base_branchs_pack_judges_the_plan() -> None:
    good = {"type": POD, "name": "good", "inputs": {"kind": "ConfigMap", "data": {"a": "b"}}}
    bad = {"type": POD, "name": "web", "inputs": PRIVILEGED}
    findings = base_pack.findings([good, bad], jetson(), "jetson")
    assert {(finding.policy, finding.level, finding.urn.rsplit("::", 1)[-1]) for finding in findings} == {
        ("privilege", "mandatory", "web")
    }
    assert "rule:   privileged" in findings[0].message


@pytest.mark.parametrize(("stack", "refused"), [("jetson", False), ("x86", True)])
def test_the_base_branchs_exceptions_are_in_force_for_their_stacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stack: str, *, refused: bool
) -> None:
    accepted = {"rule": "privileged", "kind": "Pod", "name": "web", "value": True, "stacks": ["jetson"]}
    accepted |= {"who": "platform team", "why": "a test", "until": "2099-01-01"}
    (tmp_path / "policy-exceptions.yaml").write_text(json.dumps([accepted]), encoding="utf-8")
    monkeypatch.setattr(base_pack, "ROOT", tmp_path)
    bad = {"type": POD, "name": "web", "inputs": PRIVILEGED}
    assert bool(base_pack.findings([bad], jetson(), stack)) is refused


def _pack(folder: Path, script: str) -> Pack:
    run = folder / "run"
    run.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    run.chmod(0o755)
    return Pack("kai-anywhere", run, PACK.canary)


def test_a_plan_that_can_not_be_handed_to_the_pack_is_told_not_passed() -> None:
    with pytest.raises(base_pack.NotJudgedError, match="can't be handed to the pack"):
        base_pack.findings([{"type": POD, "name": "web", "inputs": {"a": 10**400}}], jetson(), "jetson")


def test_a_pack_that_does_not_answer_is_told_not_passed(tmp_path: Path) -> None:
    with pytest.raises(base_pack.NotJudgedError, match=r"did not answer \(UNAVAILABLE\)"):
        base_pack.findings([], jetson(), "jetson", _pack(tmp_path, "echo 1; exec sleep 600"))


def test_the_pack_gets_nothing_of_the_jobs_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    file = tmp_path / "environment"
    pack = _pack(tmp_path, f"env > '{file}'\nexec cat /dev/null")
    with pytest.raises(base_pack.NotJudgedError, match="the pack did not start"):
        base_pack.findings([], jetson(), "jetson", pack)
    text = file.read_text(encoding="utf-8")
    assert "PATH=" in text
    assert TOKEN not in text


class TestThePostCommand:
    """`python -m operations post --pull-request`, in the environment of a job."""

    @pytest.fixture
    def server(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHubServer]:
        with running() as state:
            monkeypatch.setenv("GITHUB_REPOSITORY", REPOSITORY)
            monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
            monkeypatch.setenv("GITHUB_API_URL", state.url)
            monkeypatch.setattr("operations.pull_request.commands.ROOT", STACK_FILES)
            state.files = [{"filename": "policy/exceptions.py", "status": "modified"}]
            yield state

    def _post(self, folder: Path, server: GitHubServer, *more: str) -> str:
        options = ["post", "--stack", "jetson", "--out", str(folder), "--pull-request", "7", *more]
        result = CliRunner().invoke(app, options)
        assert result.exit_code == 0, (result.output, result.exception)
        [post] = server.posts
        body: str = post["body"]
        return body

    def test_it_writes_one_comment_of_both_parts(self, server: GitHubServer, tmp_path: Path) -> None:
        events = parse_events(lines(step("create", "web", type_=POD, new=PRIVILEGED), summary(create=1)))[0]
        report.write(tmp_path / "preview.json", "jetson", 0, events, Redactor())
        self._post(tmp_path, server)
        text = self._post(tmp_path, server)
        assert text.splitlines()[0] == marker("preview", "jetson")
        own, theirs = _parts(text)
        assert "- **blocks**: `privilege` on `web`" in own
        assert "- **Exceptions of the policy pack** (1): `policy/exceptions.py`" in own
        assert f"commit `{HEAD}`" in own
        assert "blocks" not in theirs

    def test_a_stack_that_the_pull_request_brings_is_told_as_that(self, server: GitHubServer, tmp_path: Path) -> None:
        events = parse_events(lines(step("create", "web", type_=POD, new=PRIVILEGED), summary(create=1)))[0]
        report.write(tmp_path / "preview.json", "berlin", 0, events, Redactor())
        own, _ = _parts(self._post(tmp_path, server, "--stack", "berlin"))
        assert "judged nothing: the base branch has no stack `berlin` yet" in own
        assert "STACK=name" not in own

    @pytest.mark.parametrize("content", [None, "<!-- kai-anywhere:preview:jetson -->\n# Approved by @admin", "{}"])
    def test_an_older_comment_never_stays_where_the_report_is_no_good(
        self, server: GitHubServer, tmp_path: Path, content: str | None
    ) -> None:
        server.add(f"{marker('preview', 'jetson')}\nnothing changes", pull_request=7)
        if content is not None:
            (tmp_path / "preview.json").write_text(content, encoding="utf-8")
        text = self._post(tmp_path, server)
        assert "### No report of the pull request's own code" in text
        assert "judged nothing: there is no plan" in text
        assert "policy/exceptions.py" in text
        for gone in ("Approved", "nothing changes", THEIRS):
            assert gone not in text

    @pytest.mark.parametrize("more", [(), ("--skipped",)])
    def test_a_run_of_an_older_commit_leaves_the_newer_comment_and_does_not_fail(
        self, server: GitHubServer, tmp_path: Path, more: tuple[str, ...]
    ) -> None:
        newest = f"{marker('preview', 'jetson')}\nthe newest plan"
        server.add(newest, pull_request=7)
        report.write(tmp_path / "preview.json", "jetson", 0, parse_events(lines(summary(same=1)))[0], Redactor())
        older = "0" * 40
        assert older != HEAD
        assert self._post(tmp_path, server, "--head", older, *more) == newest
        written = [method for method, _ in server.asked if method != "GET"]
        assert written == []

    def test_an_older_commit_is_named_with_the_newest(self, server: GitHubServer, tmp_path: Path) -> None:
        options = ["post", "--stack", "jetson", "--out", str(tmp_path), "--pull-request", "7", "--head", "0" * 40]
        assert CliRunner().invoke(app, options).stdout == (
            f"Nothing is posted for stack 'jetson': its preview is of commit {'0' * 40}, and the newest of the pull "
            f"request is {HEAD}. The run of that one writes the comment.\n"
        )
        assert server.posts == []

    def test_the_newest_commit_is_told_of(self, server: GitHubServer, tmp_path: Path) -> None:
        server.add(f"{marker('preview', 'jetson')}\nan older plan", pull_request=7)
        report.write(tmp_path / "preview.json", "jetson", 0, parse_events(lines(summary(same=1)))[0], Redactor())
        text = self._post(tmp_path, server, "--head", HEAD)
        assert "an older plan" not in text
        assert f"commit `{HEAD}`" in text

    def test_text_that_the_branch_rendered_is_never_posted(self, server: GitHubServer, tmp_path: Path) -> None:
        (tmp_path / "comment.md").write_text(f"{marker('preview', 'jetson')}\n# Approved", encoding="utf-8")
        assert "Approved" not in self._post(tmp_path, server)

    def test_the_jobs_own_token_is_hidden_even_there(self, server: GitHubServer, tmp_path: Path) -> None:
        events = parse_events(lines(diagnostic(f"token {TOKEN}"), summary()))[0]
        report.write(tmp_path / "preview.json", "jetson", 1, events, Redactor())
        text = self._post(tmp_path, server)
        assert TOKEN not in text
        assert HIDDEN in text
