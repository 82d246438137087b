"""Bad input and faults on the real engine: a clear error, nothing half-registered, and the next run converges."""

from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
import yaml

import simulator
from simulator.ports import free_ports
from testbed.engine import Run, Stack
from testbed.inventory import connect, inventory
from testbed.reused import ReusedSimulators
from testbed.simulated import kill, stack_settings
from testbed.stacks import Json, changed, jetson, x86
from testbed.waiting import eventually
from tests.support.helm_hooks import NAME as HOOK
from tests.support.helm_hooks import held, with_hooks


@pytest.fixture
def stack(tmp_path: Path, cluster: simulator.ControlPlane, engine_environment: dict[str, str]) -> Stack:
    """A Jetson stack that was never deployed."""
    return Stack(tmp_path, stack_settings(jetson(), cluster), engine_environment)


def refused(stack: Stack, settings: Json, cluster: simulator.ControlPlane, *says: str) -> Run:
    """`up` fails with these words, without a traceback, and neither state nor cluster has anything of it."""
    with connect(cluster) as api:
        before = inventory(api)
    stack.settings = settings
    run = stack.up(expect=None)
    assert run.code != 0
    for words in says:
        assert words in run.output
    assert "Traceback" not in run.output
    # The engine notes its own stack, and its own provider once the program asked it for the state.
    assert [r["type"] for r in stack.resources() if not r["type"].startswith("pulumi:")] == []
    with connect(cluster) as api:
        assert inventory(api) == before
    return run


def kubeconfig_for_nobody(folder: Path, cluster: simulator.ControlPlane) -> Path:
    """A kubeconfig whose server nobody listens for."""
    content = yaml.safe_load(cluster.kubeconfig.read_text(encoding="utf-8"))
    [port] = free_ports(1)
    content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    file = folder / "kubeconfig-nobody"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


def test_a_wrong_setting_stops_before_anything_is_registered(stack: Stack, cluster: simulator.ControlPlane) -> None:
    settings = changed(stack.settings, "platform.tegra_nodes.jetson-1.gpu_memory_mib", 128)
    run = refused(
        stack,
        settings,
        cluster,
        "Pulumi.test.yaml: 1 setting is wrong. Nothing was changed.",
        "kai-anywhere:settings.platform.tegra_nodes.jetson-1.gpu_memory_mib",
        "128 looks like GB",
    )
    assert run.changes.get("create", 0) <= 1


def test_no_settings_at_all_say_where_to_copy_them_from(stack: Stack) -> None:
    file = stack.folder / "Pulumi.test.yaml"
    kept = file.read_text(encoding="utf-8")
    content = yaml.safe_load(kept)
    file.write_text(yaml.safe_dump({k: v for k, v in content.items() if k != "config"}), encoding="utf-8")
    run = stack.up(expect=None)
    file.write_text(kept, encoding="utf-8")
    assert run.code != 0
    assert "kai-anywhere:settings" in run.output


def test_an_unreachable_cluster_stops_up(stack: Stack, cluster: simulator.ControlPlane, tmp_path: Path) -> None:
    settings = changed(stack.settings, "cluster.kubeconfig", str(kubeconfig_for_nobody(tmp_path, cluster)))
    refused(stack, settings, cluster, "No answer from the cluster at https://127.0.0.1:", "kubectl --kubeconfig")


def test_a_stack_never_deployed_can_be_previewed_without_a_cluster(
    stack: Stack, cluster: simulator.ControlPlane, tmp_path: Path
) -> None:
    stack.settings = changed(stack.settings, "cluster.kubeconfig", str(kubeconfig_for_nobody(tmp_path, cluster)))
    run = stack.preview()
    assert run.changes["create"] > 15
    assert "Preview without a cluster" in run.output
    stack.settings = changed(stack.settings, "cluster.kubeconfig", str(tmp_path / "no-such-file"))
    assert stack.preview().changes["create"] > 15


def test_every_finding_of_preflight_is_listed_at_once(stack: Stack, cluster: simulator.ControlPlane) -> None:
    settings = changed(stack.settings, "gpu_operator.install", False)
    nodes = {"jetson-one": {"gpu_memory_mib": 61440}, "x86-1": {"gpu_memory_mib": 46068}}
    settings = changed(settings, "platform.tegra_nodes", nodes)
    namespaces = "/api/v1/namespaces"
    with connect(cluster) as api:
        api.post(namespaces, json={"metadata": {"name": "kai-scheduler"}}).raise_for_status()
        try:
            refused(
                stack,
                settings,
                cluster,
                "the stack names the node 'jetson-one', which the cluster does not have. Did you mean 'jetson-1'?",
                "lists 'x86-1' as a Tegra node, but its architecture is amd64",
                "RuntimeClass 'nvidia' is missing, and gpu_operator.install is false.",
                "Namespace 'kai-scheduler' exists already and is not this stack's",
            )
        finally:
            api.delete(f"{namespaces}/kai-scheduler")
            eventually(lambda: api.get(f"{namespaces}/kai-scheduler").status_code == httpx2.codes.NOT_FOUND)


class TestOneInstallation:
    """An installation that is stopped in one way after the other, until a run ends well; then the stack that is up.

    Where a test says what is to be done, the next one's run shows that it helped: it comes to where that one stops it.
    """

    @pytest.fixture(scope="class")
    @staticmethod
    def stack(new_stack: Callable[[Json], Stack], tmp_path_factory: pytest.TempPathFactory) -> Stack:
        """Helm waits in both its releases, where a test holds their hooks."""
        made = new_stack(jetson())
        made.settings = with_hooks(made.settings, tmp_path_factory.mktemp("charts"))
        return made

    def test_a_run_killed_inside_the_first_release_is_explained_with_its_remedy(
        self, stack: Stack, cluster: simulator.ControlPlane
    ) -> None:
        kill(cluster, "operands")  # for the next test; of this one's run nothing asks for them
        _killed_inside_helm_and_explained(stack, cluster, "gpu-operator")

    def test_what_an_operator_does_not_make_and_a_killed_api_server_only_cost_another_run(
        self, stack: Stack, cluster: simulator.ControlPlane
    ) -> None:
        good = stack.settings
        stack.settings = changed(good, "gpu_operator.timeout_seconds", 30)
        run = stack.up(expect=None)
        assert run.code != 0
        assert "Waited 30 s for RuntimeClass 'nvidia' without success" in run.output
        assert "The GPU Operator makes it from its ClusterPolicy." in run.output
        names = {r["outputs"].get("name") for r in stack.resources() if "outputs" in r}
        assert "gpu-operator" in names, "the remedy let this run install it"
        assert "kai-scheduler" not in names
        for process in ("kube-apiserver", "etcd", "kube-controller-manager", "kwok"):
            kill(cluster, process)
        run = stack.up(expect=None)
        assert run.code != 0
        assert "No answer from the cluster" in run.output
        simulator.up(cluster.folder)
        stack.settings = good

    def test_a_run_killed_inside_the_last_release_is_explained_and_its_remedy_lets_the_next_run_converge(
        self, stack: Stack, cluster: simulator.ControlPlane
    ) -> None:
        _killed_inside_helm_and_explained(stack, cluster, "kai-scheduler")
        stack.up()
        assert set(stack.up().changes) == {"same"}

    def test_it_keeps_to_its_cluster_and_a_second_stack_takes_nothing_of_it(
        self,
        stack: Stack,
        cluster: simulator.ControlPlane,
        tmp_path: Path,
        engine_environment: dict[str, str],
        reused_simulators: ReusedSimulators,
    ) -> None:
        with reused_simulators.lent() as other:
            kubeconfig = cluster.kubeconfig.read_text(encoding="utf-8")
            cluster.kubeconfig.write_text(other.kubeconfig.read_text(encoding="utf-8"), encoding="utf-8")
            try:
                run = stack.up(expect=None)
                preview = stack.preview(expect=None)
            finally:
                cluster.kubeconfig.write_text(kubeconfig, encoding="utf-8")
            for refusal in (run, preview):
                assert refusal.code != 0
                assert "this stack was deployed to the cluster" in refusal.output
            with connect(other) as api:
                assert not any(item.startswith("Namespace//kai") for item in inventory(api))

        good = stack.settings
        stack.settings = changed(good, "cluster.kubeconfig", str(kubeconfig_for_nobody(tmp_path, cluster)))
        alone = stack.preview(expect=None)
        assert alone.code != 0
        assert "No answer from the cluster" in alone.output
        stack.settings = good

        second = Stack(tmp_path / "second", stack_settings(x86(), cluster), engine_environment)
        run = second.up(expect=None)
        assert run.code != 0
        assert "Helm release 'kai-scheduler' is installed in namespace 'kai-scheduler', but not known" in run.output
        assert [r["type"] for r in second.resources() if not r["type"].startswith("pulumi:")] == []
        assert set(stack.up().changes) == {"same"}


def _killed_inside_helm_and_explained(stack: Stack, cluster: simulator.ControlPlane, release: str) -> None:
    """An `up` that is killed while Helm installs a release; what the next ones say, done."""
    secrets = f"/api/v1/namespaces/{release}/secrets"
    half_done = {"labelSelector": "owner=helm,status=pending-install"}
    with connect(cluster) as api:
        with held(api), stack.up_until_killed():
            eventually(
                lambda: api.get(f"/apis/batch/v1/namespaces/{release}/jobs/{HOOK}").is_success, within_seconds=240
            )
            assert api.get(secrets, params=half_done).json()["items"]
        assert "the stack is currently locked" in stack.up(expect=None).output
        stack.run("cancel", "--yes")
        run = stack.up(expect=None)
        assert run.code != 0
        assert f"Helm release '{release}' is 'pending-install'" in run.output
        assert "exists already" not in run.output
        # Nobody's kubectl takes this cluster by itself.
        kubectl = f"kubectl --kubeconfig {cluster.kubeconfig} --context kai-anywhere-simulator"
        remedy = f"{kubectl} --namespace {release} delete secret sh.helm.release.v1.{release}.v1"
        assert remedy in run.output
        assert api.delete(f"{secrets}/{remedy.rsplit(maxsplit=1)[-1]}").status_code == httpx2.codes.OK
