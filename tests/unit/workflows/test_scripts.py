"""The scripts of workflows and actions, run as a job runs them."""

import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from tests.unit.workflows.files import Job, action, jobs, script

KUBECONFIG = "apiVersion: v1\nusers: [{token: kept-to-itself}]"


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def _program(job: Job, commands: str) -> None:
    """A stand-in for the program's command."""
    file = job.folder / "program" / "bin" / "kai-anywhere"
    file.parent.mkdir(parents=True)
    file.write_text(f"#!/bin/sh\n{commands}\n", encoding="utf-8")
    file.chmod(0o755)


CREDENTIALS = script(action("credentials"), "credentials")


def test_a_stack_with_credentials_gets_a_file_that_only_its_job_reads(job: Job) -> None:
    done = job.run(CREDENTIALS, STACK="prod", KUBECONFIG_CONTENT=KUBECONFIG, BACKEND_URL="s3://state")
    assert done.returncode == 0, done.stderr
    assert job.outputs() == {"configured": "true", "kubeconfig": str(job.temp / "kubeconfig")}
    file = job.temp / "kubeconfig"
    assert file.read_text(encoding="utf-8") == KUBECONFIG
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "kept-to-itself" not in done.stdout + done.stderr
    assert not (job.temp / "skipped").exists()


@pytest.mark.parametrize(
    ("kubeconfig", "backend", "missing"),
    [
        ("", "s3://state", "the secret KUBECONFIG of the environment 'prod'"),
        (KUBECONFIG, "", "the input 'backend-url'"),
        ("", "", "the secret KUBECONFIG of the environment 'prod' and the input 'backend-url'"),
    ],
)
def test_a_stack_without_credentials_is_skipped_with_a_sentence(
    job: Job, kubeconfig: str, backend: str, missing: str
) -> None:
    done = job.run(CREDENTIALS, STACK="prod", KUBECONFIG_CONTENT=kubeconfig, BACKEND_URL=backend)
    sentence = f"Stack 'prod' is skipped: no credentials are configured for it. Missing: {missing}."
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"::notice::{sentence}\n"
    assert job.summary.read_text(encoding="utf-8") == f"{sentence}\n"
    assert (job.temp / "skipped").read_text(encoding="utf-8") == f"{sentence}\n"
    assert job.outputs() == {"configured": "false"}
    assert not (job.temp / "kubeconfig").exists()


SETUP = script(action("setup"), "program")


@pytest.fixture
def program(job: Job) -> Path:
    folder = job.folder / "program"
    (folder / ".github" / "actions" / "setup").mkdir(parents=True)
    (folder / "toolchain").mkdir()
    (folder / "toolchain" / "programs.py").write_text("one", encoding="utf-8")
    for name in ("Pulumi.yaml", "Pulumi.jetson.yaml", "Pulumi.x86.yaml"):
        (folder / name).write_text("ours", encoding="utf-8")
    return folder


def _set_up(job: Job, program: Path, stacks: str = "") -> None:
    done = job.run(SETUP, GITHUB_ACTION_PATH=str(program / ".github" / "actions" / "setup"), STACKS=stacks)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_program_is_the_one_that_the_action_came_with(job: Job, program: Path) -> None:
    _set_up(job, program)
    assert job.outputs()["program"] == str(program)
    assert sorted(file.name for file in program.glob("Pulumi*")) == [
        "Pulumi.jetson.yaml",
        "Pulumi.x86.yaml",
        "Pulumi.yaml",
    ]


def test_the_stacks_of_a_folder_take_the_place_of_the_examples(job: Job, program: Path) -> None:
    theirs = job.folder / "stacks" / "clusters"
    theirs.mkdir(parents=True)
    for name in ("Pulumi.prod.yaml", "Pulumi.yaml", "policy-exceptions.yaml", "notes.txt"):
        (theirs / name).write_text("theirs", encoding="utf-8")
    (theirs / "Pulumi.link.yaml").symlink_to("/etc/hostname")
    _set_up(job, program, "stacks/clusters")
    found = {file.name: file.read_text(encoding="utf-8") for file in program.glob("*.*") if file.is_file()}
    assert found == {"Pulumi.prod.yaml": "theirs", "policy-exceptions.yaml": "theirs", "Pulumi.yaml": "ours"}
    assert (program / ".project").readlink() == theirs


def test_stacks_without_a_project_of_their_own_are_run_by_this_one(job: Job, program: Path) -> None:
    theirs = job.folder / "stacks"
    theirs.mkdir()
    (theirs / "Pulumi.prod.yaml").write_text("theirs", encoding="utf-8")
    _set_up(job, program, "stacks")
    assert (program / "Pulumi.prod.yaml").read_text(encoding="utf-8") == "theirs"
    assert not (program / ".project").is_symlink()


def test_the_programs_own_folder_keeps_its_stacks(job: Job, program: Path) -> None:
    _set_up(job, program, "program/.")
    assert (program / "Pulumi.jetson.yaml").read_text(encoding="utf-8") == "ours"


def test_a_folder_that_is_not_there_is_an_error_that_names_it(job: Job, program: Path) -> None:
    done = job.run(SETUP, GITHUB_ACTION_PATH=str(program / ".github" / "actions" / "setup"), STACKS="stacks/nowhere")
    assert done.returncode == 1
    assert done.stdout == (
        "::error::There is no folder stacks/nowhere. The input 'folder' names the one with the files "
        "Pulumi.<stack>.yaml.\n"
    )
    assert (program / "Pulumi.jetson.yaml").exists()


def test_the_cache_is_another_one_when_a_pinned_program_changes(job: Job, program: Path) -> None:
    keys = []
    for content in ("one", "two", "one"):
        (program / "toolchain" / "programs.py").write_text(content, encoding="utf-8")
        _set_up(job, program)
        keys.append(job.outputs()["toolchain"])
    assert keys[0] == keys[2] != keys[1]
    assert all(len(key) == 32 for key in keys)


@pytest.mark.parametrize("name", ["drift", "policy", "preview"])
def test_the_list_of_stacks_becomes_the_matrix(job: Job, name: str) -> None:
    _program(job, 'echo "$*" >&2; echo \'["prod", "test"]\'')
    done = job.run(script(jobs(name)["stacks"], "list"), FOLDER="stacks/.", BASE="0" * 40)
    assert done.returncode == 0, done.stderr
    assert json.loads(job.outputs()["stacks"]) == ["prod", "test"]
    assert done.stderr.startswith("stacks --folder stacks/.")


def test_a_list_that_can_t_be_made_fails_the_job(job: Job) -> None:
    _program(job, "exit 1")
    assert job.run(script(jobs("drift")["stacks"], "list"), FOLDER="stacks/.").returncode == 1
    assert job.outputs() == {}


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is on GitHub's machines, and not here")
def test_every_stack_gets_its_comment_also_after_one_that_fails(job: Job) -> None:
    _program(job, 'echo "$*"; case "$*" in *"--stack bad"*) exit 1;; esac')
    (job.folder / "review").mkdir()
    (job.folder / "review" / "skipped-test").mkdir()
    done = job.run(script(jobs("preview")["comment"], "Comment"), STACKS='["bad", "prod", "test"]', PULL_REQUEST="7")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "post --stack bad --pull-request 7 --out review/preview-bad",
        "post --stack prod --pull-request 7 --out review/preview-prod",
        "post --stack test --pull-request 7 --out review/preview-test --skipped",
    ]


def test_a_release_publishes_the_files_and_names_the_images(job: Job) -> None:
    (job.folder / "dist").mkdir()
    for name in ("kai-anywhere-v1.2.3.tar.gz", "stack.schema.json", "SHA256SUMS", "notes.md"):
        (job.folder / "dist" / name).write_text("notes\n", encoding="utf-8")
    gh = job.folder / "bin" / "gh"
    gh.parent.mkdir()
    gh.write_text('#!/bin/sh\necho "$*"\n', encoding="utf-8")
    gh.chmod(0o755)
    done = job.run(
        script(jobs("release")["release"], "Publish"),
        VERSION="v1.2.3",
        AGENTS="ghcr.io/o/r/agents@sha256:1",
        METRICS="ghcr.io/o/r/metrics@sha256:2",
        GITHUB_REPOSITORY="o/r",
        PATH=f"{gh.parent}:{os.environ['PATH']}",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        *("release", "create", "v1.2.3", "--repo", "o/r", "--verify-tag", "--title", "v1.2.3"),
        *("--notes-file", "dist/notes.md", "dist/kai-anywhere-v1.2.3.tar.gz", "dist/stack.schema.json"),
        "dist/SHA256SUMS",
    ]
    notes = (job.folder / "dist" / "notes.md").read_text(encoding="utf-8")
    assert notes == (
        "notes\n\nImages for amd64 and arm64:\n\n- `ghcr.io/o/r/agents@sha256:1`\n- `ghcr.io/o/r/metrics@sha256:2`\n"
    )
