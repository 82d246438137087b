"""The workflows: what they may do, what they run, and that a linter of workflows finds nothing."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from operations.fleet import commands as fleet_commands
from testbed.stacks import ROOT
from tests.support.command_tree import commands
from tests.unit.workflows.files import ACTIONS, FOLDER, TRIGGERS, WORKFLOWS, content, jobs, scripts, steps

TARGETS = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8")))
REUSABLE = ["drift", "policy", "preview", "release", "rollout-wave", "rollout"]
OWN_ACTIONS = {
    "./.github/actions/setup",
    "./program/.github/actions/setup",
    "./program/.github/actions/credentials",
    *(f"./.github/workflows/{name}.yml" for name in REUSABLE),
}

every_workflow = pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
every_reusable = pytest.mark.parametrize("name", REUSABLE)


def _step(job: dict[str, Any], action: str) -> dict[str, Any]:
    [entry] = [step for step in steps(job) if step.get("uses", "").startswith(f"{action}@")]
    return dict(entry)


def _checkouts(job: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What a job checks out, by folder."""
    checkouts = [step["with"] for step in steps(job) if step.get("uses", "").startswith("actions/checkout@")]
    return {checkout.get("path", "."): checkout for checkout in checkouts}


def test_the_workflows_are_those_that_anybody_calls_and_those_of_this_repository() -> None:
    called = [file.stem for file in WORKFLOWS if "workflow_call" in content(file)[TRIGGERS]]
    assert called == REUSABLE
    assert [file.stem for file in WORKFLOWS if file.stem not in called] == [
        "ci",
        "daily",
        "pull-request",
        "supply-chain",
        "tag",
    ]


@pytest.mark.parametrize("file", [*WORKFLOWS, *ACTIONS], ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_every_action_is_pinned_by_the_digest_of_a_release(file: Path) -> None:
    for use in re.findall(r"(?m)^\s*(?:- )?uses: (.+)$", file.read_text(encoding="utf-8")):
        assert use in OWN_ACTIONS or re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", use), use


def test_an_action_has_one_version_everywhere() -> None:
    text = "".join(file.read_text(encoding="utf-8") for file in [*WORKFLOWS, *ACTIONS])
    pins: dict[str, set[str]] = {}
    for action, pin in re.findall(r"uses: ([\w-]+/[\w-]+)@(.+)", text):
        pins.setdefault(action, set()).add(pin)
    assert pins
    assert {action: versions for action, versions in pins.items() if len(versions) > 1} == {}


@every_workflow
def test_nothing_is_allowed_that_a_job_does_not_ask_for(file: Path) -> None:
    assert content(file)["permissions"] == {}
    for name, job in jobs(file.stem).items():
        assert job["permissions"] or (file.stem, name) == ("rollout-wave", "approval"), name
        assert "uses" in job or job["timeout-minutes"] <= 120, name


WRITES = {
    ("drift", "drift"): {"id-token", "issues"},
    ("preview", "preview"): {"id-token"},
    ("preview", "comment"): {"pull-requests"},
    ("release", "image"): {"id-token", "packages"},
    ("release", "release"): {"contents"},
    ("release", "docs"): {"contents"},
    ("daily", "drift"): {"id-token", "issues"},
    ("pull-request", "preview"): {"id-token", "pull-requests"},
    **{("rollout", name): {"id-token"} for name in ("canary", *(f"wave-{number}" for number in range(1, 6)))},
    ("rollout-wave", "update"): {"id-token"},
    ("tag", "release"): {"contents", "id-token", "packages"},
}
"""Who may write what; everybody else reads."""


@every_workflow
def test_who_may_write_what_is_as_listed(file: Path) -> None:
    for name, job in jobs(file.stem).items():
        writes = {scope for scope, access in job["permissions"].items() if access == "write"}
        assert writes == WRITES.get((file.stem, name), set()), name


@every_reusable
def test_the_stacks_are_found_by_their_files(name: str) -> None:
    text = (FOLDER / "workflows" / f"{name}.yml").read_text(encoding="utf-8")
    for stack in ("jetson", "x86"):
        assert stack not in text
    for job_name, job in jobs(name).items():
        if "matrix" in job.get("strategy", {}) and "stack" in job["strategy"]["matrix"]:
            expression = "inputs.sites" if name == "rollout-wave" else "needs.stacks.outputs.stacks"
            assert job["strategy"]["matrix"] == {"stack": f"${{{{ fromJSON({expression}) }}}}"}
            assert job["strategy"]["fail-fast"] is False
            assert "${{ matrix.stack }}" in job["concurrency"]["group"], job_name
            assert job["name"] == f"{job_name} (${{{{ matrix.stack }}}})", "one check per stack, with its name"


@pytest.mark.parametrize(("name", "job"), [("preview", "preview"), ("drift", "drift"), ("rollout-wave", "update")])
def test_a_teams_project_runs_where_the_guide_says_that_the_program_lies(name: str, job: str) -> None:
    guide = (ROOT / "docs" / "teams.md").read_text(encoding="utf-8")
    runs = jobs(name)[job]
    assert _checkouts(runs).keys() == {"stacks", "program"}
    for project, named in (("stacks", "../program/package"), ("stacks/clusters", "../../program/package")):
        assert f"`{named}`" in guide
        assert os.path.normpath(f"{project}/{named}") == "program/package"
    assert "They do not run `pulumi install`" in guide
    assert "pulumi install" not in scripts(runs)


def test_a_release_has_every_image_that_the_program_runs() -> None:
    image = jobs("release")["image"]
    matrix = image["strategy"]["matrix"]["include"]
    built = {str(path.relative_to(ROOT)) for path in (ROOT / "agents").rglob("Containerfile")}
    assert {entry["file"] for entry in matrix} == built
    assert image["outputs"].keys() == {entry["name"] for entry in matrix}
    assert "${{ matrix.name }}" in image["concurrency"]["group"]


@pytest.mark.parametrize("name", ["drift", "preview"])
def test_a_stacks_credentials_are_those_of_the_environment_with_its_name(name: str) -> None:
    job = jobs(name)[name]
    assert job["environment"] == "${{ matrix.stack }}"
    others = {other: job for other, job in jobs(name).items() if other != name}
    assert "secrets." not in yaml.safe_dump(others)
    assert not any("environment" in other for other in others.values())


@pytest.mark.parametrize("name", ["drift", "preview"])
def test_a_stack_without_credentials_is_skipped_and_never_red(name: str) -> None:
    listed = steps(jobs(name)[name])
    [asked] = [index for index, step in enumerate(listed) if step.get("id") == "credentials"]
    assert listed[asked]["uses"] == "./program/.github/actions/credentials"
    assert "environment" not in listed[asked]["with"], "the one with the stack's name"
    for step in listed[asked + 1 :]:
        assert "steps.credentials.outputs.configured == " in step["if"], step
    for step in listed[:asked]:
        assert step["uses"].startswith("actions/checkout@"), "nothing of the program runs before it"


def _waves() -> list[str]:
    return [name for name, job in jobs("rollout").items() if "uses" in job]


def test_a_rollout_has_as_many_waves_as_the_command_allows_one_after_the_other() -> None:
    names = _waves()
    assert len(names) == fleet_commands._MOST_WAVES
    assert names[0] == "canary"
    for index, name in enumerate(names):
        job = jobs("rollout")[name]
        assert job["uses"] == "./.github/workflows/rollout-wave.yml"
        assert set(job["with"].values()) >= {
            f"${{{{ fromJSON(needs.plan.outputs.waves)[{index}].name }}}}",
            f"${{{{ toJSON(fromJSON(needs.plan.outputs.waves)[{index}].sites) }}}}",
        }
        if index == 0:
            assert (job["needs"], "if" in job) == ("plan", False)
            continue
        assert job["needs"] == ["plan", names[index - 1]]
        # Without always() and the like, GitHub begins it only where what it needs has succeeded.
        assert job["if"] == f"fromJSON(needs.plan.outputs.waves)[{index}] != null"


def test_the_gate_decides_on_a_wave_and_a_site_that_fails_does_not() -> None:
    wave = jobs("rollout-wave")
    assert wave["update"]["continue-on-error"] is True
    assert wave["update"]["strategy"]["fail-fast"] is False
    assert wave["update"]["strategy"]["max-parallel"] == "${{ inputs.parallel }}"
    assert "continue-on-error" not in wave["gate"]
    assert wave["gate"]["needs"] == ["approval", "update"]
    assert wave["gate"]["if"].startswith("${{ !cancelled()"), "also after sites that failed"
    upload = _step(wave["update"], "actions/upload-artifact")
    assert (upload["if"], upload["with"]["name"]) == (
        "${{ !cancelled() }}",
        "rollout-${{ needs.approval.outputs.place }}-${{ inputs.wave }}-${{ matrix.stack }}",
    )
    pattern = "rollout-${{ needs.approval.outputs.place }}-${{ inputs.wave }}-*"
    assert _step(wave["gate"], "actions/download-artifact")["with"]["pattern"] == pattern


def test_a_wave_waits_for_the_reviewers_of_its_environment_and_a_site_has_credentials_that_previews_never_get() -> None:
    wave = jobs("rollout-wave")
    assert wave["approval"]["environment"] == "rollout-${{ inputs.wave }}"
    assert wave["update"]["needs"] == "approval"
    assert wave["update"]["environment"] == "${{ matrix.stack }}-rollout"
    [asked] = [step for step in steps(wave["update"]) if step.get("id") == "credentials"]
    assert asked["with"]["environment"] == wave["update"]["environment"], "what is missing is told of the right one"
    assert "environment" not in wave["gate"]
    every = [job.get("environment", "") for file in WORKFLOWS for job in jobs(file.stem).values()]
    assert [name for name in every if "-rollout" in name] == ["${{ matrix.stack }}-rollout"]
    assert "secrets." not in yaml.safe_dump([wave["approval"], wave["gate"]])


def test_a_site_without_credentials_is_not_updated_and_red() -> None:
    update = steps(jobs("rollout-wave")["update"])
    [asked] = [index for index, step in enumerate(update) if step.get("id") == "credentials"]
    assert update[asked + 1]["if"] == "steps.credentials.outputs.configured != 'true'"
    assert update[asked + 1]["run"] == "exit 1"


def test_nothing_that_others_wrote_is_cached_where_sites_are_updated() -> None:
    assert "cache" not in yaml.safe_dump(jobs("rollout-wave"))


def test_no_workflow_runs_the_code_of_a_fork_with_secrets() -> None:
    for file in WORKFLOWS:
        assert "pull_request_target" not in content(file)[TRIGGERS]
    assert "secrets" not in yaml.safe_dump(content(FOLDER / "workflows" / "policy.yml"))
    assert "id-token" not in yaml.safe_dump(jobs("policy"))
    preview = jobs("preview")
    assert "head.repo.full_name == github.repository" in preview["stacks"]["if"]
    assert preview["preview"]["needs"] == "stacks"
    assert "stacks" in preview["comment"]["needs"]


def test_a_secret_reaches_a_step_by_its_environment_only() -> None:
    for file in WORKFLOWS:
        for job in jobs(file.stem).values():
            for step in steps(job):
                assert "secrets." not in step.get("run", "")
                for key, value in step.get("with", {}).items():
                    assert "secrets." not in str(value) or key == "kubeconfig", "the action that writes it to a file"


def test_the_program_is_that_of_the_called_workflows_own_version() -> None:
    for name in ("drift", "policy", "preview", "rollout", "rollout-wave"):
        for job_name, job in jobs(name).items():
            if "uses" in job or job_name == "approval":
                assert not _checkouts(job), "another workflow does it, or nobody"
                continue
            checkouts = _checkouts(job)
            assert set(checkouts) == {"stacks", "program"}, job_name
            assert checkouts["program"]["repository"] == "${{ job.workflow_repository }}"
            if job_name != "comment":
                assert checkouts["program"]["ref"] == "${{ job.workflow_sha }}"
                assert "ref" not in checkouts["stacks"]
            assert all(checkout["persist-credentials"] is False for checkout in checkouts.values())


def test_the_code_of_a_pull_request_never_has_a_token_that_writes() -> None:
    assert "GITHUB_TOKEN" not in yaml.safe_dump(jobs("preview")["preview"])
    checkouts = _checkouts(jobs("preview")["comment"])
    assert checkouts["stacks"]["ref"] == "${{ github.event.pull_request.base.sha }}"
    assert checkouts["program"]["ref"] == (
        "${{ job.workflow_repository == github.repository && github.event.pull_request.base.sha || job.workflow_sha }}"
    )


def test_the_job_that_posts_takes_no_cache_that_a_pull_request_could_have_written() -> None:
    assert "cache" not in yaml.safe_dump(steps(jobs("preview")["comment"]))
    assert "cache" not in yaml.safe_dump(steps(jobs("drift")["drift"]))
    assert "cache: 'true'" in yaml.safe_dump(steps(jobs("preview")["preview"]))


def test_what_one_job_leaves_for_the_other_is_events_and_no_text_to_post() -> None:
    preview, comment = jobs("preview")["preview"], jobs("preview")["comment"]
    events, skipped = [step for step in steps(preview) if step.get("uses", "").startswith("actions/upload-artifact@")]
    assert events["with"]["path"] == "review/preview.json"
    assert events["with"]["name"] == "preview-${{ needs.stacks.outputs.place }}-${{ matrix.stack }}"
    assert events["if"] == "${{ !cancelled() && steps.credentials.outputs.configured == 'true' }}"
    # Where it is left, nothing of the pull request has run.
    assert skipped["with"]["path"] == "${{ runner.temp }}/skipped"
    assert skipped["if"] == "${{ !cancelled() && steps.credentials.outputs.configured == 'false' }}"
    download = _step(comment, "actions/download-artifact")
    assert download["with"] == {"pattern": "preview-${{ needs.stacks.outputs.place }}-*", "path": "review"}
    # Into a folder of its own: nothing of the base branch's code can be overwritten.
    assert not (ROOT / "review" / "__init__.py").exists()
    assert download["continue-on-error"] is True
    order = [step.get("uses", step.get("name", "")) for step in steps(comment)]
    assert order.index("./program/.github/actions/setup") < order.index(download["uses"]) < order.index("Comment")


@pytest.mark.parametrize("name", ["preview", "release", "rollout-wave"])
def test_of_two_attempts_of_a_run_the_last_one_holds(name: str) -> None:
    uploads = [
        step["with"]
        for job in jobs(name).values()
        for step in steps(job)
        if step.get("uses", "").startswith("actions/upload-artifact@")
    ]
    assert all(upload["overwrite"] is True for upload in uploads), "else GitHub refuses the second of a name"
    assert len({upload["name"] for upload in uploads}) == 1, "a preview in place of one that was skipped, too"


def test_the_job_that_posts_can_reach_neither_state_nor_cluster() -> None:
    job = jobs("preview")["comment"]
    assert set(job["permissions"]) == {"contents", "pull-requests"}
    assert "environment" not in job
    text = yaml.safe_dump(job)
    for reach in ("secrets.", "aws-", "backend-url", "KUBECONFIG", "pulumi"):
        assert reach not in text
    [holder] = [step for step in steps(job) if "GITHUB_TOKEN" in step.get("env", {})]
    assert holder["name"] == "Comment"


def test_the_comment_is_told_which_commit_was_previewed() -> None:
    [step] = [step for step in steps(jobs("preview")["comment"]) if step.get("name") == "Comment"]
    assert step["env"]["HEAD"] == "${{ github.event.pull_request.head.sha }}", (
        "that of the run, also when it is run again"
    )


def test_the_comment_is_written_when_the_preview_failed_and_when_no_stack_is_left() -> None:
    assert jobs("preview")["comment"]["if"] == "${{ !cancelled() && needs.stacks.result == 'success' }}"


def test_what_judges_without_secrets_takes_the_simulator_whatever_cluster_a_stack_names() -> None:
    for command in re.findall(r"bin/kai-anywhere (?:policy|review) .*", scripts(jobs("policy")["policy"])):
        assert command.endswith(" --simulator")
    assert "--simulator" not in scripts(jobs("preview")["preview"])


def test_ci_runs_what_decides_on_a_change_here() -> None:
    assert scripts(jobs("ci")["ci"]).split() == [".ci/run"]
    assert ".ci/run" in scripts(jobs("tag")["test"]).split()
    assert jobs("tag")["release"]["needs"] == "test"


@every_workflow
def test_every_command_that_is_run_exists(file: Path) -> None:
    existing = commands()
    for job in jobs(file.stem).values():
        for words in re.findall(r"(?m)^\s*make (?:-C program )?([a-z -]+)", scripts(job)):
            assert set(words.split()) <= TARGETS, words
        for command, inner in re.findall(r"bin/kai-anywhere ([a-z-]+) ?([a-z-]*)", scripts(job)):
            assert f"{command} {inner}" in existing if command == "fleet" else command in existing


@pytest.mark.parametrize("file", [*WORKFLOWS, *ACTIONS], ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_no_expression_stands_in_a_script(file: Path) -> None:
    runs = content(file).get("jobs") or {"action": content(file)["runs"]}
    for name, job in runs.items():
        assert "${{" not in scripts(job), name


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


def test_every_hashed_file_of_requirements_is_audited() -> None:
    hashed = {
        str(path.relative_to(ROOT))
        for path in [*ROOT.glob("requirements*.txt"), *ROOT.glob("agents/*/requirements.txt")]
    }
    script_of_audit = scripts(jobs("supply-chain")["python"])
    assert {file for file in hashed if file in script_of_audit} == hashed
    assert "--require-hashes" in script_of_audit


def test_what_scans_for_secrets_lets_no_file_and_no_rule_out_and_each_exception_is_of_a_text_that_is_there() -> None:
    settings = tomllib.loads((ROOT / ".gitleaks.toml").read_text(encoding="utf-8"))
    assert settings["extend"] == {"useDefault": True}
    listed = subprocess.run(["git", "-C", str(ROOT), "grep", "-Ihn", ""], check=True, capture_output=True, text=True)
    lines = [line for line in listed.stdout.splitlines() if "regexes" not in line]
    for allowed in settings["allowlists"]:
        assert allowed.keys() == {"description", "regexes", "regexTarget"}
        for regex in allowed["regexes"]:
            assert any(re.search(regex, line) for line in lines), regex


@pytest.mark.parametrize(
    ("name", "job", "alone"),
    [
        ("drift", "drift", "needs.stacks.outputs.hosts-alone"),
        ("preview", "preview", "needs.stacks.outputs.hosts-alone"),
        ("rollout-wave", "update", "inputs.hosts-alone"),
    ],
)
def test_a_stack_of_hosts_alone_is_known_to_whoever_asks_for_its_credentials(name: str, job: str, alone: str) -> None:
    [asked] = [step for step in steps(jobs(name)[job]) if step.get("id") == "credentials"]
    assert asked["with"]["cluster"] == f"${{{{ !contains(fromJSON({alone}), matrix.stack) }}}}"
    for wave in _waves():
        assert jobs("rollout")[wave]["with"]["hosts-alone"] == "${{ needs.plan.outputs.hosts-alone }}"
