"""The same program through Pulumi's Automation API: inline, without a language host."""

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from pulumi import automation as auto

import simulator
from manifests.versions import KAI_SCHEDULER
from testbed.inventory import connect
from testbed.simulated import stack_settings
from testbed.stacks import ROOT, STACKS, changed

pytestmark = pytest.mark.engine


@pytest.fixture(params=["jetson", "x86"])
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
    # The Automation API looks for `pulumi` on the PATH of the process itself.
    monkeypatch.setenv("PATH", engine_environment["PATH"])
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
    return stack_settings(STACKS[kind](), cluster)


def _run_program() -> None:
    runpy.run_path(str(ROOT / "__main__.py"))


def test_up_installs_the_stack_and_a_second_up_changes_nothing(
    stack: auto.Stack, cluster: simulator.ControlPlane, kind: str
) -> None:
    first = stack.up()
    assert (first.summary.resource_changes or {})[auto.OpType.CREATE] > 15
    assert first.outputs["platform"].value == {"jetson": "tegra", "x86": "x86"}[kind]
    assert first.outputs["tegra_nodes"].value == {"jetson": ["jetson-1"], "x86": []}[kind]
    assert first.outputs["kai_version"].value == KAI_SCHEDULER.version.removeprefix("v")
    assert set(stack.preview().change_summary) == {auto.OpType.SAME}
    assert set(stack.up().summary.resource_changes or {}) == {"same"}
    with connect(cluster) as api:
        policies = api.get("/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies").json()["items"]
    assert len(policies) == {"jetson": 2, "x86": 0}[kind]


@pytest.mark.parametrize("kind", ["jetson"], indirect=True)
def test_a_wrong_setting_is_an_error_of_the_api_with_the_same_text(stack: auto.Stack, kind: str) -> None:
    settings = changed(STACKS[kind](), "cluster.distribution", "k4s")
    content = auto.StackSettings(config={"kai-anywhere:settings": settings})
    stack.workspace.save_stack_settings("inline", content)
    with pytest.raises(auto.CommandError, match=r"kai-anywhere:settings\.cluster\.distribution"):
        stack.preview()
