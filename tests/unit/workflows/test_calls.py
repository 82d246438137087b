"""Who calls our workflows fits to them: this repository's own files, and those that docs/teams.md gives to teams."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.stacks import ROOT
from tests.support.docs import PAGES, blocks
from tests.unit.workflows.calls import objections
from tests.unit.workflows.files import TRIGGERS, WORKFLOWS, content, jobs

OWN = [
    (file.stem, name)
    for file in WORKFLOWS
    for name, job in content(file)["jobs"].items()
    if str(job.get("uses", "")).startswith("./.github/workflows/")
]


@pytest.mark.parametrize(("workflow", "name"), OWN)
def test_our_own_jobs_fit_to_the_workflows_that_they_call(workflow: str, name: str) -> None:
    job = jobs(workflow)[name]
    called = job["uses"].removeprefix("./.github/workflows/").removesuffix(".yml")
    assert objections(called, job) == []


def test_each_workflow_that_anybody_calls_is_called_here_too() -> None:
    called = {jobs(workflow)[name]["uses"] for workflow, name in OWN}
    # This repository has no sites to update; the documentation's caller of `rollout` is checked below.
    names = ("drift", "policy", "preview", "release", "rollout-wave")
    assert called == {f"./.github/workflows/{name}.yml" for name in names}


TEAMS = [block.text for page in PAGES for block in blocks(page, "yaml") if "\njobs:" in block.text]
"""The whole files that the documentation gives to teams."""


@pytest.mark.parametrize("text", TEAMS, ids=lambda text: text.partition("\n")[0].rpartition("/")[2])
def test_what_the_documentation_gives_to_teams_fits(text: str) -> None:
    file = yaml.safe_load(text)
    assert file["permissions"] == {}
    for name, job in file["jobs"].items():
        [called] = re.findall(r"^example/kai-anywhere/\.github/workflows/(\w+)\.yml@v1\.2\.3$", job["uses"])
        assert objections(called, job) == [], name


NAME = ".github/workflows/pull-request.yml"
REVIEWING = [
    *[file.read_text(encoding="utf-8") for file in (ROOT / NAME, *ROOT.glob(f"templates/*/{NAME}"))],
    *[text for text in TEAMS if text.startswith(f"# {NAME}")],
]
"""The files that call what reviews a pull request: ours, those of the templates, the guide's."""


def test_a_pull_request_that_gets_another_base_is_reviewed_anew() -> None:
    assert len(REVIEWING) == 4
    for text in REVIEWING:
        assert yaml.safe_load(text)[TRIGGERS] == {
            "pull_request": {"types": ["opened", "synchronize", "reopened", "edited"]}
        }


def test_an_edit_skips_no_job_since_that_would_turn_a_red_check_green() -> None:
    for text in REVIEWING:
        assert not any("if" in job for job in yaml.safe_load(text)["jobs"].values())
    for name in ("policy", "preview"):
        assert "event.action" not in yaml.safe_dump(jobs(name))


def test_the_documentation_gives_a_file_for_pull_requests_and_one_for_every_day() -> None:
    jobs_of = {text.partition("\n")[0]: set(yaml.safe_load(text)["jobs"]) for text in TEAMS}
    assert jobs_of == {
        "# .github/workflows/pull-request.yml": {"policy", "preview"},
        "# .github/workflows/daily.yml": {"drift"},
        "# .github/workflows/rollout.yml": {"rollout"},
    }


@pytest.mark.parametrize("text", TEAMS, ids=lambda text: text.partition("\n")[0].rpartition("/")[2])
def test_zizmor_finds_nothing_in_what_teams_write_but_the_tag(text: str, tmp_path: Path) -> None:
    file = tmp_path / ".github" / "workflows" / "team.yml"
    file.parent.mkdir(parents=True)
    file.write_text(text.replace("@v1.2.3", f"@{'0' * 40} # v1.2.3"), encoding="utf-8")
    command = [str(Path(sys.prefix) / "bin" / "zizmor"), "--offline", "--no-progress", "--color", "never", str(file)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_caller_that_does_not_fit_is_named() -> None:
    job: dict[str, Any] = {"with": {"folders": ".", "aws-role": 1}, "permissions": {"contents": "write"}}
    assert objections("drift", job) == [
        "no input 'folders'",
        "input 'aws-role' is no string",
        "secret 'KUBECONFIG' is not handed on",
        "secret 'PULUMI_CONFIG_PASSPHRASE' is not handed on",
        "contents: read is not allowed",
        "id-token: write is not allowed",
        "issues: write is not allowed",
    ]
