"""The scripts of workflows and actions, run as a job runs them."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.stacks import ROOT
from tests.unit.workflows.files import WORKFLOWS, Job, action, jobs, script, scripts, steps

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
    done = job.run(CREDENTIALS, STACK="prod", KUBECONFIG_CONTENT=KUBECONFIG, BACKEND_URL="s3://state", CLUSTER="true")
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
        ("", "s3://state", "the secret KUBECONFIG of the environment 'prod-rollout'"),
        (KUBECONFIG, "", "the input 'backend-url'"),
        ("", "", "the secret KUBECONFIG of the environment 'prod-rollout' and the input 'backend-url'"),
    ],
)
def test_a_stack_without_credentials_is_skipped_with_a_sentence(
    job: Job, kubeconfig: str, backend: str, missing: str
) -> None:
    names = {"STACK": "prod", "ENVIRONMENT": "prod-rollout"}
    done = job.run(CREDENTIALS, **names, KUBECONFIG_CONTENT=kubeconfig, BACKEND_URL=backend, CLUSTER="true")
    sentence = f"Stack 'prod' is skipped: no credentials are configured for it. Missing: {missing}."
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"::notice::{sentence}\n"
    assert job.summary.read_text(encoding="utf-8") == f"{sentence}\n"
    assert (job.temp / "skipped").read_text(encoding="utf-8") == f"{sentence}\n"
    assert job.outputs() == {"configured": "false"}
    assert not (job.temp / "kubeconfig").exists()


@pytest.mark.parametrize("kubeconfig", ["", KUBECONFIG])
def test_a_stack_of_hosts_alone_needs_no_kubeconfig_and_keeps_the_one_that_it_has(job: Job, kubeconfig: str) -> None:
    credentials = {"KUBECONFIG_CONTENT": kubeconfig, "BACKEND_URL": "s3://state", "CLUSTER": "false"}
    done = job.run(CREDENTIALS, STACK="rack-1", **credentials)
    assert done.returncode == 0, done.stderr
    file = job.temp / "kubeconfig"
    assert file.exists() == bool(kubeconfig)
    assert job.outputs() == {"configured": "true"} | ({"kubeconfig": str(file)} if kubeconfig else {})


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
    for name in ("fleet.yaml", "bases/jetson.yaml", "bases/inner/deep.yaml", "bases/notes.txt"):
        (theirs / name).parent.mkdir(exist_ok=True)
        (theirs / name).write_text("theirs", encoding="utf-8")
    (theirs / "bases" / "link.yaml").symlink_to("/etc/hostname")
    (program / "bases").mkdir()
    (program / "bases" / "own.yaml").write_text("ours", encoding="utf-8")
    _set_up(job, program, "stacks/clusters")
    files = {file.name: file.read_text(encoding="utf-8") for file in program.glob("*.*") if file.is_file()}
    assert files == {
        "Pulumi.prod.yaml": "theirs",
        "policy-exceptions.yaml": "theirs",
        "Pulumi.yaml": "ours",
        "fleet.yaml": "theirs",
    }
    assert (program / ".project").readlink() == theirs
    assert [file.name for file in (program / "bases").iterdir()] == ["jetson.yaml"]


def test_a_folder_of_bases_that_is_a_link_is_not_followed(job: Job, program: Path) -> None:
    theirs = job.folder / "stacks"
    theirs.mkdir()
    (job.folder / "elsewhere").mkdir()
    (job.folder / "elsewhere" / "jetson.yaml").write_text("elsewhere", encoding="utf-8")
    (theirs / "bases").symlink_to(job.folder / "elsewhere")
    (theirs / "Pulumi.prod.yaml").write_text("theirs", encoding="utf-8")
    _set_up(job, program, "stacks")
    assert not (program / "bases").exists()
    assert (program / "Pulumi.prod.yaml").read_text(encoding="utf-8") == "theirs"


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


def test_a_folder_that_the_pull_request_brings_is_empty_where_the_comment_is_written(job: Job, program: Path) -> None:
    comment = jobs("preview")["comment"]
    names = [step.get("name") or step.get("uses") for step in steps(comment)]
    assert names.index("Folder") + 1 == names.index("./program/.github/actions/setup")
    (job.folder / "stacks").mkdir()
    for _ in range(2):  # the next pull request finds the folder
        done = job.run(script(comment, "Folder"), FOLDER="stacks/teams/clusters")
        assert done.returncode == 0, done.stderr
        _set_up(job, program, "stacks/teams/clusters")
    assert list(program.glob("Pulumi.*.yaml")) == [], "this repository's examples are no stacks of theirs"
    assert not (program / ".project").is_symlink()


def test_a_folder_that_is_misspelt_stays_an_error_for_every_other_job() -> None:
    others = [
        job
        for file in WORKFLOWS
        for name, job in jobs(file.stem).items()
        if (file.stem, name) != ("preview", "comment")
    ]
    assert not any("mkdir" in scripts(job) for job in others)


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
    _program(job, 'echo "$*" >&2; case "$*" in *--hosts-alone) echo \'["test"]\';; *) echo \'["prod", "test"]\';; esac')
    done = job.run(script(jobs(name)["stacks"], "list"), FOLDER="stacks/.", BASE="0" * 40)
    assert done.returncode == 0, done.stderr
    assert json.loads(job.outputs()["stacks"]) == ["prod", "test"]
    listed, *alone = done.stderr.splitlines()
    assert listed.startswith("stacks --folder stacks/.")
    if name == "policy":  # on simulators, with nobody's kubeconfig
        assert alone == []
        return
    assert alone == ["stacks --folder stacks/. --hosts-alone"]
    assert json.loads(job.outputs()["hosts-alone"]) == ["test"]


def test_the_plan_of_a_rollout_becomes_its_waves(job: Job) -> None:
    _program(job, 'echo "$*" >&2; case "$*" in "fleet plan") echo 0. canary;; *) echo \'[{"name": "canary"}]\';; esac')
    done = job.run(script(jobs("rollout")["plan"], "Plan"))
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == ["fleet plan", "fleet matrix", "stacks --folder program --hosts-alone"]
    assert json.loads(job.outputs()["waves"]) == [{"name": "canary"}]
    assert job.summary.read_text(encoding="utf-8") == "0. canary\n"


@pytest.mark.parametrize("fails", ["plan", "matrix"])
def test_a_rollout_without_an_order_does_not_begin(job: Job, fails: str) -> None:
    _program(job, f'case "$*" in "fleet {fails}") exit 1;; esac')
    assert job.run(script(jobs("rollout")["plan"], "Plan")).returncode == 1
    assert "waves" not in job.outputs()


@pytest.mark.parametrize("status", [0, 3])
def test_the_gate_of_a_wave_ends_as_its_command_does(job: Job, status: int) -> None:
    _program(job, f'echo "$*"; exit {status}')
    done = job.run(script(jobs("rollout-wave")["gate"], "Gate"), WAVE="pilots")
    assert (done.returncode, done.stdout) == (status, "fleet gate --wave pilots --results results\n")


def test_a_site_is_updated_by_its_name(job: Job) -> None:
    _program(job, 'echo "$*"')
    done = job.run(script(jobs("rollout-wave")["update"], "Update"), STACK="eu-1")
    assert (done.returncode, done.stdout) == (0, "fleet update eu-1\n")


@pytest.mark.parametrize(
    ("name", "part", "step"), [("preview", "stacks", "list"), ("rollout-wave", "approval", "begin")]
)
def test_what_jobs_leave_for_others_has_the_folders_own_name_where_a_run_is_for_several(
    job: Job, name: str, part: str, step: str
) -> None:
    _program(job, "echo []")
    places = []
    for folder in ("clusters", "clusters/prod", "clusters-prod", "clusters"):
        done = job.run(script(jobs(name)[part], step), FOLDER=folder, BASE="0" * 40, WAVE="pilots")
        assert done.returncode == 0, done.stderr
        places.append(job.outputs()["place"])
    assert len({*places}) == 3
    assert places[0] == places[3]
    assert all(re.fullmatch("[0-9a-f]{8}", place) for place in places), "as names of artifacts have to be"


@pytest.mark.parametrize("step", ["Compare", "Tell"])
def test_drift_is_told_with_the_folder(job: Job, step: str) -> None:
    _program(job, 'echo "$*"')
    done = job.run(script(jobs("drift")["drift"], step), STACK="prod", FOLDER="clusters")
    assert done.stdout.endswith(" --stack prod --folder clusters\n")
    assert jobs("drift")["drift"]["env"]["FOLDER"] == "${{ inputs.folder }}"


def test_a_list_that_can_t_be_made_fails_the_job(job: Job) -> None:
    _program(job, "exit 1")
    assert job.run(script(jobs("drift")["stacks"], "list"), FOLDER="stacks/.").returncode == 1
    assert job.outputs() == {}


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is on GitHub's machines, and not here")
def test_every_stack_gets_its_comment_also_after_one_that_fails(job: Job) -> None:
    _program(job, 'echo "$*"; case "$*" in *"--stack bad"*) exit 1;; esac')
    (job.folder / "review" / "preview-0123abcd-prod").mkdir(parents=True)
    (job.folder / "review" / "preview-0123abcd-test").mkdir()
    (job.folder / "review" / "preview-0123abcd-test" / "skipped").touch()
    comment = script(jobs("preview")["comment"], "Comment")
    run = {"PULL_REQUEST": "7", "HEAD": "c0ffee", "FOLDER": "clusters", "PLACE": "0123abcd"}
    done = job.run(comment, STACKS='["bad", "prod", "test"]', **run)
    assert done.returncode == 1
    options = "--pull-request 7 --head c0ffee --folder clusters"
    assert done.stdout.splitlines() == [
        f"post --stack bad {options} --out review/preview-0123abcd-bad",
        f"post --stack prod {options} --out review/preview-0123abcd-prod",
        f"post --stack test {options} --out review/preview-0123abcd-test --skipped",
        "retire --pull-request 7 --folder clusters",
    ]


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is on GitHub's machines, and not here")
def test_a_pull_request_that_concerns_no_stack_any_more_still_mends_older_comments(job: Job) -> None:
    _program(job, 'echo "$*"')
    done = job.run(
        script(jobs("preview")["comment"], "Comment"), STACKS="[]", PULL_REQUEST="7", HEAD="c0ffee", FOLDER="."
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "retire --pull-request 7 --folder .\n"


def test_a_release_publishes_the_files_and_names_the_images(job: Job) -> None:
    (job.folder / "dist").mkdir()
    files = ("kai-anywhere-v1.2.3.tar.gz", "stack.schema.json", "agents.cdx.json", "SHA256SUMS", "notes.md")
    for name in files:
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
        *("--notes-file", "dist/notes.md", "dist/kai-anywhere-v1.2.3.tar.gz", "dist/agents.cdx.json"),
        *("dist/stack.schema.json", "dist/SHA256SUMS"),
    ]
    notes = (job.folder / "dist" / "notes.md").read_text(encoding="utf-8")
    assert notes == (
        "notes\n\nImages for amd64 and arm64:\n\n- `ghcr.io/o/r/agents@sha256:1`\n- `ghcr.io/o/r/metrics@sha256:2`\n"
    )


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def publish_docs(job: Job) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Run the script that publishes docs against a repository on this machine, in a fresh workspace each time."""
    _git("init", "--quiet", "--bare", str(job.folder / "server" / "o" / "r"))
    gh = job.folder / "bin" / "gh"
    gh.parent.mkdir()
    gh.write_text('#!/bin/sh\ntest "$*" = "auth setup-git"\n', encoding="utf-8")
    gh.chmod(0o755)
    _program(job, f'exec "{sys.executable}" -m operations "$@"')
    site = job.folder / "program" / ".site"
    site.mkdir()

    def run(version: str) -> subprocess.CompletedProcess[str]:
        (site / "index.html").write_text(f"docs of {version}", encoding="utf-8")
        shutil.rmtree(job.folder / "pages", ignore_errors=True)
        return job.run(
            script(jobs("release")["docs"], "Publish"),
            VERSION=version,
            ADDRESS="https://o.github.io/r/",
            AUTHOR="somebody",
            GITHUB_SERVER_URL=f"file://{job.folder / 'server'}",
            GITHUB_REPOSITORY="o/r",
            PYTHONPATH=str(ROOT),
            PATH=f"{gh.parent}:{os.environ['PATH']}",
            HOME=str(job.folder),
        )

    return run


def test_each_versions_docs_are_pushed_beside_the_others(
    job: Job, publish_docs: Callable[[str], subprocess.CompletedProcess[str]]
) -> None:
    server = str(job.folder / "server" / "o" / "r")
    for version in ("v1.0.0", "v1.1.0", "v1.0.1"):
        done = publish_docs(version)
        assert done.returncode == 0, done.stdout + done.stderr
    subjects = _git("-C", server, "log", "--format=%s by %an", "gh-pages").splitlines()
    assert subjects == [f"Docs of {version} by somebody" for version in ("v1.0.1", "v1.1.0", "v1.0.0")]
    for version in ("v1.0.0", "v1.1.0", "v1.0.1"):
        assert _git("-C", server, "show", f"gh-pages:{version}/index.html") == f"docs of {version}"
    assert _git("-C", server, "show", "gh-pages:latest/index.html") == "docs of v1.1.0"


def test_docs_that_are_published_already_make_no_commit(
    job: Job, publish_docs: Callable[[str], subprocess.CompletedProcess[str]]
) -> None:
    assert publish_docs("v1.0.0").returncode == 0
    again = publish_docs("v1.0.0")
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines()[-1] == "The docs of v1.0.0 are published already."
    assert _git("-C", str(job.folder / "server" / "o" / "r"), "rev-list", "--count", "gh-pages") == "1"


def test_docs_that_can_t_be_published_push_nothing(
    job: Job, publish_docs: Callable[[str], subprocess.CompletedProcess[str]]
) -> None:
    assert publish_docs("1.0").returncode != 0
    assert _git("-C", str(job.folder / "server" / "o" / "r"), "for-each-ref") == ""
