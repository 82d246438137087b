"""Jetsons on each rung of reservation.privilege, on a real API server: what both carriers make, and the guard."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

import simulator
from config.stack import StackSettings
from manifests import reservation
from manifests.admission_objects import deny_binding
from manifests.objects import Manifest
from manifests.reservation_guard import GUARD, guard_policy
from testbed.admission.deployment import deployment, make, prepare, remove
from testbed.inventory import connect
from testbed.reused import ReusedSimulators
from testbed.stacks import Json, parse, rungs, rungs_webhook
from testbed.waiting import eventually
from tests.policy.objects import changed
from tests.support.admission.pods import outcome
from tests.support.pods.reservation_cases import as_binder_creates
from tests.support.pods.twin import POLICIES

NAMESPACE = reservation.NAMESPACE
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
BINDINGS = POLICIES.removesuffix("policies") + "policybindings"
BINDER = "system:serviceaccount:kai-scheduler:binder"
MERGE = {"Content-Type": "application/merge-patch+json"}
NODES = ("jetson-1", "jetson-2", "jetson-3")
LIBRARIES = "/usr/lib/aarch64-linux-gnu/nvidia"
CONTEXT = "spec.containers.0.securityContext"


@pytest.fixture(scope="module")
def cluster(reused_simulators: ReusedSimulators) -> Iterator[simulator.ControlPlane]:
    with reused_simulators.lent() as control_plane:
        simulator.up(control_plane.folder, nodes=dict.fromkeys(NODES, simulator.NodeKind.JETSON))
        yield control_plane


@pytest.fixture(scope="module")
def api(cluster: simulator.ControlPlane) -> Iterator[httpx2.Client]:
    """The cluster with namespace, account and guard of the stack, and its nodes' labels; nothing adds to pods yet."""
    settings = parse(rungs())
    with connect(cluster) as admin:
        prepare(admin, settings, NODES[0])
        for node in NODES[1:]:
            _label(admin, node, "tegra")
        group = "rbac.authorization.k8s.io"
        binding = {
            "metadata": {"name": "binder"},
            "roleRef": {"kind": "ClusterRole", "name": "edit", "apiGroup": group},
            "subjects": [{"kind": "User", "name": BINDER, "apiGroup": group}],
        }
        assert admin.post(f"/apis/{group}/v1/clusterrolebindings", json=binding).is_success
        yield admin


@pytest.fixture(scope="module")
def by_policy(api: httpx2.Client) -> dict[str, Json]:
    """What the carrier `policy` makes of KAI's pod on each node, without the guard; the policies stay in force."""
    for manifest in _policies(parse(rungs())):
        make(api, manifest)
    eventually(lambda: all(_is_changed(api, node) for node in NODES))
    return {node: _made(api, node) for node in NODES}


@pytest.fixture(scope="module")
def guarded(api: httpx2.Client, by_policy: dict[str, Json]) -> httpx2.Client:
    """The same with the stack's guard in force."""
    assert by_policy
    assert api.post(POLICIES, json=guard_policy(parse(rungs()))).is_success
    assert api.post(BINDINGS, json=deny_binding(GUARD)).is_success
    eventually(lambda: not _create(api, changed(as_binder_creates(), "spec.hostPID", True)).is_success)
    return api


def _policies(settings: StackSettings) -> list[Manifest]:
    return [
        manifest
        for rung in reservation.nodes_by_privilege(settings)
        for manifest in (reservation.overrides_policy(settings, rung), reservation.overrides_binding(settings, rung))
    ]


def _label(api: httpx2.Client, node: str, value: str | None) -> None:
    body = {"metadata": {"labels": {"kai-anywhere.io/platform": value}}}
    assert api.patch(f"/api/v1/nodes/{node}", json=body, headers=MERGE).is_success


def _create(api: httpx2.Client, pod: Json) -> httpx2.Response:
    return api.post(PODS, json=pod, params={"dryRun": "All"}, headers={"Impersonate-User": BINDER})


def _is_changed(api: httpx2.Client, node: str) -> bool:
    response = _create(api, as_binder_creates(node))
    return response.is_success and "LD_LIBRARY_PATH" in response.text


def _made(api: httpx2.Client, node: str) -> Json:
    """The specification of KAI's pod on a node, as the API server keeps it."""
    made = outcome(_create(api, as_binder_creates(node)))
    assert made is not None
    return made


def _host_paths(spec: Json) -> dict[str, str]:
    return {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}


def test_on_the_rung_none_kais_own_context_stays_and_groups_are_added(by_policy: dict[str, Json]) -> None:
    spec = by_policy["jetson-1"]
    [container] = spec["containers"]
    assert spec["securityContext"] == {"supplementalGroups": [44, 104]}
    assert container["securityContext"] == as_binder_creates()["spec"]["containers"][0]["securityContext"]
    assert spec["runtimeClassName"] == "nvidia"
    assert {variable["name"]: variable.get("value") for variable in container["env"]}["LD_LIBRARY_PATH"] == LIBRARIES
    assert _host_paths(spec) == {}
    assert [volume_mount["mountPath"] for volume_mount in container["volumeMounts"]] == [
        "/var/run/secrets/kubernetes.io/serviceaccount"
    ]


def test_on_the_rung_devices_the_libraries_are_mounted_read_only(by_policy: dict[str, Json]) -> None:
    spec = by_policy["jetson-2"]
    [container] = spec["containers"]
    assert _host_paths(spec) == {"nvidia-libs": LIBRARIES}
    assert {"name": "nvidia-libs", "mountPath": LIBRARIES, "readOnly": True} in container["volumeMounts"]
    assert container["securityContext"] == as_binder_creates()["spec"]["containers"][0]["securityContext"]
    assert spec["securityContext"] == {"supplementalGroups": [44, 104]}


def test_on_the_rung_privileged_the_pod_is_root_with_every_device(by_policy: dict[str, Json]) -> None:
    spec = by_policy["jetson-3"]
    [container] = spec["containers"]
    assert _host_paths(spec) == {"nvidia-libs": LIBRARIES, "dev-nvidia": "/dev"}
    assert container["securityContext"]["privileged"] is True
    assert container["securityContext"]["runAsUser"] == 0
    assert spec["securityContext"] == {}


@pytest.mark.parametrize("node", NODES)
def test_the_guard_lets_kais_own_pod_of_every_rung_pass(
    guarded: httpx2.Client, by_policy: dict[str, Json], node: str
) -> None:
    assert _made(guarded, node) == by_policy[node]
    spec = json.dumps(by_policy[node]).replace("kube-api-access-XXXXX", "kube-api-access-again")
    again = as_binder_creates(node) | {"spec": json.loads(spec)}
    assert outcome(_create(guarded, again)) == by_policy[node], "a second round changes nothing"


_DEV = [{"name": "dev-nvidia", "hostPath": {"path": "/dev", "type": "Directory"}}]
_LIBRARIES = [{"name": "nvidia-libs", "hostPath": {"path": LIBRARIES, "type": "Directory"}}]


@pytest.mark.parametrize(
    ("node", "path", "value", "refusal"),
    [
        ("jetson-1", f"{CONTEXT}.privileged", True, "securityContext.privileged is true"),
        ("jetson-1", "spec.volumes", _LIBRARIES, "spec.volumes[nvidia-libs].hostPath is"),
        ("jetson-1", "spec.volumes", _DEV, "spec.volumes[dev-nvidia].hostPath is /dev"),
        ("jetson-2", f"{CONTEXT}.privileged", True, "securityContext.privileged is true"),
        ("jetson-2", "spec.volumes", _DEV, "it has volumes or mounts beyond the overrides'"),
        ("jetson-2", "spec.hostPID", True, "spec.hostPID is true"),
        ("jetson-2", "spec.containers.0.args", ["a"], "it sets one of"),
        ("jetson-3", "spec.containers.0.args", ["a"], "it sets one of"),
    ],
)
def test_the_guard_refuses_what_a_nodes_rung_does_not_give(
    guarded: httpx2.Client, node: str, path: str, value: object, refusal: str
) -> None:
    pod = changed(as_binder_creates(node), path, value)
    if path == f"{CONTEXT}.privileged":
        # Kubernetes itself refuses a privileged container that may not escalate.
        pod = changed(pod, f"{CONTEXT}.allowPrivilegeEscalation", True)
    response = _create(guarded, pod)
    assert not response.is_success
    message = response.json()["message"]
    assert f"ValidatingAdmissionPolicy '{GUARD}'" in message, message
    assert refusal in message


def test_a_kubelet_that_labels_its_node_moves_it_to_no_rung(guarded: httpx2.Client) -> None:
    plain = _made(guarded, "x86-1")
    _label(guarded, "x86-1", "tegra")
    _label(guarded, "jetson-3", None)
    try:
        # Once the policies see one change, they see the other.
        eventually(lambda: not _create(guarded, as_binder_creates("jetson-3")).is_success)
        assert _made(guarded, "x86-1") == plain
    finally:
        _label(guarded, "x86-1", None)
        _label(guarded, "jetson-3", "tegra")
        eventually(lambda: _is_changed(guarded, "jetson-3"))


def test_below_the_rungs_with_host_folders_pod_securitys_baseline_is_enough(guarded: httpx2.Client) -> None:
    namespace = f"/api/v1/namespaces/{NAMESPACE}"

    def enforce(level: str) -> None:
        labels = {"pod-security.kubernetes.io/enforce": level}
        assert guarded.patch(namespace, json={"metadata": {"labels": labels}}, headers=MERGE).is_success

    enforce("baseline")
    try:
        eventually(lambda: not _is_changed(guarded, "jetson-3"))
        assert _is_changed(guarded, "jetson-1")
        assert "violates PodSecurity" in _create(guarded, as_binder_creates("jetson-2")).json()["message"]
    finally:
        enforce("privileged")
        eventually(lambda: _is_changed(guarded, "jetson-3"))


def test_the_carrier_webhook_makes_the_same_pods_on_every_rung(
    guarded: httpx2.Client,
    by_policy: dict[str, Json],
    cluster: simulator.ControlPlane,
    tmp_path: Path,
) -> None:
    for manifest in reversed(_policies(parse(rungs()))):
        remove(guarded, manifest)
    eventually(lambda: not any(_is_changed(guarded, node) for node in NODES))
    plain = _made(guarded, "x86-1")
    with deployment(tmp_path / "server", cluster, guarded, parse(rungs_webhook())) as server:
        server.install()
        server.start()
        eventually(lambda: all(_is_changed(guarded, node) for node in NODES))
        for node in NODES:
            assert _made(guarded, node) == by_policy[node]
        _label(guarded, "x86-1", "tegra")
        try:
            eventually(lambda: any("x86-1" in line.get("nodes", ()) for line in server.logs()))
            assert _made(guarded, "x86-1") == plain
        finally:
            _label(guarded, "x86-1", None)
