"""The same program through Pulumi's Automation API: inline, without a language host."""

import os
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from pulumi import automation as auto

import simulator
from manifests.node_labels import GPU_MEMORY
from manifests.versions import KAI_SCHEDULER
from testbed.inventory import connect
from testbed.simulated import stack_settings
from testbed.stacks import ROOT, STACKS, changed, jetson
from tests.support.many_nodes import MANY, NODES, ONE, add, with_nodes


@pytest.fixture(params=["many-jetsons", "x86"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def stack(
    tmp_path: Path,
    cluster: simulator.ControlPlane,
    engine_environment: dict[str, str],
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[auto.Stack]:
    """A stack whose program runs inside the test process."""
    # The Automation API looks for `pulumi` on the PATH of the process itself, and the engine there for the provider of
    # many nodes' labels.
    monkeypatch.setenv("PATH", os.pathsep.join([str(ROOT / "package"), engine_environment["PATH"]]))
    state = tmp_path / "state"
    state.mkdir()
    options = auto.LocalWorkspaceOptions(
        work_dir=str(tmp_path),
        env_vars={"PULUMI_BACKEND_URL": state.as_uri(), "PULUMI_CONFIG_PASSPHRASE": ""},
        project_settings=auto.ProjectSettings(name="kai-anywhere", runtime="python"),
        stack_settings={"inline": auto.StackSettings(config={"kai-anywhere:settings": _settings(kind, cluster)})},
    )
    made = auto.create_stack("inline", "kai-anywhere", _run_program, opts=options)
    yield made
    made.destroy()


def _settings(kind: str, cluster: simulator.ControlPlane) -> dict[str, object]:
    if kind == "x86":
        return stack_settings(STACKS[kind](), cluster)
    add(cluster)
    return stack_settings(with_nodes(jetson()), cluster)


def _run_program() -> None:
    runpy.run_path(str(ROOT / "__main__.py"))


def test_up_installs_the_stack_and_a_second_up_changes_nothing(
    stack: auto.Stack, cluster: simulator.ControlPlane, kind: str
) -> None:
    first = stack.up()
    assert (first.summary.resource_changes or {})[auto.OpType.CREATE] > 15
    jetsons = NODES if kind == "many-jetsons" else []
    assert first.outputs["platform"].value == ("tegra" if jetsons else "x86")
    assert sorted(first.outputs["tegra_nodes"].value) == sorted(jetsons)
    types = [each["type"] for each in (stack.export_stack().deployment or {})["resources"]]
    assert [each for each in types if each in {MANY, ONE}] == [MANY] * bool(jetsons)
    assert first.outputs["kai_version"].value == KAI_SCHEDULER.version.removeprefix("v")
    assert set(stack.preview().change_summary) == {auto.OpType.SAME}
    assert set(stack.up().summary.resource_changes or {}) == {"same"}
    with connect(cluster) as api:
        policies = api.get("/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies").json()["items"]
        memory = {
            node: api.get(f"/api/v1/nodes/{node}").json()["metadata"]["labels"].get(GPU_MEMORY) for node in jetsons
        }
    assert len(policies) == (2 if jetsons else 0)
    assert memory == {node: str(28672 + number) for number, node in enumerate(jetsons)}


@pytest.mark.parametrize("kind", ["x86"], indirect=True)
def test_a_wrong_setting_is_an_error_of_the_api_with_the_same_text(stack: auto.Stack, kind: str) -> None:
    settings = changed(STACKS[kind](), "cluster.distribution", "k4s")
    content = auto.StackSettings(config={"kai-anywhere:settings": settings})
    stack.workspace.save_stack_settings("inline", content)
    with pytest.raises(auto.CommandError, match=r"kai-anywhere:settings\.cluster\.distribution"):
        stack.preview()
