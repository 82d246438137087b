"""Who calls our workflows fits to them: this repository's own files, and those that the documentation gives to teams."""

import re
from typing import Any

import pytest
import yaml

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
    assert called == {f"./.github/workflows/{name}.yml" for name in ("drift", "policy", "preview", "release")}


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
