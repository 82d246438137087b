"""Where a command works."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from operations import target
from operations.__main__ import app
from operations.errors import OperationError
from operations.init.files import TEMPLATES
from operations.target import ROOT, check_exported_options, folder, open_target, own_kubeconfig
from testbed.stacks import STACK_FILES, of_hosts_alone
from toolchain.programs import ENGINE, KUBERNETES_PROVIDER, LANGUAGE_PYTHON, LANGUAGE_YAML, PULUMI

PROGRAMS = (PULUMI, LANGUAGE_PYTHON, LANGUAGE_YAML, KUBERNETES_PROVIDER)


@pytest.fixture
def programs_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that answer as the real ones do when asked for their version, so that nothing is built."""
    for name in (*(program.name for program in PROGRAMS), "pulumi-language-python-exec"):
        file = tmp_path / name
        file.write_text("#!/bin/sh\necho v3.259.0\n", encoding="utf-8")
        file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", "/home/reader")
    monkeypatch.setenv("KAI_ANYWHERE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with the tests' stack files."""
    made = tmp_path / "checkout"
    shutil.copytree(STACK_FILES, made)
    shutil.copy(ROOT / "Pulumi.yaml", made)
    monkeypatch.setattr("operations.target.ROOT", made)
    return made


@pytest.mark.usefixtures("programs_on_path")
def test_a_chosen_kubeconfig_means_the_readers_own_cluster(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "~/.kube/config:/etc/lab:lab/config:")
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    monkeypatch.chdir("/etc")
    with open_target("jetson") as target:
        assert target.project == target.folder == checkout
        assert target.simulated == ()
        assert target.environment["KUBECONFIG"] == "/home/reader/.kube/config:/etc/lab:/etc/lab/config"
        assert "PULUMI_BACKEND_URL" not in target.environment, "the reader's own backend is used"
        assert target.settings.kai.chart.source is None, "the official chart"


def test_a_kubeconfig_whose_links_lead_in_a_circle_is_the_readers_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads it then says that there is none."""
    (tmp_path / "config").symlink_to("config")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    assert own_kubeconfig() == str(tmp_path / "config")


@pytest.mark.usefixtures("programs_on_path")
def test_a_teams_own_project_is_run_in_the_place_of_this_one(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    shutil.copytree(TEMPLATES / "component", theirs)
    monkeypatch.setenv("KUBECONFIG", "/etc/lab")
    (checkout / ".project").symlink_to(theirs)
    with open_target("jetson") as target:
        assert target.project == theirs
        assert target.qualified_name == "kai-anywhere/jetson"
    with (theirs / "Pulumi.yaml").open("a", encoding="utf-8") as text:
        text.write("stackConfigDir: hidden\n")
    with pytest.raises(OperationError, match="says `stackConfigDir: hidden`: pulumi would"), open_target("jetson"):
        pytest.fail("pulumi would read another file than the settings are from")
    (theirs / "Pulumi.yaml").rename(theirs / "Pulumi.yml")
    with pytest.raises(OperationError, match=r"has Pulumi\.yml: nothing here reads"), open_target("jetson"):
        pytest.fail("pulumi would read files that end as it does")
    (theirs / "Pulumi.yml").unlink()
    with (
        pytest.raises(OperationError, match=r"which has no Pulumi\.yaml\. Let it lead to the folder"),
        open_target("jetson"),
    ):
        pytest.fail("there is nothing to run")


@pytest.mark.parametrize("runtime", ["yaml", "{name: yaml, options: {}}"])
def test_a_project_in_yaml_gets_its_language_with_options_too(tmp_path: Path, runtime: str) -> None:
    (tmp_path / "Pulumi.yaml").write_text(f"name: a\nruntime: {runtime}\n", encoding="utf-8")
    assert LANGUAGE_YAML in target._programs(tmp_path)


@pytest.mark.parametrize("text", ["", "- a\n"])
def test_what_is_wrong_with_a_project_that_is_no_mapping_is_left_to_pulumi_to_say(tmp_path: Path, text: str) -> None:
    (tmp_path / "Pulumi.yaml").write_text(text, encoding="utf-8")
    assert target._programs(tmp_path) == ENGINE


@pytest.mark.usefixtures("programs_on_path")
@pytest.mark.parametrize("simulator_only", [False, True], ids=["own cluster", "simulator"])
def test_a_project_that_a_merge_left_in_conflict_is_told_with_its_line(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, *, simulator_only: bool
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    of_hosts_alone(checkout / "Pulumi.jetson.yaml")
    file = checkout / "Pulumi.yaml"
    ours = "<<<<<<< HEAD\nbackend:\n  url: file://~\n=======\n>>>>>>> v1.2.4\n"
    file.write_text(ours + file.read_text(encoding="utf-8"), encoding="utf-8")
    with (
        pytest.raises(OperationError, match=rf"^{file} is not YAML: (.|\n)* line 2"),
        open_target("jetson", simulator_only=simulator_only),
    ):
        pytest.fail("pulumi would refuse it")


@pytest.mark.parametrize("run", ["up", "preview", "down", "review", "fleet status"])
def test_options_of_pulumi_that_somebody_has_exported_are_refused_before_anything_runs(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, run: str
) -> None:
    monkeypatch.setenv("PULUMI_OPTION_PREVIEW_ONLY", "true")
    monkeypatch.setenv("PULUMI_OPTION_FILE", "state.json")
    done = CliRunner().invoke(app, [*run.split(), *(["--folder", str(checkout)] if "fleet" in run else [])])
    assert isinstance(done.exception, OperationError)
    assert str(done.exception) == (
        "Pulumi would take options that this command does not give it: PULUMI_OPTION_FILE, PULUMI_OPTION_PREVIEW_ONLY. "
        "Nothing was changed.\nTake them away first: unset PULUMI_OPTION_FILE PULUMI_OPTION_PREVIEW_ONLY"
    )


def test_the_stack_of_other_work_is_no_such_option_nor_is_an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_OPTION_STACK", "another")
    monkeypatch.setenv("PULUMI_OPTION_PREVIEW_ONLY", "")
    check_exported_options()


def test_removing_a_stack_starts_no_simulator_to_remove_it_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copy(STACK_FILES / "Pulumi.jetson.yaml", tmp_path)
    monkeypatch.setattr("operations.target.ROOT", tmp_path)
    own = tmp_path / ".simulator" / "jetson" / "cluster" / "kubeconfig"
    for chosen in (None, str(own)):
        if chosen is None:
            monkeypatch.delenv("KUBECONFIG", raising=False)
        else:
            monkeypatch.setenv("KUBECONFIG", chosen)
        with (
            pytest.raises(OperationError, match=r"no simulator\..*before the same command: KUBECONFIG="),
            open_target("jetson", start=False),
        ):
            pytest.fail("there is nothing to work on")
        assert not (tmp_path / ".simulator").exists()


def test_each_stack_has_a_simulator_of_its_own() -> None:
    assert folder("jetson") != folder("x86")
    assert folder("jetson").is_relative_to(ROOT / ".simulator")


@pytest.mark.usefixtures("programs_on_path")
def test_hosts_alone_are_the_readers_own_without_a_cluster(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    of_hosts_alone(checkout / "Pulumi.jetson.yaml")
    with open_target("jetson") as target:
        assert (target.project, target.simulated) == (checkout, ())
        assert target.settings.hosts_alone
    assert not (checkout / ".simulator").exists(), "nothing is simulated"


@pytest.mark.usefixtures("programs_on_path")
def test_hosts_alone_are_reviewed_on_the_simulator_without_a_cluster(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: object, **__: object) -> None:
        pytest.fail("no control plane is needed")

    monkeypatch.setattr("operations.target.simulator.up", started)
    of_hosts_alone(checkout / "Pulumi.jetson.yaml")
    with open_target("jetson", simulator_only=True) as target:
        assert target.project == checkout / ".simulator" / "jetson" / "project"
        assert target.simulated == ("Cluster: none, since the stack prepares hosts alone.",)
        assert target.settings.cluster.kubeconfig is None
    assert not (checkout / ".simulator" / "jetson" / "cluster").exists()


@pytest.mark.usefixtures("programs_on_path")
@pytest.mark.parametrize("left", ["", "config:\n  kai-anywhere:set", "encryptionsalt: 'v1:"])
def test_what_a_full_disk_left_of_a_simulators_stack_file_is_written_anew(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    """It has the name of the user's own file, which is as it was."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    of_hosts_alone(checkout / "Pulumi.jetson.yaml")
    file = checkout / ".simulator" / "jetson" / "project" / "Pulumi.jetson.yaml"
    with open_target("jetson", simulator_only=True):
        whole = file.read_text(encoding="utf-8")
    file.write_text(f"{whole}encryptionsalt: v1:x\n", encoding="utf-8")
    with open_target("jetson", simulator_only=True):
        assert file.read_text(encoding="utf-8") == f"{whole}encryptionsalt: v1:x\n", "what pulumi adds stays"
    file.write_text(left, encoding="utf-8")
    with open_target("jetson", simulator_only=True):
        assert file.read_text(encoding="utf-8") == whole
