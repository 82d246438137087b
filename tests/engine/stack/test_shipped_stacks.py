"""The stack files at the root, whatever their user made of them: the real engine previews each."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import simulator
from config.kai import Placement
from config.stack import StackConfigError
from operations import target
from operations.stack_file import raw_settings, read_settings, stack_names
from testbed.engine import Stack
from testbed.simulated import stack_settings
from testbed.stacks import ROOT, Json, changed, jetson
from tests.support.checkout import shell
from tests.support.docs import command


def _here(settings: Json, control_plane: simulator.ControlPlane) -> Json:
    """The settings on a simulator: without the user's cluster, and without hosts, which would be asked for memory."""
    settings = changed(stack_settings(settings, control_plane), "cluster.context", None)
    for kind in settings["platform"].keys() & {"tegra_nodes", "unified_memory_nodes"}:
        nodes = settings["platform"][kind] or {}
        nodes_said = {node: {"gpu_memory_mib": 28672} | (said or {}) for node, said in nodes.items()}
        settings = changed(settings, f"platform.{kind}", nodes_said)
    return changed(settings, "hosts", {})


def _with_the_program(tmp_path: Path, environment: dict[str, str]) -> Stack:
    """A stack with the program in the project's own folder, as in a checkout; it has no cluster."""
    project = yaml.safe_load((ROOT / "Pulumi.yaml").read_text(encoding="utf-8"))
    project["plugins"]["providers"][0]["path"] = str(ROOT / "package")
    project["runtime"]["options"]["virtualenv"] = sys.prefix
    (tmp_path / "stack").mkdir()
    shutil.copy(ROOT / "__main__.py", tmp_path / "stack")
    settings = changed(jetson(), "cluster.kubeconfig", str(tmp_path / "no-kubeconfig"))
    stack = Stack(tmp_path / "stack", settings, environment | {"PYTHONPATH": str(ROOT)}, project=project)
    # Pages name no stack where one is selected.
    stack.run("stack", "select")
    return stack


@pytest.mark.parametrize("name", stack_names(ROOT))
def test_a_shipped_stack_is_previewed(
    name: str, cluster: simulator.ControlPlane, tmp_path: Path, engine_environment: dict[str, str]
) -> None:
    path = ROOT / f"Pulumi.{name}.yaml"
    simulator.up(cluster.folder, nodes=target._nodes(read_settings(path)))
    preview = Stack(tmp_path / "stack", _here(raw_settings(path), cluster), engine_environment).preview()
    assert preview.changes.keys() == {"create"}
    assert preview.changes["create"] > 15


@pytest.mark.parametrize("name", stack_names(ROOT))
def test_what_pulumi_writes_into_a_shipped_stack_leaves_its_comments_in_place(
    name: str, tmp_path: Path, engine_environment: dict[str, str]
) -> None:
    file = tmp_path / f"Pulumi.{name}.yaml"
    shutil.copy(ROOT / file.name, file)
    shutil.copy(ROOT / "Pulumi.yaml", tmp_path)
    (tmp_path / "package").symlink_to(ROOT / "package")
    (tmp_path / "state").mkdir()
    own = {"PULUMI_BACKEND_URL": (tmp_path / "state").as_uri(), "PULUMI_CONFIG_PASSPHRASE": "a passphrase"}
    before = file.read_text(encoding="utf-8")
    for arguments in (["stack", "init", name], ["config", "set", "--secret", "lab-key", "a key", "--stack", name]):
        subprocess.run(
            ["pulumi", *arguments, "--non-interactive"], cwd=tmp_path, env=engine_environment | own, check=True
        )
    after = file.read_text(encoding="utf-8")
    assert yaml.safe_load(after).keys() == {"config", "encryptionsalt"}
    comments = [[line for line in text.splitlines() if line.lstrip().startswith("#")] for text in (before, after)]
    assert comments[0] == comments[1], "a section uncommented afterwards belongs to the settings still"


def test_single_keys_are_set_as_the_page_of_settings_says(tmp_path: Path, engine_environment: dict[str, str]) -> None:
    first_line = "pulumi config set --path 'kai-anywhere:settings.kai.scheduler.placement' spread"
    stack = _with_the_program(tmp_path, engine_environment)
    shell(command("settings.md", first_line), stack.folder, stack.environment)
    file = stack.folder / f"Pulumi.{stack.name}.yaml"
    settings = read_settings(file)
    assert settings.kai.scheduler.placement is Placement.SPREAD
    assert settings.kai.scheduler.args == {"v": "4"}
    assert settings.kai.timeout_seconds == 900
    assert settings.kai.queues["robots"].gpu.quota == 0.5
    assert settings.kai.images.pull_secrets == ("site",)
    assert settings.platform.jetsons["jetson-2.example.com"].gpu_memory_mib == 57344
    # The engine hands the program what the file says: no setting is wrong, and so the cluster is looked for.
    output = stack.run("preview", expect=None).output
    assert "no-kubeconfig" in output
    assert "wrong" not in output


def test_what_pulumi_writes_as_another_type_is_refused_with_the_way_out(
    tmp_path: Path, engine_environment: dict[str, str]
) -> None:
    wrong = (
        (
            "kai-anywhere:settings.kai.queues.robots.gpu.quota",
            "0.5",
            "run pulumi config rm --path, then pulumi config set --path with --type float",
            "pulumi config rm --path {key}; pulumi config set --path {key} {value} --type float",
        ),
        (
            "kai-anywhere:settings.kai.scheduler.args.v",
            "4",
            "pulumi config set --path does so with --type string",
            "pulumi config set --path {key} {value} --type string",
        ),
    )
    stack = _with_the_program(tmp_path, engine_environment)
    for key, value, _, _ in wrong:
        shell(f"pulumi config set --path {key} {value}", stack.folder, stack.environment)
    output = stack.run("preview", expect=None).output
    for key, _, says, _ in wrong:
        _, separator, after = output.partition(key)
        assert separator
        assert says in after.partition("kai-anywhere:settings.")[0], key
    for key, value, _, way_out in wrong:
        shell(way_out.format(key=key, value=value), stack.folder, stack.environment)
    output = stack.run("preview", expect=None).output
    for key, *_ in wrong:
        assert key not in output
    assert "no-kubeconfig" in output


def test_a_secret_inside_of_the_settings_is_refused_by_the_program_and_by_commands(
    tmp_path: Path, engine_environment: dict[str, str]
) -> None:
    stack = _with_the_program(tmp_path, engine_environment)
    key = "kai-anywhere:settings.gpu_operator.toolkit_env.HTTPS_PROXY"
    shell(f"pulumi config set --path --secret {key} http://me:pw@proxy", stack.folder, stack.environment)
    says = f"Pulumi.{stack.name}.yaml: a secret stands inside of kai-anywhere:settings"
    assert says in stack.run("preview", expect=None).output
    with pytest.raises(StackConfigError, match=says):
        read_settings(stack.folder / f"Pulumi.{stack.name}.yaml")


def test_what_nothing_reads_in_a_stack_file_is_refused_by_the_program(
    tmp_path: Path, engine_environment: dict[str, str]
) -> None:
    stack = _with_the_program(tmp_path, engine_environment)
    file = stack.folder / f"Pulumi.{stack.name}.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text + "gvirtus: {}\n", encoding="utf-8")
    assert "gvirtus at the beginning of a line is not a setting" in stack.run("preview", expect=None).output
    file.write_text(text.replace("config:\n", "config:\n  kai-anywhere:setings: 1\n"), encoding="utf-8")
    assert "nothing reads kai-anywhere:setings. Nothing was changed." in stack.run("preview", expect=None).output
