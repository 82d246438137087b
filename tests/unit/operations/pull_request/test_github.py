"""One comment and one issue, updated and never repeated; over real HTTP."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from operations.__main__ import app
from operations.errors import OperationError
from operations.pull_request.comment import marker
from operations.pull_request.github import GitHub, GitHubError
from tests.support.github_server import HEAD, REPOSITORY, TOKEN, GitHubServer, running

MARKER = marker("preview", "jetson")


@pytest.fixture
def server() -> Iterator[GitHubServer]:
    with running() as state:
        yield state


@pytest.fixture
def github(server: GitHubServer) -> GitHub:
    return GitHub(REPOSITORY, TOKEN, api=server.url)


def _bodies(server: GitHubServer) -> list[str]:
    return [post["body"] for post in server.posts]


def test_a_comment_is_written_once_and_updated_from_then_on(server: GitHubServer, github: GitHub) -> None:
    github.put_comment(7, f"{MARKER}\nfirst")
    github.put_comment(7, f"{MARKER}\nsecond")
    assert _bodies(server) == [f"{MARKER}\nsecond"]


def test_each_stack_has_a_comment_of_its_own(server: GitHubServer, github: GitHub) -> None:
    github.put_comment(7, f"{MARKER}\njetson")
    github.put_comment(7, f"{marker('preview', 'x86')}\nx86")
    github.put_comment(8, f"{MARKER}\nanother pull request")
    assert len(server.posts) == 3


def test_the_comment_is_found_on_a_later_page(server: GitHubServer, github: GitHub) -> None:
    for number in range(5):
        server.add(f"talk {number}", author="somebody", pull_request=7)
    server.add(f"{MARKER}\r\nold", pull_request=7)
    github.put_comment(7, f"{MARKER}\nnew")
    assert _bodies(server)[-1] == f"{MARKER}\nnew"
    assert len(server.posts) == 6


def test_somebody_elses_comment_with_our_marker_is_left_alone(server: GitHubServer, github: GitHub) -> None:
    server.add(f"{MARKER}\nlooks good, approved", author="somebody", pull_request=7)
    github.put_comment(7, f"{MARKER}\nours")
    assert _bodies(server) == [f"{MARKER}\nlooks good, approved", f"{MARKER}\nours"]


def test_a_comment_that_only_quotes_the_marker_is_left_alone(server: GitHubServer, github: GitHub) -> None:
    server.add(f"see\n{MARKER}", pull_request=7)
    github.put_comment(7, f"{MARKER}\nours")
    assert len(server.posts) == 2


def test_all_files_that_a_pull_request_changes_are_found_old_names_too(server: GitHubServer, github: GitHub) -> None:
    server.files = [{"filename": f"docs/{number}.md", "status": "modified"} for number in range(4)]
    server.files.append({"filename": "docs/x.md", "previous_filename": "policy/judge.py", "status": "renamed"})
    changes = github.changes(7)
    assert changes.paths == (*(f"docs/{number}.md" for number in range(4)), "docs/x.md", "policy/judge.py")
    assert (changes.head, changes.listed_all) == (HEAD, True)
    server.changed_files = 6
    assert not github.changes(7).listed_all


def test_an_issue_of_drift_is_opened_updated_closed_and_opened_anew(server: GitHubServer, github: GitHub) -> None:
    drift = marker("drift", "jetson")
    github.put_issue("Drift", f"{drift}\none")
    github.put_issue("Drift", f"{drift}\ntwo")
    assert [(post["body"], post["state"]) for post in server.posts] == [(f"{drift}\ntwo", "open")]
    assert github.close_issue(drift) == server.posts[0]["html_url"]
    assert server.posts[0]["state"] == "closed"
    assert github.close_issue(drift) is None
    github.put_issue("Drift", f"{drift}\nthree")
    assert len(server.posts) == 2


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
def test_a_passing_failure_of_a_question_is_asked_again(server: GitHubServer, github: GitHub, status: int) -> None:
    server.failures["GET"] = [status, status]
    github.put_comment(7, f"{MARKER}\nx")
    assert len(server.posts) == 1


@pytest.mark.parametrize(("header", "waits_seconds"), [("7", 7), ("3600", 60), ("Wed, 21 Oct 2026 07:28:00 GMT", 0.5)])
def test_a_time_that_github_asks_for_is_waited_up_to_a_minute(
    server: GitHubServer, github: GitHub, monkeypatch: pytest.MonkeyPatch, header: str, waits_seconds: float
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("operations.pull_request.github.time.sleep", waited.append)
    server.failures["GET"], server.retry_after = [429], header
    github.put_comment(7, f"{MARKER}\nx")
    assert waited == [waits_seconds]
    assert len(server.posts) == 1


@pytest.mark.parametrize("status", [403, 429])
def test_comments_that_come_too_fast_are_written_when_github_takes_them_again(
    server: GitHubServer, github: GitHub, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("operations.pull_request.github.time.sleep", waited.append)
    server.failures["POST"], server.retry_after = [status, status], "60"
    github.put_comment(7, f"{MARKER}\nx")
    assert waited == [60, 60]
    assert len(server.posts) == 1, "what was refused for its number has left nothing"


@pytest.mark.parametrize(("retry_after", "tries"), [(None, 1), ("60", 5)])
def test_requests_that_are_used_up_are_no_missing_permission(
    server: GitHubServer, github: GitHub, monkeypatch: pytest.MonkeyPatch, retry_after: str | None, tries: int
) -> None:
    monkeypatch.setattr("operations.pull_request.github.time.sleep", lambda _: None)
    server.failures["POST"], server.retry_after, server.used_up = [403] * 9, retry_after, True
    with pytest.raises(GitHubError, match=r"takes no more requests .*run the job again in an hour") as caught:
        github.put_comment(7, f"{MARKER}\nx")
    assert "permission" not in str(caught.value)
    assert [method for method, _ in server.asked].count("POST") == tries


def test_a_failed_creation_is_not_repeated_since_it_may_have_worked(server: GitHubServer, github: GitHub) -> None:
    server.failures["POST"] = [502]
    with pytest.raises(GitHubError, match=r"502 .*Run the job again"):
        github.put_comment(7, f"{MARKER}\nx")
    assert [method for method, _ in server.asked].count("POST") == 1


@pytest.mark.parametrize("status", [403, 404])
def test_a_missing_permission_is_named(server: GitHubServer, github: GitHub, status: int) -> None:
    server.failures["POST"] = [status]
    with pytest.raises(GitHubError, match="pull-requests: write"):
        github.put_comment(7, f"{MARKER}\nx")


def test_a_wrong_token_is_told_and_not_shown(server: GitHubServer) -> None:
    with pytest.raises(GitHubError, match="GITHUB_TOKEN") as caught:
        GitHub(REPOSITORY, "ghs_wrong", api=server.url).put_comment(7, f"{MARKER}\nx")
    assert "ghs_wrong" not in str(caught.value)


def test_nobody_who_answers_is_an_error_with_a_way_out() -> None:
    with running() as server:
        url = server.url
    with pytest.raises(GitHubError, match=r"does not answer .*Run the job again"):
        GitHub(REPOSITORY, TOKEN, api=url).put_comment(7, f"{MARKER}\nx")


class TestThePostCommand:
    """`python -m operations post`, in the environment of a job."""

    @pytest.fixture(autouse=True)
    def job(self, server: GitHubServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GITHUB_REPOSITORY", REPOSITORY)
        monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
        monkeypatch.setenv("GITHUB_API_URL", server.url)

    def _post(self, folder: Path, *options: str) -> None:
        result = CliRunner().invoke(app, ["post", "--stack", "jetson", "--out", str(folder), *options])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output

    def test_it_opens_and_closes_the_issue_of_drift(self, server: GitHubServer, tmp_path: Path) -> None:
        (tmp_path / "issue.md").write_text(f"{marker('drift', 'jetson')}\nx", encoding="utf-8")
        self._post(tmp_path)
        assert server.posts[0]["state"] == "open"
        (tmp_path / "issue.md").rename(tmp_path / "no-drift")
        self._post(tmp_path)
        assert server.posts[0]["state"] == "closed"

    def test_stacks_of_one_name_in_two_folders_have_two_issues(self, server: GitHubServer, tmp_path: Path) -> None:
        for folder in ("clusters", "our lab/jetson"):
            (tmp_path / "issue.md").write_text(f"{marker('drift', 'jetson', folder)}\nx", encoding="utf-8")
            self._post(tmp_path, "--folder", f"./{folder}")
        assert [post["title"] for post in server.posts] == [
            "Drift: the cluster is not as stack clusters/jetson says",
            "Drift: the cluster is not as stack our lab/jetson/jetson says",
        ]
        (tmp_path / "issue.md").rename(tmp_path / "no-drift")
        self._post(tmp_path, "--folder", "clusters")
        assert [post["state"] for post in server.posts] == ["closed", "open"]

    def test_a_check_that_did_not_end_closes_nothing(self, server: GitHubServer, tmp_path: Path) -> None:
        server.add(f"{marker('drift', 'jetson')}\nx")
        with pytest.raises(OperationError, match="did not come to its end"):
            self._post(tmp_path)
        assert server.posts[0]["state"] == "open"

    def test_an_issue_of_another_stack_is_refused(self, server: GitHubServer, tmp_path: Path) -> None:
        (tmp_path / "issue.md").write_text(f"{marker('drift', 'x86')}\nx", encoding="utf-8")
        with pytest.raises(OperationError, match="not of this stack"):
            self._post(tmp_path)
        assert server.posts == []

    def test_outside_of_a_job_it_says_what_is_missing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("GITHUB_TOKEN")
        with pytest.raises(OperationError, match="GITHUB_TOKEN must be set"):
            self._post(tmp_path)


def test_a_stack_that_is_skipped_now_leaves_no_older_comment_and_writes_no_new_one(
    server: GitHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("REPOSITORY", REPOSITORY), ("TOKEN", TOKEN), ("API_URL", server.url)):
        monkeypatch.setenv(f"GITHUB_{name}", value)
    server.add(f"{MARKER}\nold plan", pull_request=7)
    for stack in ("jetson", "x86"):
        done = CliRunner().invoke(app, ["post", "--stack", stack, "--pull-request", "7", "--skipped"])
        assert done.exit_code == 0, done.output
    [comment] = _bodies(server)
    assert comment.startswith(
        f"{MARKER}\n### Preview of `jetson`: skipped\n\nNo credentials are configured for this stack"
    )
    assert "old plan" not in comment


class TestTheCommentsOfStacksThatAreNotConcernedAnyMore:
    """`python -m operations retire`, in the environment of a job."""

    @pytest.fixture(autouse=True)
    def job(self, server: GitHubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in (("REPOSITORY", REPOSITORY), ("TOKEN", TOKEN), ("API_URL", server.url)):
            monkeypatch.setenv(f"GITHUB_{name}", value)
        # The stacks' files as they are on the base branch.
        monkeypatch.setattr("operations.pull_request.commands.ROOT", tmp_path)
        for stack in ("prod", "test", "old"):
            (tmp_path / f"Pulumi.{stack}.yaml").touch()
        for stack in ("prod", "test", "old", "came-and-went"):
            server.add(f"{marker('preview', stack, 'clusters')}\nplan of {stack}", pull_request=7)

    def _retired(self, server: GitHubServer, *options: str) -> list[str]:
        done = CliRunner().invoke(app, ["retire", "--pull-request", "7", *(options or ("--folder", "clusters"))])
        assert done.exit_code == 0, done.output
        return [
            body.partition("\n")[0].rpartition("/")[2].removesuffix(" -->")
            for body in _bodies(server)
            if "not concerned any more" in body
        ]

    def test_only_the_stack_whose_file_changes_keeps_its_plan(self, server: GitHubServer) -> None:
        server.files = [{"filename": "clusters/Pulumi.prod.yaml", "status": "modified"}]
        assert self._retired(server) == ["test", "old", "came-and-went"]
        assert _bodies(server)[0].endswith("plan of prod")
        assert "plan of test" not in _bodies(server)[1]

    def test_another_changed_file_may_concern_every_stack_that_is_there(self, server: GitHubServer) -> None:
        server.files = [{"filename": "README.md", "status": "modified"}]
        assert self._retired(server) == ["came-and-went"]

    def test_a_stack_whose_file_is_removed_has_no_plan(self, server: GitHubServer) -> None:
        server.files = [
            {"filename": "clusters/Pulumi.old.yaml", "status": "removed"},
            {"filename": "clusters/Pulumi.new.yaml", "previous_filename": "clusters/Pulumi.test.yaml"}
            | {"status": "renamed"},
            {"filename": "README.md", "status": "modified"},
        ]
        assert self._retired(server) == ["test", "old", "came-and-went"]

    def test_a_stack_that_comes_with_the_pull_request_keeps_its_plan(self, server: GitHubServer) -> None:
        server.files = [{"filename": "clusters/Pulumi.came-and-went.yaml", "status": "added"}]
        assert self._retired(server) == ["prod", "test", "old"]

    def test_comments_of_another_folder_of_others_and_of_drift_stay(self, server: GitHubServer) -> None:
        server.posts.clear()
        for body, author in (
            (f"{marker('preview', 'test')}\nplan", None),
            (f"{marker('preview', 'test', 'elsewhere')}\nplan", None),
            (f"{marker('drift', 'test', 'clusters')}\ndrift", None),
            (f"see {marker('preview', 'test', 'clusters')}\nplan", None),
            (f"{marker('preview', 'test', 'clusters')}\nlooks good", "somebody"),
        ):
            server.add(body, pull_request=7, **({"author": author} if author else {}))
        before = _bodies(server)
        server.files = [{"filename": "clusters/Pulumi.prod.yaml", "status": "modified"}]
        assert self._retired(server) == []
        assert _bodies(server) == before

    def test_a_folder_may_have_any_name(self, server: GitHubServer) -> None:
        server.posts.clear()
        for stack in ("prod", "test"):
            server.add(f"{marker('preview', stack, 'STACKS')}\nplan of {stack}", pull_request=7)
        server.files = [{"filename": "STACKS/Pulumi.prod.yaml", "status": "modified"}]
        assert self._retired(server, "--folder", "STACKS") == ["test"]

    def test_the_roots_stacks_have_a_marker_without_a_folder(self, server: GitHubServer) -> None:
        server.posts.clear()
        for stack in ("prod", "test"):
            server.add(f"{marker('preview', stack)}\nplan", pull_request=7)
        server.files = [{"filename": "Pulumi.prod.yaml", "status": "modified"}]
        self._retired(server, "--folder", ".")
        assert [("not concerned any more" in body) for body in _bodies(server)] == [False, True]

    def test_a_second_time_writes_nothing(self, server: GitHubServer) -> None:
        server.files = [{"filename": "clusters/Pulumi.prod.yaml", "status": "modified"}]
        self._retired(server)
        server.asked.clear()
        self._retired(server)
        assert {method for method, _ in server.asked} == {"GET"}

    def test_a_stack_that_is_concerned_again_gets_its_plan_in_the_same_comment(
        self, server: GitHubServer, github: GitHub
    ) -> None:
        server.files = [{"filename": "clusters/Pulumi.prod.yaml", "status": "modified"}]
        self._retired(server)
        github.put_comment(7, f"{marker('preview', 'test', 'clusters')}\nnew plan")
        assert len(server.posts) == 4
        assert _bodies(server)[1].endswith("new plan")

    def test_files_that_github_does_not_list_keep_every_comment(self, server: GitHubServer) -> None:
        server.files = [{"filename": "clusters/Pulumi.prod.yaml", "status": "modified"}]
        server.changed_files = 4000
        assert self._retired(server) == []

    @pytest.mark.parametrize("folder", ["../other", "/etc", "a\nb", "-->"])
    def test_what_is_no_folder_of_the_repository_is_refused(self, folder: str) -> None:
        done = CliRunner().invoke(app, ["retire", "--pull-request", "7", "--folder", folder])
        assert isinstance(done.exception, OperationError)
        assert "is no folder of the repository" in str(done.exception)
