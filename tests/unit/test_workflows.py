"""The workflows: what they may do, what they run, and that a linter of workflows finds nothing."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.stacks import ROOT

FOLDER = ROOT / ".github"
WORKFLOWS = sorted((FOLDER / "workflows").glob("*.yml"))
ACTION = FOLDER / "actions" / "prepare" / "action.yml"
TARGETS = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8")))

every_workflow = pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)


def _content(file: Path) -> Any:  # noqa: ANN401 - YAML
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def _jobs(file: Path) -> dict[str, Any]:
    jobs: dict[str, Any] = _content(file)["jobs"]
    return jobs


def _scripts(job: dict[str, Any]) -> str:
    return "\n".join(step.get("run", "") for step in job["steps"])


def test_the_workflows_are_those_that_the_documentation_names() -> None:
    assert [file.stem for file in WORKFLOWS] == ["ci", "drift", "preview", "release"]


@pytest.mark.parametrize("file", [*WORKFLOWS, ACTION], ids=lambda file: file.stem)
def test_every_action_is_pinned_by_the_digest_of_a_release(file: Path) -> None:
    uses = re.findall(r"(?m)^\s*(?:- )?uses: (.+)$", file.read_text(encoding="utf-8"))
    assert uses
    for use in uses:
        assert use == "./.github/actions/prepare" or re.fullmatch(
            r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", use
        ), use


def test_an_action_has_one_version_everywhere() -> None:
    text = "".join(file.read_text(encoding="utf-8") for file in [*WORKFLOWS, ACTION])
    pins: dict[str, set[str]] = {}
    for action, pin in re.findall(r"uses: ([\w-]+/[\w-]+)@(.+)", text):
        pins.setdefault(action, set()).add(pin)
    assert {action: found for action, found in pins.items() if len(found) > 1} == {}


@every_workflow
def test_nothing_is_allowed_that_a_job_does_not_ask_for(file: Path) -> None:
    assert _content(file)["permissions"] == {}
    for name, job in _jobs(file).items():
        assert job["permissions"], name
        assert job["timeout-minutes"] <= 120, name


WRITES = {
    ("drift", "drift"): {"id-token", "issues"},
    ("preview", "preview"): {"id-token"},
    ("preview", "comment"): {"pull-requests"},
    ("release", "image"): {"id-token", "packages"},
    ("release", "release"): {"contents"},
}
"""Who may write what; everybody else reads."""


@every_workflow
def test_who_may_write_what_is_as_listed(file: Path) -> None:
    for name, job in _jobs(file).items():
        writes = {scope for scope, access in job["permissions"].items() if access == "write"}
        assert writes == WRITES.get((file.stem, name), set()), name


@every_workflow
def test_every_job_of_a_stack_is_alone_with_it(file: Path) -> None:
    for name, job in _jobs(file).items():
        matrix = job.get("strategy", {}).get("matrix", {})
        if matrix and (file.stem, name) != ("release", "image"):
            assert matrix["stack"] == ["jetson", "x86"]
            assert "${{ matrix.stack }}" in job["concurrency"]["group"], name


def test_a_release_has_every_image_that_the_program_runs() -> None:
    matrix = _jobs(FOLDER / "workflows" / "release.yml")["image"]["strategy"]["matrix"]["include"]
    built = {str(path.relative_to(ROOT)) for path in (ROOT / "agents").rglob("Containerfile")}
    assert {each["file"] for each in matrix} == built


def test_no_workflow_runs_the_code_of_a_fork_with_secrets() -> None:
    for file in WORKFLOWS:
        # YAML 1.1 reads the key `on` as true.
        assert "pull_request_target" not in _content(file)[True]
    jobs = _jobs(FOLDER / "workflows" / "preview.yml")
    assert "secrets" not in yaml.safe_dump(jobs["offline"])
    assert "id-token" not in jobs["offline"]["permissions"]
    assert "head.repo.full_name == github.repository" in jobs["preview"]["if"]


def test_the_code_of_a_pull_request_never_has_a_token_that_writes() -> None:
    jobs = _jobs(FOLDER / "workflows" / "preview.yml")
    assert "GITHUB_TOKEN" not in yaml.safe_dump(jobs["preview"])
    [checkout] = [step for step in jobs["comment"]["steps"] if step.get("uses", "").startswith("actions/checkout@")]
    assert checkout["with"]["ref"] == "${{ github.event.pull_request.base.sha }}"


def _step(job: dict[str, Any], action: str) -> dict[str, Any]:
    [found] = [step for step in job["steps"] if step.get("uses", "").startswith(f"{action}@")]
    return dict(found)


def test_what_one_job_leaves_for_the_other_is_events_and_no_text_to_post() -> None:
    jobs = _jobs(FOLDER / "workflows" / "preview.yml")
    upload, download = (
        _step(jobs["preview"], "actions/upload-artifact"),
        _step(jobs["comment"], "actions/download-artifact"),
    )
    assert upload["with"]["path"] == "review/preview.json"
    assert upload["with"]["name"] == download["with"]["name"] == "preview-${{ matrix.stack }}"
    # Into a folder of its own: nothing of the base branch's code can be overwritten.
    assert download["with"]["path"] == "review"
    assert not (ROOT / "review" / "__init__.py").exists()
    assert download["continue-on-error"] is True
    order = [step.get("uses", step.get("run", "")) for step in jobs["comment"]["steps"]]
    assert order.index("./.github/actions/prepare") < order.index(download["uses"]) < order.index("make post")


def test_the_job_that_posts_can_reach_neither_state_nor_cluster() -> None:
    job = _jobs(FOLDER / "workflows" / "preview.yml")["comment"]
    assert set(job["permissions"]) == {"contents", "pull-requests"}
    assert "environment" not in job
    text = yaml.safe_dump(job)
    for reach in ("secrets.", "AWS", "STATE_URL", "KUBECONFIG", "pulumi"):
        assert reach not in text
    [holder] = [step for step in job["steps"] if "GITHUB_TOKEN" in step.get("env", {})]
    assert holder["run"] == "make post"


def test_the_comment_is_written_when_the_preview_failed() -> None:
    jobs = _jobs(FOLDER / "workflows" / "preview.yml")
    assert jobs["comment"]["if"].startswith("${{ !cancelled()")
    [upload] = [
        step for step in jobs["preview"]["steps"] if step.get("uses", "").startswith("actions/upload-artifact@")
    ]
    assert upload["if"] == "${{ !cancelled() }}"


def test_ci_runs_what_decides_on_a_change_here() -> None:
    assert _scripts(_jobs(FOLDER / "workflows" / "ci.yml")["ci"]).split() == [".ci/run"]
    assert ".ci/run" in _scripts(_jobs(FOLDER / "workflows" / "release.yml")["test"]).split()


@every_workflow
def test_every_make_target_that_is_run_exists(file: Path) -> None:
    for job in _jobs(file).values():
        for words in re.findall(r"(?m)^\s*make ([a-z -]+)", _scripts(job)):
            assert set(words.split()) <= TARGETS, words


@every_workflow
def test_no_expression_stands_in_a_script(file: Path) -> None:
    for name, job in _jobs(file).items():
        assert "${{" not in _scripts(job), name


def test_zizmor_finds_nothing() -> None:
    command = [str(Path(sys.prefix) / "bin" / "zizmor"), "--offline", "--no-progress", "--color", "never"]
    command += ["--persona", "pedantic", "--config", str(FOLDER / "zizmor.yml"), str(FOLDER)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No findings to report" in done.stdout + done.stderr


def test_zizmor_would_find_an_action_that_is_not_pinned(tmp_path: Path) -> None:
    text = (FOLDER / "workflows" / "ci.yml").read_text(encoding="utf-8")
    (tmp_path / ".github" / "workflows").mkdir(parents=True)
    changed = re.sub(r"actions/checkout@\S+", "actions/checkout@main", text)
    assert changed != text
    (tmp_path / ".github" / "workflows" / "ci.yml").write_text(changed, encoding="utf-8")
    command = [str(Path(sys.prefix) / "bin" / "zizmor"), "--offline", "--no-progress", str(tmp_path / ".github")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "unpinned-uses" in done.stdout
