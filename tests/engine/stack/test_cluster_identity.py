"""A stack belongs to one cluster: whatever context is current, no command of the engine touches another one.

The commands here run without our program, so only what the state holds can stop them: `pulumi destroy`,
`pulumi refresh`, and the refresh that comes before the program in `pulumi up --refresh`.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import simulator
from cluster.access.binding import bound_file
from operations import engine
from operations.errors import OperationError
from operations.target import Target
from testbed.engine import Stack
from testbed.inventory import connect, inventory
from testbed.reused import ReusedSimulators
from testbed.simulated import stack_settings
from testbed.stacks import changed, jetson, parse, without


@pytest.fixture(scope="module")
def other(reused_simulators: ReusedSimulators) -> Iterator[simulator.ControlPlane]:
    """A cluster of somebody else, with the same installation on it."""
    with reused_simulators.lent() as control_plane:
        yield control_plane


@pytest.fixture(scope="module")
def kubeconfig(
    tmp_path_factory: pytest.TempPathFactory, cluster: simulator.ControlPlane, other: simulator.ControlPlane
) -> Path:
    """One kubeconfig with two contexts, as an administrator has it."""
    merged: dict[str, list[dict[str, object]]] = {"clusters": [], "users": [], "contexts": []}
    for name, control_plane in (("ours", cluster), ("theirs", other)):
        single = yaml.safe_load(control_plane.kubeconfig.read_text(encoding="utf-8"))
        for section in merged:
            merged[section] += [single[section][0] | {"name": name}]
        merged["contexts"][-1]["context"] = {"cluster": name, "user": name}
    path = tmp_path_factory.mktemp("kubeconfig") / "config"
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **merged}), encoding="utf-8")
    return path


def use(kubeconfig: Path, context: str) -> None:
    """`kubectl config use-context`."""
    content = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    kubeconfig.write_text(yaml.safe_dump(content | {"current-context": context}), encoding="utf-8")


def _stack(folder: Path, control_plane: simulator.ControlPlane, kubeconfig: Path, extra: dict[str, str]) -> Stack:
    stack = Stack(folder, without(stack_settings(jetson(), control_plane), "cluster.kubeconfig"), extra)
    stack.environment["KUBECONFIG"] = str(kubeconfig)
    return stack


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory,
    cluster: simulator.ControlPlane,
    other: simulator.ControlPlane,
    kubeconfig: Path,
    engine_environment: dict[str, str],
) -> Stack:
    """Our stack on our cluster; the same one of somebody else on theirs."""
    made: dict[str, Stack] = {}
    for context, control_plane in (("theirs", other), ("ours", cluster)):
        use(kubeconfig, context)
        made[context] = _stack(tmp_path_factory.mktemp(context), control_plane, kubeconfig, engine_environment)
        made[context].up()
    return made["ours"]


@pytest.fixture(autouse=True)
def theirs_is_current(stack: Stack, kubeconfig: Path) -> None:
    """The context means the other cluster."""
    assert stack.name
    use(kubeconfig, "theirs")


def urns(stack: Stack) -> set[str]:
    return {str(resource["urn"]) for resource in stack.resources()}


def uid(stack: Stack) -> str:
    identifiers = {
        r["outputs"].get("clusterIdentifier") for r in stack.resources() if r["type"].endswith(":kubernetes")
    }
    return str(identifiers.pop())


def target(stack: Stack) -> Target:
    return Target(stack.name, parse(stack.settings), stack.folder, stack.environment, ("answers yes",))


def test_a_refresh_under_the_other_context_forgets_nothing(stack: Stack, other: simulator.ControlPlane) -> None:
    before = urns(stack)
    with connect(other) as api:
        theirs = inventory(api)
        assert set(stack.refresh().changes) == {"same"}
        assert inventory(api) == theirs
    assert urns(stack) == before


def test_an_up_with_refresh_under_the_other_context_is_refused_and_forgets_nothing(stack: Stack) -> None:
    before = urns(stack)
    run = stack.up("--refresh", expect=None)
    assert run.code != 0
    assert "this stack was deployed to the cluster" in run.output
    assert urns(stack) == before


def test_a_refresh_on_a_machine_that_never_saw_the_cluster_forgets_nothing(stack: Stack, tmp_path: Path) -> None:
    before, kept = urns(stack), bound_file(uid(stack))
    shutil.move(kept, tmp_path / "kept")
    try:
        run = stack.run("refresh", "--yes", "--skip-preview", expect=None)
        destroyed = stack.destroy(expect=None)
    finally:
        shutil.move(tmp_path / "kept", kept)
    assert (run.code, destroyed.code) != (0, 0)
    assert 0 not in (run.code, destroyed.code)
    assert "configured Kubernetes cluster is unreachable" in run.output
    assert "configured Kubernetes cluster is unreachable" in destroyed.output
    assert urns(stack) == before


def test_a_machine_that_never_saw_the_cluster_previews_no_change(
    stack: Stack, kubeconfig: Path, tmp_path: Path
) -> None:
    use(kubeconfig, "ours")
    shutil.move(bound_file(uid(stack)), tmp_path / "kept")
    elsewhere = tmp_path / "another-place" / "config"
    elsewhere.parent.mkdir()
    shutil.copy(kubeconfig, elsewhere)
    settings = stack.settings
    stack.settings = changed(settings, "cluster.kubeconfig", str(elsewhere))
    try:
        assert set(stack.preview("--diff").changes) == {"same"}
    finally:
        stack.settings = settings


@pytest.mark.parametrize("command", ["up", "destroy"])
def test_our_commands_refuse_the_other_cluster_and_name_it(
    stack: Stack, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    before = urns(stack)
    run = {"up": lambda: engine.up(target(stack), "--refresh"), "destroy": lambda: engine.destroy(target(stack))}
    with pytest.raises(OperationError, match=r"(?s)nothing was changed.*context 'theirs'.* is another one"):
        run[command]()
    assert urns(stack) == before


def test_a_destroy_under_the_other_context_removes_ours_and_touches_nothing_of_theirs(
    stack: Stack, cluster: simulator.ControlPlane, other: simulator.ControlPlane, kubeconfig: Path
) -> None:
    use(kubeconfig, "ours")
    assert set(stack.up().changes) == {"same"}, "nothing that was tried before changed our stack"
    use(kubeconfig, "theirs")
    with connect(other) as api:
        theirs = inventory(api)
        stack.destroy()
        assert inventory(api) == theirs
    with connect(cluster) as api:
        assert not api.get("/api/v1/namespaces/kai-resource-reservation").is_success
    assert not [resource for resource in stack.resources() if str(resource["type"]).startswith("kubernetes:")]
