"""The same program through Pulumi's Automation API: inline, without a language host."""

import os
import runpy
from pathlib import Path

import pytest
from pulumi import automation as auto

import simulator
from manifests.node_labels import GPU_MEMORY
from manifests.versions import KAI_SCHEDULER
from testbed.inventory import connect
from testbed.simulated import stack_settings
from testbed.stacks import ROOT, Json, changed, jetson, x86
from tests.support.many_nodes import MANY, NODES, ONE, add, with_nodes


@pytest.fixture
def stack(
    tmp_path: Path, cluster: simulator.ControlPlane, engine_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> auto.Stack:
    """An x86 stack whose program runs inside the test process."""
    # The Automation API looks for `pulumi` on the PATH of the process itself, and the engine there for the provider of
    # many nodes' labels.
    monkeypatch.setenv("PATH", os.pathsep.join([str(ROOT / "package"), engine_environment["PATH"]]))
    state = tmp_path / "state"
    state.mkdir()
    options = auto.LocalWorkspaceOptions(
        work_dir=str(tmp_path),
        env_vars={"PULUMI_BACKEND_URL": state.as_uri(), "PULUMI_CONFIG_PASSPHRASE": ""},
        project_settings=auto.ProjectSettings(name="kai-anywhere", runtime="python"),
    )
    made = auto.create_stack("inline", "kai-anywhere", _run_program, opts=options)
    _set(made, stack_settings(x86(), cluster))
    return made


def _set(stack: auto.Stack, settings: Json) -> None:
    stack.workspace.save_stack_settings("inline", auto.StackSettings(config={"kai-anywhere:settings": settings}))


def _run_program() -> None:
    runpy.run_path(str(ROOT / "__main__.py"))


def _types(stack: auto.Stack) -> list[str]:
    return [resource["type"] for resource in (stack.export_stack().deployment or {}).get("resources", [])]


def test_up_installs_the_stack_and_follows_its_settings_and_destroy_removes_it(
    stack: auto.Stack, cluster: simulator.ControlPlane
) -> None:
    first = stack.up()
    assert (first.summary.resource_changes or {})[auto.OpType.CREATE] > 15
    assert first.outputs["platform"].value == "x86"
    assert first.outputs["tegra_nodes"].value == []
    assert first.outputs["kai_version"].value == KAI_SCHEDULER.version.removeprefix("v")
    assert {MANY, ONE}.isdisjoint(_types(stack))
    assert set(stack.preview().change_summary) == {auto.OpType.SAME}
    assert set(stack.up().summary.resource_changes or {}) == {"same"}
    policies = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
    with connect(cluster) as api:
        assert api.get(policies).json()["items"] == []

    _set(stack, changed(x86(), "cluster.distribution", "k4s"))
    with pytest.raises(auto.CommandError, match=r"kai-anywhere:settings\.cluster\.distribution"):
        stack.preview()

    add(cluster)
    _set(stack, stack_settings(with_nodes(jetson()), cluster))
    outputs = stack.up().outputs
    assert outputs["platform"].value == "tegra"
    assert sorted(outputs["tegra_nodes"].value) == sorted(NODES)
    assert outputs["kai_version"].value == KAI_SCHEDULER.version.removeprefix("v")
    assert [type_ for type_ in _types(stack) if type_ in {MANY, ONE}] == [MANY]
    with connect(cluster) as api:
        assert len(api.get(policies).json()["items"]) == 2
        labels = {node: api.get(f"/api/v1/nodes/{node}").json()["metadata"]["labels"] for node in NODES}
    assert {node: labels[node][GPU_MEMORY] for node in NODES} == {
        node: str(28672 + number) for number, node in enumerate(NODES)
    }
    assert set(stack.up().summary.resource_changes or {}) == {"same"}

    stack.destroy()
    assert _types(stack) == []
