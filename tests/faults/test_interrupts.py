"""Ctrl-C, and servers of the control plane that die, in the middle of an `up`: another run converges."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
import yaml

import simulator
from testbed.engine import Run, Stack
from testbed.inventory import connect
from testbed.simulated import kill, stack_settings, start
from testbed.stacks import Json, changed, jetson
from testbed.waiting import eventually
from tests.support.helm_hooks import held, with_hooks
from tests.support.rollback import rollback_of, take_back_half_done_releases

pytestmark = pytest.mark.engine

_SECRETS = "/api/v1/namespaces/gpu-operator/secrets"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_HALF_MADE = "nodefeaturerules.nfd.k8s-sigs.io"
_POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
_MERGE = {"Content-Type": "application/merge-patch+json"}
_UNSERVED = "the API server does not serve every CustomResourceDefinition that it has: "
_GRACE_SECONDS = 10.0
"""How long a server is away: longer than one request, shorter than a client's patience."""


def _locks(stack: Stack) -> list[Path]:
    return list((stack.folder / "state/.pulumi/locks").rglob("*.json"))


def _revisions(api: httpx2.Client, selector: str = "") -> list[Json]:
    """The Secrets of Helm's revisions."""
    items: list[Json] = api.get("/api/v1/secrets", params={"labelSelector": f"owner=helm{selector}"}).json()["items"]
    return items


def _half_done(api: httpx2.Client, release: str) -> bool:
    """Whether Helm is at work on a release's installation."""
    return bool(_revisions(api, f",status=pending-install,name={release}"))


def _status(api: httpx2.Client, release: str) -> str:
    """The status of a release's newest revision."""
    newest = max(
        _revisions(api, f",name={release}"), key=lambda revision: int(revision["metadata"]["labels"]["version"])
    )
    return str(newest["metadata"]["labels"]["status"])


def _releases(api: httpx2.Client) -> set[str]:
    """The status of every revision of a Helm release."""
    return {item["metadata"]["labels"]["status"] for item in _revisions(api)}


class TestOneInstallation:
    """An installation that is interrupted in one way after the other, until the last run converges.

    Each run comes to where the next test interrupts it, so that the one before has cost no more than another run.
    """

    @pytest.fixture(scope="class")
    @staticmethod
    def stack(new_stack: Callable[[Json], Stack], tmp_path_factory: pytest.TempPathFactory) -> Stack:
        """Helm waits in both its releases, where a test holds their hooks."""
        made = new_stack(jetson())
        made.settings = with_hooks(made.settings, tmp_path_factory.mktemp("charts"))
        return made

    def test_ctrl_c_twice_is_a_kill_and_the_page_of_recovery_helps(
        self, stack: Stack, api: httpx2.Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with held(api), stack.started() as run:
            eventually(lambda: _half_done(api, "gpu-operator"), within_seconds=180)
            run.send_signal(signal.SIGINT)
            time.sleep(0.2)
            run.send_signal(signal.SIGINT)
            run.communicate(timeout=300)
        assert run.returncode != 0
        stack.run("cancel", "--yes")
        refused = stack.up(expect=None)
        if "Helm release 'gpu-operator' is 'pending-install'" in refused.output:
            assert api.delete(f"{_SECRETS}/sh.helm.release.v1.gpu-operator.v1").status_code == httpx2.codes.OK
        elif refused.code != 0:
            _undone(stack, refused, monkeypatch)
        else:  # Helm had the time to end it in order; the next test begins anew.
            assert set(stack.up().changes) == {"same"}
            assert _releases(api) <= {"deployed", "superseded"}
            rollback_of(stack, monkeypatch)()

    def test_a_release_that_ended_while_its_run_was_killed_is_undone_by_rollback(
        self, stack: Stack, api: httpx2.Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        good, namespace = stack.settings, "/api/v1/namespaces/gpu-operator"
        api.post("/api/v1/namespaces", json={"metadata": {"name": "gpu-operator", "labels": {"team": "robots"}}})
        stack.settings = changed(good, "cluster.adopt", ["Namespace/gpu-operator"])
        with held(api), stack.up_until_killed():
            eventually(lambda: _half_done(api, "gpu-operator"), within_seconds=180)
        # As Helm does when it is interrupted, which a second Ctrl-C may or may not let it do.
        ended = {"metadata": {"labels": {"status": "failed"}}}
        secret = f"{_SECRETS}/sh.helm.release.v1.gpu-operator.v1"
        api.patch(secret, json=ended, headers=_MERGE).raise_for_status()
        stack.run("cancel", "--yes")
        # Healing would forget whose it is, and heal nothing.
        refused = rollback_of(stack, monkeypatch)("--only-heal", expect=3).output
        assert "Helm came to its end with release gpu-operator in namespace gpu-operator" in refused
        _undone(stack, stack.up(expect=None), monkeypatch)
        assert _releases(api) == set(), "the namespace is given back, and nothing in it says that the release is there"
        assert api.get(namespace).json()["metadata"]["labels"]["team"] == "robots"
        api.delete(namespace).raise_for_status()
        eventually(lambda: api.get(namespace).status_code == httpx2.codes.NOT_FOUND)
        stack.settings = good

    def test_where_pods_never_start_up_names_them_and_a_run_that_was_killed_there_goes_on(
        self, stack: Stack, cluster: simulator.ControlPlane, api: httpx2.Client
    ) -> None:
        good = stack.settings
        # Without KWOK no pod becomes ready, as where an image can't be pulled; the hook's would not either.
        without_hook = changed(good, "gpu_operator.chart.source", str(simulator.chart_path("gpu-operator")))
        stack.settings = changed(without_hook, "gpu_operator.timeout_seconds", 30)
        kill(cluster, "kwok")
        waited = "Waited 30 s for the pods of Helm release 'gpu-operator' in namespace 'gpu-operator' without success: "
        failed = stack.up(expect=None)
        assert failed.code != 0
        assert f"{waited}Deployment 'gpu-operator': 0 of 1 replicas are available." in failed.output
        assert "kubectl --namespace gpu-operator get pods" in failed.output
        assert _releases(api) == {"deployed"}
        assert not api.get("/api/v1/namespaces/kai-scheduler/pods").json()["items"], "KAI waits for the operator"
        with stack.up_until_killed():
            eventually(lambda: _locks(stack), within_seconds=180)
            time.sleep(_GRACE_SECONDS)  # it waits again
        assert _releases(api) == {"deployed"}
        simulator.up(cluster.folder)
        stack.run("cancel", "--yes")
        stack.settings = without_hook

    def test_ctrl_c_inside_helm_ends_the_release_in_order_and_the_next_run_converges(
        self, stack: Stack, api: httpx2.Client
    ) -> None:
        with held(api), stack.started() as run:
            eventually(lambda: _half_done(api, "kai-scheduler"), within_seconds=180)
            assert _status(api, "gpu-operator") == "deployed", "what was killed while pods started went on"
            run.send_signal(signal.SIGINT)
            output, _ = run.communicate(timeout=300)
        assert run.returncode != 0
        assert "Traceback" not in output
        assert _locks(stack) == []
        assert not {status for status in _releases(api) if status.startswith("pending")}
        stack.up()
        assert set(stack.up().changes) == {"same"}
        assert _releases(api) <= {"deployed", "superseded"}


def _undone(stack: Stack, refused: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What to do where the state does not know a release."""
    assert refused.code != 0
    assert "'gpu-operator' is installed in namespace 'gpu-operator', but not known" in refused.output
    assert "undo what it made, and run it again: kai-anywhere rollback" in refused.output
    rollback_of(stack, monkeypatch)()


@pytest.mark.parametrize("server", ["kube-apiserver", "etcd"])
def test_a_server_that_dies_mid_run_and_returns_leaves_nothing_noted_that_is_not_there(
    tmp_path: Path, engine_environment: dict[str, str], server: str
) -> None:
    with start(tmp_path / "simulator") as own:
        stack = Stack(tmp_path / "stack", stack_settings(jetson(), own), engine_environment)
        if server == "kube-apiserver":
            _is_refused_while_a_definition_is_half_made(stack, own)
        _dies_and_returns(stack, own, server)


def _is_refused_while_a_definition_is_half_made(stack: Stack, cluster: simulator.ControlPlane) -> None:
    with connect(cluster) as api:
        _have_definitions(api)
    kill(cluster, "kube-apiserver")
    simulator.up(cluster.folder)
    with connect(cluster) as api:
        api.delete(f"{_POLICIES}ybindings/half-made").raise_for_status()
        refused = stack.up(expect=None)
        assert refused.code != 0
        assert f"{_UNSERVED}{_HALF_MADE}. " in refused.output
        assert "Nothing was changed." in refused.output
        assert [resource["type"] for resource in stack.resources() if not resource["type"].startswith("pulumi:")] == []
        _complete_definitions(api)


def _have_definitions(api: httpx2.Client) -> None:
    """Make one definition, and another that stays where an API server is that dies between its two steps."""
    definitions = {
        path.stem.partition("_")[2]: yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in (simulator.chart_path("gpu-operator") / "crds").iterdir()
    }
    api.post(_DEFINITIONS, json=definitions["clusterpolicies"]).raise_for_status()
    established = "object.status.conditions.exists(c, c.type == 'Established' && c.status == 'True')"
    update = {"apiGroups": ["apiextensions.k8s.io"], "apiVersions": ["*"], "operations": ["UPDATE"]}
    policy = {
        "metadata": {"name": "half-made"},
        "spec": {
            "matchConstraints": {"resourceRules": [update | {"resources": ["customresourcedefinitions/status"]}]},
            "validations": [{"expression": f"!has(object.status.conditions) || !{established}"}],
        },
    }
    binding = {"metadata": {"name": "half-made"}, "spec": {"policyName": "half-made", "validationActions": ["Deny"]}}
    api.post(f"{_POLICIES}ies", json=policy).raise_for_status()
    api.post(f"{_POLICIES}ybindings", json=binding).raise_for_status()

    def in_force() -> bool:
        path = f"{_DEFINITIONS}/clusterpolicies.nvidia.com/status"
        status = api.get(path).json()["status"]
        asked = api.patch(path, json={"status": status}, headers=_MERGE, params={"dryRun": "All"})
        return asked.status_code == httpx2.codes.UNPROCESSABLE_CONTENT

    eventually(in_force)
    half_made = definitions["nodefeaturerules"]
    api.post(_DEFINITIONS, json=half_made).raise_for_status()
    # These are never served: the next one's kind is the first one's, the last one's version is switched off.
    for plural, kind, served in (("rules", half_made["spec"]["names"]["kind"], True), ("olds", "Old", False)):
        names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
        versions = [version | {"served": served} for version in half_made["spec"]["versions"]]
        metadata = {
            "name": f"{plural}.{half_made['spec']['group']}",
            "annotations": half_made["metadata"].get("annotations"),
        }
        never = {"metadata": metadata, "spec": half_made["spec"] | {"names": names, "versions": versions}}
        api.post(_DEFINITIONS, json=half_made | never).raise_for_status()
    eventually(lambda: _conditions(api).get("Established") == "False")


def _conditions(api: httpx2.Client) -> dict[str, str]:
    status = api.get(f"{_DEFINITIONS}/{_HALF_MADE}").json().get("status", {})
    return {condition["type"]: condition["status"] for condition in status.get("conditions") or []}


def _complete_definitions(api: httpx2.Client) -> None:
    """Have the API server look at every definition, as it does by itself every 5 minutes."""
    for definition in api.get(_DEFINITIONS).json()["items"]:
        path = f"{_DEFINITIONS}/{definition['metadata']['name']}"
        looked = {"metadata": {"annotations": {"kai-anywhere.io/test": "looked"}}}
        api.patch(path, json=looked, headers=_MERGE).raise_for_status()
    eventually(lambda: _conditions(api).get("Established") == "True")
    eventually(lambda: api.get("/apis/nfd.k8s-sigs.io/v1alpha1").status_code == httpx2.codes.OK)


def _dies_and_returns(stack: Stack, cluster: simulator.ControlPlane, server: str) -> None:
    with connect(cluster) as api, stack.started() as run:
        path = "/api/v1/namespaces/kai-resource-reservation"
        eventually(lambda: api.get(path).status_code == httpx2.codes.OK, within_seconds=180)
        kill(cluster, server)
        time.sleep(_GRACE_SECONDS)
        simulator.up(cluster.folder)
        try:
            output, _ = run.communicate(timeout=500)
        except subprocess.TimeoutExpired:
            run.kill()
            raise
    assert "Traceback" not in output
    assert _locks(stack) == []
    # A run that failed says so, and one that did not has made everything: what the state has, the cluster has.
    noted = {resource["urn"] for resource in stack.resources()}
    assert "delete" not in stack.refresh().changes
    assert {resource["urn"] for resource in stack.resources()} == noted
    if (again := stack.up(expect=None)).code != 0:
        with connect(cluster) as api:
            # It died inside Helm, which could not note that down any more, or within those milliseconds.
            if not take_back_half_done_releases(api):
                assert _UNSERVED in again.output, again.output
                _complete_definitions(api)
        stack.up()
    assert set(stack.up().changes) == {"same"}
