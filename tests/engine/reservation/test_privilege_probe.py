"""The privilege probe from its first request to its last on a real API server; its pods end as a script says.

Admission, Pod Security, RBAC, logs, events and the end of the namespace are real.
"""

import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import pytest
import yaml

import simulator
from cluster.access.client import Cluster
from config.reservation import Privilege
from config.stack import SETTINGS_KEY
from manifests import pod_guard, reservation
from manifests.admission_objects import deny_binding
from manifests.reservation_guard import GUARD, guard_policy
from operations import scratch
from operations.errors import OperationError
from operations.privilege_probe import ladder, run
from operations.privilege_probe.ladder import NAMESPACE, Symptom
from operations.privilege_probe.report import FOUND, NOT_HELD, NOT_RUN, Result
from operations.privilege_probe.run import Probe
from testbed.admission.deployment import make, prepare
from testbed.inventory import connect, inventory
from testbed.simulated import stack_settings
from testbed.stacks import ROOT, Json, changed, jetson, parse
from testbed.waiting import eventually
from tests.support.api_server import write_kubeconfig
from tests.support.pods.reservation_cases import as_binder_creates
from tests.support.pods.twin import POLICIES, make_namespace, post
from tests.support.privilege_probe.kubelet import Kubelet, scripted
from tests.support.privilege_probe.outcomes import HELD, failed

NODE = "board-1"
BOARD = changed(jetson(), f"platform.tegra_nodes.{NODE}", {"gpu_memory_mib": 57344})
"""The Jetson stack with the board."""
IMAGE = "registry.example.com/kai/resourcereservation:v0.18.6"
BINDER = "system:serviceaccount:kai-scheduler:binder"
BINDINGS = POLICIES.removesuffix("policies") + "policybindings"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
EXEMPT = "exempt"
"""A namespace that the guard of all pods leaves out, as it does the probe's."""
ANYTHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
ADA = [
    {"apiGroups": [""], "resources": ["nodes", "events"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "create", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "create", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "create"]},
    {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["create"]},
    {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["create"]},
]
"""What a probe needs, but for the logs."""
LIBRARY = failed("unable to initialize NVML: ERROR_LIBRARY_NOT_FOUND")
CLOSED = failed("unable to get device count: Insufficient Permissions")
SILENT: Json = {"state": {"running": {}}, "log": "Looking for GPU device id for pod"}
COMMAND = """
import pathlib, sys
from operations.__main__ import main
from operations.privilege_probe import commands
commands.ROOT = pathlib.Path(sys.argv.pop(1))
main()
"""
"""The command as make runs it, on a stack file of the test's own."""


@pytest.fixture(scope="module")
def stack(cluster: simulator.ControlPlane) -> Json:
    return stack_settings(BOARD, cluster)


@pytest.fixture(scope="module")
def api(cluster: simulator.ControlPlane) -> Iterator[httpx2.Client]:
    with connect(cluster) as connected:
        yield connected


@pytest.fixture(scope="module")
def board(cluster: simulator.ControlPlane, api: httpx2.Client, stack: Json) -> Iterator[Kubelet]:
    """The board, in a cluster where the stack's overrides and its guard of reservation pods are in force."""
    settings = parse(stack)
    with connect(cluster) as own, scripted(own, NODE) as kubelet:
        prepare(api, settings, NODE)
        make(api, reservation.overrides_policy(settings, Privilege.PRIVILEGED))
        make(api, reservation.overrides_binding(settings, Privilege.PRIVILEGED))
        post(api, POLICIES, guard_policy(settings))
        post(api, POLICIES, _pod_guard_policy([NAMESPACE, EXEMPT]))
        for guard in (GUARD, pod_guard.POD_GUARD):
            post(api, BINDINGS, deny_binding(guard))
        make_namespace(api, EXEMPT)
        _allow(api, "binder", {"kind": "User", "name": BINDER, "apiGroup": "rbac.authorization.k8s.io"}, ANYTHING)
        eventually(lambda: _reservation_pod_is_privileged(api))
        yield kubelet


@pytest.fixture(autouse=True)
def _quick(board: Kubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    board.script = {}
    board.pods.clear()
    monkeypatch.setattr(run, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(scratch, "POLL_SECONDS", 0.1)


@pytest.fixture
def before(api: httpx2.Client, board: Kubelet) -> set[str]:
    """Everything that the cluster holds when the test begins."""
    assert board.pods == []
    return inventory(api)


def _allow(api: httpx2.Client, name: str, subject: Json, rules: list[Json]) -> None:
    post(api, f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    reference = {"kind": "ClusterRole", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference}
    post(api, f"{RBAC}/clusterrolebindings", binding)


def _reservation_pod_is_privileged(api: httpx2.Client) -> bool:
    made = api.post(
        f"/api/v1/namespaces/{reservation.NAMESPACE}/pods",
        json=as_binder_creates(NODE),
        params={"dryRun": "All"},
        headers={"Impersonate-User": BINDER},
    )
    return made.is_success and made.json()["spec"]["containers"][0]["securityContext"].get("privileged") is True


def _probe(
    stack: Json, board: Kubelet, script: Mapping[str, Json], report: Callable[[str], None] = lambda _: None
) -> Result:
    """Probe the board, where pods of these rungs end so, and all others lack the library."""
    board.script = {f"probe-{rung.name}": script.get(rung.name, LIBRARY) for rung in ladder.LADDER}
    settings = parse(stack)
    with closing(Cluster.connect(settings.cluster)) as cluster:
        return Probe(cluster, settings, NODE, IMAGE, (44, 104), report).run()


def _tried(board: Kubelet) -> list[str]:
    return [pod["metadata"]["name"].removeprefix("probe-") for pod in board.pods]


def test_the_climb_ends_on_the_rung_that_holds_and_leaves_nothing(
    api: httpx2.Client, stack: Json, board: Kubelet, before: set[str]
) -> None:
    result = _probe(stack, board, {"libraries": CLOSED, "libraries-groups": HELD})
    assert _tried(board) == ["plain", "runtime-class", "variables", "libraries", "libraries-groups"]
    assert [attempt.symptom for attempt in result.attempts] == [*3 * [Symptom.NO_LIBRARY], Symptom.CLOSED, Symptom.HELD]
    assert result.status == FOUND
    assert result.settings_to_write == {
        "reservation": {"privilege_by_node": {NODE: "devices"}, "supplemental_groups": [44, 104]}
    }
    assert "ERROR_LIBRARY_NOT_FOUND" in result.text(), "the kubelet's log came by the API server"
    assert inventory(api) == before


def test_where_no_rung_holds_all_that_could_help_were_tried(
    api: httpx2.Client, stack: Json, board: Kubelet, before: set[str]
) -> None:
    missing = {"phase": "Pending", "events": ["hostPath type check failed: /dev is not a directory"]}
    result = _probe(stack, board, {"privileged": missing})
    assert _tried(board) == ["plain", "runtime-class", "variables", "libraries", "privileged"]
    assert (result.status, result.settings_to_write) == (NOT_HELD, {})
    assert (result.attempts[-1].symptom, result.attempts[-1].evidence) == (Symptom.NO_FOLDER, tuple(missing["events"]))
    assert inventory(api) == before
    # Overrides and guard, which make and let pass a privileged pod on this node, had no part in it.
    assert {pod["metadata"]["namespace"] for pod in board.pods} == {NAMESPACE}
    plain, *_, privileged = (pod["spec"] for pod in board.pods)
    assert "hostPath" not in str(plain)
    assert {variable["name"] for variable in plain["containers"][0]["env"]} == {"POD_NAME", "POD_NAMESPACE"}
    assert plain["containers"][0]["securityContext"]["runAsUser"] == 10000
    assert privileged["containers"][0]["securityContext"]["privileged"] is True
    assert _reservation_pod_is_privileged(api)


def test_a_pod_that_stays_pending_is_no_answer(
    api: httpx2.Client, stack: Json, board: Kubelet, before: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ladder, "START_SECONDS", 2)
    creating = {"phase": "Pending", "state": {"waiting": {"reason": "ContainerCreating"}}}
    result = _probe(stack, board, {"plain": creating})
    assert _tried(board) == ["plain"]
    assert (result.status, result.attempts[-1].symptom) == (NOT_RUN, Symptom.NOT_STARTED)
    assert inventory(api) == before


def test_a_guard_that_refuses_the_pods_is_told(
    api: httpx2.Client, stack: Json, board: Kubelet, before: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "SETTLED_SECONDS", 1.0)
    with _pod_guard(api, exempt=[]):
        result = _probe(stack, board, {})
    assert _tried(board) == []
    assert (result.status, [attempt.symptom for attempt in result.attempts]) == (NOT_RUN, [Symptom.REFUSED])
    assert f"ValidatingAdmissionPolicy '{pod_guard.POD_GUARD}'" in result.attempts[0].evidence[0]
    assert "pod_guard.exempt_namespaces" in result.text()
    assert inventory(api) == before


@contextmanager
def _pod_guard(api: httpx2.Client, exempt: list[str]) -> Iterator[None]:
    """The guard of all pods with other exemptions, for a while."""

    def replace(with_: list[str]) -> None:
        patch = [{"op": "replace", "path": "/spec", "value": _pod_guard_policy(with_)["spec"]}]
        headers = {"Content-Type": "application/json-patch+json"}
        api.patch(f"{POLICIES}/{pod_guard.POD_GUARD}", json=patch, headers=headers).raise_for_status()
        eventually(lambda: _is_guarded(api) is (EXEMPT not in with_))

    replace(exempt)
    yield
    replace([NAMESPACE, EXEMPT])


def _pod_guard_policy(exempt: list[str]) -> Json:
    return pod_guard.guard_policy(parse(changed(BOARD, "pod_guard", {"scope": "cluster", "exempt_namespaces": exempt})))


def _is_guarded(api: httpx2.Client) -> bool:
    """Whether the guard of all pods judges those of a namespace that it may exempt."""
    container = {"name": "main", "image": "busybox:1", "securityContext": {"privileged": True}}
    offends = {"metadata": {"name": "offends"}, "spec": {"containers": [container]}}
    return not api.post(f"/api/v1/namespaces/{EXEMPT}/pods", json=offends, params={"dryRun": "All"}).is_success


def test_whoever_has_the_rights_that_are_named_can_probe_and_nobody_else(
    api: httpx2.Client, stack: Json, board: Kubelet, tmp_path: Path
) -> None:
    secret = {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": b64encode(b"{}").decode()}}
    post(api, f"/api/v1/namespaces/{reservation.NAMESPACE}/secrets", secret | {"metadata": {"name": "site"}})
    post(api, "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "ada"}})
    token = post(api, "/api/v1/namespaces/default/serviceaccounts/ada/token", {})["status"]["token"]
    access = yaml.safe_load(Path(stack["cluster"]["kubeconfig"]).read_text(encoding="utf-8"))
    access["users"][0]["user"] = {"token": token}
    theirs = changed(stack, "cluster.kubeconfig", write_kubeconfig(tmp_path / "kubeconfig", access))
    theirs = changed(theirs, "kai.images.pull_secrets", ["site"])
    _allow(api, "ada", {"kind": "ServiceAccount", "name": "ada", "namespace": "default"}, ADA)
    before = inventory(api)
    role = f"{RBAC}/clusterroles/ada"

    # Everything but the logs.
    with pytest.raises(OperationError, match=r"may not get pods/log, which the probe needs\. Nothing was changed"):
        _probe(theirs, board, {})
    assert (board.pods, inventory(api)) == ([], before)

    logs = {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}
    patch = {"rules": [*ADA, logs]}
    api.patch(role, json=patch, headers={"Content-Type": "application/merge-patch+json"}).raise_for_status()
    copies: list[Json] = []
    copy = f"/api/v1/namespaces/{NAMESPACE}/secrets/site"
    result = _probe(theirs, board, {"plain": HELD, "variables": HELD}, lambda _: copies.append(api.get(copy).json()))
    assert result.status == FOUND
    assert [pod["spec"]["imagePullSecrets"] for pod in board.pods] == 2 * [[{"name": "site"}]]
    assert all(copied["data"] == secret["data"] for copied in copies)
    assert inventory(api) == before


@pytest.fixture
def command(stack: Json, board: Kubelet, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, with a pod on the board that tells nothing."""
    board.script = {"probe-plain": SILENT}
    content = {"config": {f"kai-anywhere:{SETTINGS_KEY}": stack}}
    (tmp_path / "Pulumi.test.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    options = ["probe-privilege", "--stack", "test", "--node", NODE, "--image", IMAGE]
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(tmp_path), *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            eventually(lambda: board.pods or process.poll() is not None)
            assert process.poll() is None, process.communicate()[0]
            yield process
        finally:
            process.kill()


def test_ctrl_c_leaves_nothing(api: httpx2.Client, before: set[str], command: subprocess.Popen[str]) -> None:
    assert inventory(api) > before
    command.send_signal(signal.SIGINT)
    assert command.wait(60) == 128 + signal.SIGINT
    assert inventory(api) == before
    assert "Traceback" not in command.communicate()[0]


def test_what_a_killed_probe_left_goes_with_the_next(
    api: httpx2.Client, stack: Json, board: Kubelet, before: set[str], command: subprocess.Popen[str]
) -> None:
    command.kill()
    command.wait(60)
    left = {name.partition("/")[0] for name in inventory(api) - before}
    assert left == {"Namespace", "ServiceAccount", "Role", "RoleBinding", "Pod"}
    result = _probe(stack, board, {"plain": HELD, "variables": HELD})
    assert _tried(board) == ["plain", "plain", "variables"]
    assert result.status == FOUND
    assert inventory(api) == before
