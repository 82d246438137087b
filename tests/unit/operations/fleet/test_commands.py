"""`kai-anywhere fleet`: what its commands print, and what they leave."""

import io
import json
import os
import re
import shlex
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner, Result

import toolchain
from operations import engine, target
from operations.__main__ import app
from operations.errors import OperationError
from operations.fleet import commands, states, table
from operations.fleet.report import HistoryEntry, Report, site_of
from operations.fleet.states import tags_of
from testbed.stacks import ROOT, STACK_FILES, Json, jetson
from tests.support.json_schema import judge
from tests.support.releases import git
from tests.unit.operations.fleet.test_order import SITES, TEXT
from toolchain import programs
from toolchain.progress import progress

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OPERATOR = """
operator:
  repository: https://git.example.com/clusters.git
  folder: gpu
  backend: s3://states
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A team's folder: four sites on one base, and their order."""
    (tmp_path / "bases").mkdir()
    base = {"config": {"kai-anywhere:settings": jetson()}}
    (tmp_path / "bases" / "jetson.yaml").write_text(json.dumps(base), encoding="utf-8")
    config = {"kai-anywhere:base": "bases/jetson.yaml", "kai-anywhere:settings": {}}
    for site in SITES:
        (tmp_path / f"Pulumi.{site}.yaml").write_text(json.dumps({"config": config}), encoding="utf-8")
    (tmp_path / "fleet.yaml").write_text(TEXT, encoding="utf-8")
    return tmp_path


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["fleet", *map(str, arguments)])


def test_the_order_is_printed(folder: Path) -> None:
    assert _run("plan", "--folder", folder).stdout.splitlines() == [
        "0. canary: 1 site; 0 may fail.",
        "   berlin",
        "1. pilots: 1 site; 0 may fail.",
        "   eu-1",
        "2. everywhere: 2 sites, 2 at a time; 1 may fail.",
        "   eu-2, us-1",
    ]


def test_the_matrix_has_every_wave_on_one_line(folder: Path) -> None:
    done = _run("matrix", "--folder", folder)
    assert len(done.stdout.splitlines()) == 1
    first, *_, last = json.loads(done.stdout)
    assert first == {"name": "canary", "sites": ["berlin"], "failure_budget": 0, "parallel": 1}
    assert last == {"name": "everywhere", "sites": ["eu-2", "us-1"], "failure_budget": 1, "parallel": 2}


def test_more_waves_than_the_workflow_has_are_refused(folder: Path) -> None:
    for number in range(6):
        (folder / f"Pulumi.w{number}.yaml").touch()
    waves = [{"name": f"w{number}", "sites": [f"w{number}"]} for number in range(6)]
    waves[0]["sites"] = ["w0", "eu-*", "us-*"]
    (folder / "fleet.yaml").write_text(yaml.safe_dump({"canary": "berlin", "waves": waves}), encoding="utf-8")
    assert _run("plan", "--folder", folder).exit_code == 0
    error = _run("matrix", "--folder", folder).exception
    assert str(error) == "fleet.yaml has 6 waves; the workflow has 5 after the canary. Put some of them together."


def test_more_sites_than_a_matrix_may_have_are_refused(folder: Path) -> None:
    for number in range(257):
        (folder / f"Pulumi.n{number}.yaml").touch()
    error = _run("matrix", "--folder", folder).exception
    assert "wave 'everywhere' has 259 sites; GitHub runs at most 256 jobs of one matrix. Split it." in str(error)


def _results(folder: Path, **outcomes: str) -> Path:
    results = folder / "results"
    for site, outcome in outcomes.items():
        file = results / f"rollout-everywhere-{site}" / f"{site}.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"site": site.replace("_", "-"), "outcome": outcome}), encoding="utf-8")
    return results


def test_the_gate_opens_within_the_budget(folder: Path) -> None:
    results = _results(folder, eu_2="updated", us_1="failed")
    done = _run("gate", "--wave", "everywhere", "--results", results, "--folder", folder)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "Wave 'everywhere': 1 of 2 sites are updated.",
        "  failed: us-1",
        "1 of at most 1 failed: the next wave may begin.",
    ]


@pytest.mark.parametrize("outcomes", [{}, {"eu_2": "failed", "us_1": "failed"}, {"eu_2": "done", "us_1": "x"}])
def test_the_gate_stays_shut_beyond_it(folder: Path, outcomes: dict[str, str]) -> None:
    results = _results(folder, **outcomes)
    done = _run("gate", "--wave", "everywhere", "--results", results, "--folder", folder)
    assert done.exit_code == 3
    assert "2 failed, and at most 1 may: the next wave does not begin." in done.stdout


def test_the_gate_tells_the_summary_of_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / "summary"))
    _run("gate", "--wave", "canary", "--results", _results(folder, berlin="updated"), "--folder", folder)
    assert "1 of 1 sites are updated." in (folder / "summary").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["", "{", '{"site": "eu-2"}', '{"site": "eu-2", "outcome": "updated", "x": 1}'])
def test_what_is_no_result_is_as_if_nothing_was_heard(folder: Path, text: str) -> None:
    results = _results(folder, us_1="updated")
    (results / "eu-2.json").write_text(text, encoding="utf-8")
    done = _run("gate", "--wave", "everywhere", "--results", results, "--folder", folder)
    assert "nothing was heard of: eu-2" in done.stdout
    assert "warning: eu-2.json is no result of a site." in done.stderr


@pytest.mark.parametrize("fails", [False, True])
def test_an_update_leaves_its_result_whatever_comes_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    opened: list[Any] = []

    @contextmanager
    def open_target(site: str, *, start: bool) -> Iterator[str]:
        assert not start
        yield site

    def up(target: str, *options: str) -> None:
        opened.append((target, options))
        assert json.loads((tmp_path / "berlin.json").read_text(encoding="utf-8"))["outcome"] == "failed"
        if fails:
            raise OperationError("pulumi up failed")

    monkeypatch.setattr(commands, "open_target", open_target)
    monkeypatch.setattr(engine, "check_protection", lambda _: None)
    monkeypatch.setattr(engine, "up", up)
    done = _run("update", "berlin", "--out", tmp_path)
    assert isinstance(done.exception, OperationError) is fails
    assert opened == [("berlin", ("--yes", "--skip-preview", "--non-interactive"))]
    result = json.loads((tmp_path / "berlin.json").read_text(encoding="utf-8"))
    assert result == {"site": "berlin", "outcome": "failed" if fails else "updated"}


def test_a_site_without_a_cluster_is_not_updated_on_a_simulator_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(STACK_FILES / "Pulumi.jetson.yaml", tmp_path / "Pulumi.berlin.yaml")
    monkeypatch.setattr("operations.target.ROOT", tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    done = _run("update", "berlin", "--out", tmp_path)
    assert "Stack 'berlin' has no simulator. If it is on a cluster of yours, name that" in str(done.exception)
    assert json.loads((tmp_path / "berlin.json").read_text(encoding="utf-8"))["outcome"] == "failed"
    assert not (tmp_path / ".simulator").exists()


@pytest.mark.parametrize("site", ["../berlin", "a b", ""])
def test_what_is_no_site_leaves_no_file(tmp_path: Path, site: str) -> None:
    assert "is no stack name" in str(_run("update", site, "--out", tmp_path / "out").exception)
    assert not (tmp_path / "out").exists()


def test_an_operators_stack_waits_for_all_of_the_wave_before_it(folder: Path) -> None:
    (folder / "fleet.yaml").write_text(TEXT + OPERATOR, encoding="utf-8")
    made = {document["spec"]["stack"]: document for document in yaml.safe_load_all(_operator(folder))}
    assert list(made) == [f"organization/kai-anywhere/{site}" for site in ("berlin", "eu-1", "eu-2", "us-1")]
    waits = {name.rpartition("/")[2]: manifest["spec"].get("prerequisites") for name, manifest in made.items()}
    assert waits == {
        "berlin": None,
        "eu-1": [{"name": "kai-anywhere-berlin"}],
        "eu-2": [{"name": "kai-anywhere-eu-1"}],
        "us-1": [{"name": "kai-anywhere-eu-1"}],
    }
    assert {manifest["spec"]["commit"] for manifest in made.values()} == {COMMIT}
    assert {manifest["spec"]["repoDir"] for manifest in made.values()} == {"gpu"}


def test_an_operators_stacks_are_those_of_the_folders_own_project(folder: Path) -> None:
    (folder / "fleet.yaml").write_text(TEXT + OPERATOR, encoding="utf-8")
    (folder / "Pulumi.yaml").write_text("name: gpus\nruntime: yaml\n", encoding="utf-8")
    first = next(yaml.safe_load_all(_operator(folder)))
    assert first["spec"]["stack"] == "organization/gpus/berlin"


def test_an_operators_stack_names_its_secrets_and_holds_none(folder: Path) -> None:
    (folder / "fleet.yaml").write_text(TEXT + OPERATOR, encoding="utf-8")
    first = next(yaml.safe_load_all(_operator(folder)))
    variables = first["spec"]["envRefs"]
    assert variables["PULUMI_CONFIG_PASSPHRASE"]["secret"] == {"name": "kai-anywhere-berlin", "key": "passphrase"}
    pod = first["spec"]["workspaceTemplate"]["spec"]["podTemplate"]["spec"]
    [volume] = pod["volumes"]
    [mount] = pod["containers"][0]["volumeMounts"]
    assert volume["secret"]["secretName"] == "kai-anywhere-berlin"
    assert variables["KUBECONFIG"]["literal"]["value"] == f"{mount['mountPath']}/{volume['secret']['items'][0]['path']}"
    assert mount["readOnly"] is True
    assert "destroyOnFinalize" not in first["spec"], "who deletes the object leaves the site as it is"


def test_an_operators_file_says_how_it_is_applied_without_taking_over_another_fleets_objects(folder: Path) -> None:
    (folder / "fleet.yaml").write_text(TEXT + OPERATOR, encoding="utf-8")
    text = _operator(folder)
    command = "kubectl apply --server-side --field-manager='https://git.example.com/clusters.git gpu' -f FILE"
    assert text.splitlines()[1] == f"# {command}"
    for made in yaml.safe_load_all(text):
        assert made["metadata"]["annotations"] == {"kai-anywhere.io/fleet": "https://git.example.com/clusters.git gpu"}


def test_a_field_managers_name_is_one_that_the_api_server_takes(folder: Path) -> None:
    (folder / "fleet.yaml").write_text(TEXT + OPERATOR.replace("clusters.git", f"{'a' * 200}.git"), encoding="utf-8")
    [_, *said] = shlex.split(_operator(folder).splitlines()[1], comments=False)
    [manager] = [word.removeprefix("--field-manager=") for word in said if word.startswith("--field-manager=")]
    assert (len(manager), manager[-8:]) == (128, ".git gpu")


def _operator(folder: Path) -> str:
    done = _run("operator", "--commit", COMMIT, "--folder", folder)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_site_that_can_be_no_objects_name_is_refused(folder: Path) -> None:
    (folder / "Pulumi.Lab_1.yaml").touch()
    (folder / "fleet.yaml").write_text(TEXT + OPERATOR, encoding="utf-8")
    error = _run("operator", "--commit", COMMIT, "--folder", folder).exception
    assert "'Lab_1' can't be the name of a Kubernetes object" in str(error)


def test_the_operator_needs_its_section_and_a_whole_commit(folder: Path) -> None:
    assert "no section `operator`" in str(_run("operator", "--commit", COMMIT, "--folder", folder).exception)
    assert "'main' is no whole commit" in str(_run("operator", "--commit", "main", "--folder", folder).exception)


STACK_URN = "urn:pulumi:berlin::kai-anywhere::pulumi:pulumi:Stack::kai-anywhere-berlin"
EXPORT = {
    "version": 3,
    "deployment": {
        "manifest": {"version": "v3.259.0"},
        "resources": [
            {
                "urn": STACK_URN,
                "type": "pulumi:pulumi:Stack",
                "custom": False,
                "outputs": {"platform": "the team's own word"},
            },
            {
                "type": "kai-anywhere:index:KaiAnywhere",
                "custom": False,
                "outputs": {
                    "platform": "tegra",
                    "kai_version": "0.18.6",
                    "gpu_operator_version": {"4dabf18193072939515e22adb298388d": "x", "ciphertext": "v1:y"},
                },
            },
            {
                "urn": STACK_URN.replace(
                    "pulumi:pulumi:Stack", "kai-anywhere:index:KaiAnywhere$pulumi:providers:kubernetes"
                ),
                "type": "pulumi:providers:kubernetes",
                "outputs": {"clusterIdentifier": "11112222-3333"},
            },
            {"type": "pulumi:providers:kubernetes", "outputs": {"clusterIdentifier": "00000000-a-teams-own"}},
            {"type": "kubernetes:core/v1:Namespace", "outputs": {}},
        ],
        "pending_operations": [{"resource": {"type": "kubernetes:core/v1:Secret"}, "type": "creating"}],
    },
}
HISTORY = [
    {
        "kind": "update",
        "startTime": "2026-11-23T20:33:55.000Z",
        "result": "failed",
        "environment": {"git.head": COMMIT},
        "config": {"kai-anywhere:lab-key": {"secret": True}},
    }
]
PULUMI = """#!{python}
import json, pathlib, sys
_, project, name = sys.argv[sys.argv.index("--stack") + 1].split("/")
folder = pathlib.Path(sys.argv[sys.argv.index("--cwd") + 1])
# A project may name its backend, so the one that has the states is asked in its own folder.
own = "name: {project}" in (folder / "Pulumi.yaml").read_text(encoding="utf-8").splitlines()
if name == "eu-2" or project != "{project}" or not own:
    sys.exit("error: no stack named 'organization/kai-anywhere/eu-2' found")
if name == "us-1":
    sys.exit("warning: old\\nerror: PULUMI_ACCESS_TOKEN must be set for login during non-interactive CLI sessions")
if name == "eu-1":
    print("[]" if "history" in sys.argv else '{{"deployment": {{"resources": 5}}}}')
else:
    print(json.dumps({history} if "history" in sys.argv else {export}))
"""


@pytest.fixture
def project() -> str:
    """The project that has the states."""
    return "kai-anywhere"


@pytest.fixture
def _pulumi(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, project: str) -> None:
    """A program in the place of pulumi, which has a state of each kind."""
    program = tmp_path_factory.mktemp("bin") / "pulumi"
    text = PULUMI.format(python=sys.executable, history=HISTORY, export=EXPORT, project=project)
    program.write_text(text, encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr(toolchain, "environment", lambda _programs: {"PATH": str(program.parent)})


@pytest.mark.usefixtures("_pulumi")
def test_the_table_has_every_site_and_says_why_one_is_not_read(folder: Path) -> None:
    done = _run("status", "--folder", folder)
    assert done.exit_code == 4, done.output
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert next(iter(lines)) == "Site"
    assert [name for name in lines if name in SITES] == SITES
    for said in (
        "canary",
        "11112222",
        "tegra",
        "0.18.6",
        COMMIT[:12],
        "2026-11-23 20:33",
        "1 pending",
        "update failed",
    ):
        assert said in lines["berlin"]
    assert "never" in lines["eu-2"]
    assert "not read" in lines["us-1"]
    assert "us-1: error: PULUMI_ACCESS_TOKEN must be set" in done.stderr
    assert "Log in to the backend that holds the states: pulumi login" in done.stderr
    assert "eu-1: The state of stack 'eu-1' is not what pulumi writes: deployment.resources" in done.stderr
    assert "ciphertext" not in done.output


def _package(version: str, **internal: str) -> Json:
    inputs = {"__internal": internal, "version": version}
    return {"type": "pulumi:providers:kai-anywhere", "inputs": inputs, "outputs": {"version": version}}


def _program(version: Any) -> Json:  # noqa: ANN401 - JSON
    return {"type": "pulumi:pulumi:Stack", "custom": False, "outputs": {"program_version": version}}


GIT = "git://github.com/example/kai-anywhere/package"


@pytest.mark.parametrize(
    ("resource", "tags", "version"),
    [
        (_package("1.2.3", pluginDownloadURL=GIT), {COMMIT: "v9.9.9"}, "v1.2.3"),
        (_package(f"0.0.0-x{COMMIT[::-1]}", pluginDownloadURL=GIT), {}, COMMIT[::-1][:12]),
        (_program("v1.2.3"), {COMMIT: "v9.9.9"}, "v1.2.3"),
        (_program({"ciphertext": "v1:y"}), {}, COMMIT[:12]),
        # The package of a checkout, for the labels of many nodes: its version is no tag.
        (_package("1.2.3"), {COMMIT: "v1.2.2"}, "v1.2.2"),
        (_package("1.2.3"), {COMMIT[::-1]: "v1.2.2"}, COMMIT[:12]),
    ],
    ids=["package", "package at a commit", "program", "an encrypted output", "checkout at a tag", "checkout"],
)
def test_the_version_is_the_tag_at_which_a_site_was_taken_else_a_commit(
    resource: Json, tags: dict[str, str], version: str
) -> None:
    checkpoint = engine.Checkpoint.model_validate({"resources": [resource]})
    history = [HistoryEntry.model_validate(HISTORY[0])]
    assert site_of("berlin", checkpoint, history, tags, wave=None, simulated=False).version == version


def test_the_package_says_its_version_whatever_a_teams_project_makes_an_output() -> None:
    resources = [_program("the team's own word"), _package("1.2.3", pluginDownloadURL=GIT)]
    checkpoint = engine.Checkpoint.model_validate({"resources": resources})
    assert site_of("berlin", checkpoint, [], {}, wave=None, simulated=False).version == "v1.2.3"


def test_a_site_of_which_nothing_is_known_has_no_version() -> None:
    assert site_of("berlin", engine.Checkpoint(), [], {}, wave=None, simulated=False).version is None


def test_a_first_update_that_was_killed_at_its_first_resource_is_told_as_that() -> None:
    """The exit status speaks of it, and where pulumi is not logged in to a service there is no history of it."""
    begun = {"resource": {"urn": "urn:pulumi:berlin::p::t::n", "type": "t"}, "type": "creating"}
    checkpoint = engine.Checkpoint.model_validate({"pending_operations": [begun]})
    site = site_of("berlin", checkpoint, [], {}, wave=None, simulated=False)
    console = Console(width=160, file=io.StringIO())
    console.print(table.states(Report(sites=(site,))))
    assert isinstance(console.file, io.StringIO)
    [line] = [line for line in console.file.getvalue().splitlines() if "berlin" in line]
    assert ("1 pending" in line, "never" in line) == (True, False)


def test_a_checkout_knows_the_commits_of_its_versions_and_of_no_other_tags(tmp_path: Path) -> None:
    assert tags_of(tmp_path) == {}
    git(tmp_path, "init", "--quiet")
    commits = []
    for number in range(3):
        git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", str(number))
        commits.append(git(tmp_path, "rev-parse", "HEAD").strip())
    git(tmp_path, "tag", "v1.2.3", commits[0])
    git(tmp_path, "tag", "--annotate", "--message", "signed, in life", "v1.2.4", commits[1])
    git(tmp_path, "tag", "lab", commits[2])
    assert tags_of(tmp_path) == {commits[0]: "v1.2.3", commits[1]: "v1.2.4"}


@pytest.mark.usefixtures("_pulumi")
def test_the_json_is_of_the_documented_form(folder: Path) -> None:
    done = _run("status", "--folder", folder, "--json")
    report = json.loads(done.stdout)
    judge(json.loads((ROOT / "docs" / "fleet.schema.json").read_text(encoding="utf-8"))).validate(report)
    by_name = {site["site"]: site for site in report["sites"]}
    assert by_name["berlin"]["resources"] == 1, "neither the stack nor its provider is one"
    assert by_name["berlin"]["gpu_operator"] is None, "what is encrypted stays so"
    assert by_name["berlin"]["last"]["result"] == "failed"
    assert by_name["eu-2"] == by_name["eu-2"] | {"unread": None, "resources": 0, "last": None}
    assert "lab-key" not in done.stdout


@pytest.mark.usefixtures("_pulumi")
def test_while_backends_are_asked_it_tells_how_many_have_answered(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "progress", partial(progress, plain_interval=0.01))
    done = _run("status", "--folder", folder, "--json")
    assert re.search(rf"(?m)^reading states: \d+ of {len(SITES)} sites, \d+ s$", done.stderr), done.stderr
    json.loads(done.stdout)


@pytest.mark.usefixtures("_pulumi")
def test_the_states_take_nothing_but_pulumi(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[toolchain.Program] = []

    def environment(programs: Iterable[toolchain.Program]) -> dict[str, str]:
        asked.extend(programs)
        return dict(os.environ)

    monkeypatch.setattr(toolchain, "environment", environment)
    _run("status", "--folder", folder)
    assert asked == [programs.PULUMI], "without the Kubernetes provider, which takes minutes to build"


@pytest.mark.usefixtures("_pulumi")
def test_some_sites_are_enough_and_no_order_is_needed(folder: Path) -> None:
    (folder / "fleet.yaml").unlink()
    done = _run("status", "eu-2", "--folder", folder)
    assert (done.exit_code, "berlin" in done.stdout, "Wave" in done.stdout) == (0, False, False)


@pytest.mark.usefixtures("_pulumi")
def test_a_site_with_wrong_settings_is_read_all_the_same(folder: Path) -> None:
    (folder / "Pulumi.eu-2.yaml").write_text("config: {kai-anywhere:settings: {}}", encoding="utf-8")
    done = _run("status", "eu-2", "--folder", folder)
    assert "never" in done.stdout


@pytest.mark.usefixtures("_pulumi")
@pytest.mark.parametrize("project", ["fleet"])
def test_the_states_are_those_of_the_folders_own_project(folder: Path, project: str) -> None:
    (folder / "Pulumi.yaml").write_text(f"name: {project}\nruntime: yaml\n", encoding="utf-8")
    done = _run("status", "berlin", "--folder", folder)
    assert "11112222" in done.stdout, done.output


@pytest.mark.usefixtures("_pulumi")
@pytest.mark.parametrize("project", ["fleet"])
def test_in_a_checkout_for_a_teams_stacks_the_states_are_those_of_the_teams_project(
    folder: Path, project: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    team = tmp_path_factory.mktemp("team")
    (team / "Pulumi.yaml").write_text(f"name: {project}\nruntime: yaml\n", encoding="utf-8")
    (folder / "Pulumi.yaml").write_text("name: kai-anywhere\nruntime: python\n", encoding="utf-8")
    (folder / ".project").symlink_to(team)
    for module in (states, target):
        monkeypatch.setattr(module, "ROOT", folder)
    done = _run("status", "berlin", "--folder", folder)
    assert "11112222" in done.stdout, done.output


@pytest.mark.usefixtures("_pulumi")
def test_a_simulator_of_this_checkout_is_no_site_of_another_folder(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulators = tmp_path_factory.mktemp("simulators")
    (simulators / "berlin" / "state").mkdir(parents=True)
    monkeypatch.setattr(states, "folder", lambda stack: simulators / stack)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    done = _run("status", "berlin", "--folder", folder)
    assert "11112222" in done.stdout, done.output
    assert "(simulator)" not in done.stdout


def test_a_site_that_is_not_there_names_those_that_are(folder: Path) -> None:
    assert "There is no site rome. There are: berlin, eu-1" in str(_run("status", "rome", "--folder", folder).exception)
