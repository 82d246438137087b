"""Reservation pods on a real API server: what KAI's binder creates, and what admission makes of it per node."""

import copy
import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
import yaml

import simulator
from testbed.engine import Stack
from testbed.inventory import connect
from testbed.reused import ReusedSimulators
from testbed.simulated import start
from testbed.stacks import ROOT, Json, changed, jetson
from testbed.waiting import eventually
from tests.support.golden import Golden
from tests.support.type_checks import type_checks
from toolchain import install
from toolchain.programs import KUBECTL

NAMESPACE = "kai-resource-reservation"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
BINDER = "system:serviceaccount:kai-scheduler:binder"
UNLISTED = "jetson-unlisted"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:kai-resource-reservation"
MERGE = {"Content-Type": "application/merge-patch+json"}
INDEX, UUID = "run.ai/reserve_for_gpu_index", "kai-anywhere.io/gpu-uuid"
GPU = "GPU-54c53ba5-2d3b-5e8a-9d9d-7a21d6a0a1b1"


@pytest.fixture(scope="module", params=["v1", "v1beta1"])
def version(request: pytest.FixtureRequest) -> str:
    """Of MutatingAdmissionPolicy, as the cluster serves it."""
    served: str = request.param
    return served


@pytest.fixture(scope="module")
def cluster(
    version: str, tmp_path_factory: pytest.TempPathFactory, reused_simulators: ReusedSimulators
) -> Iterator[simulator.ControlPlane]:
    older = version == "v1beta1"
    folder = tmp_path_factory.mktemp("cluster") / "simulator"
    with start(folder, older=True) if older else reused_simulators.lent() as control_plane:
        simulator.up(control_plane.folder, nodes={UNLISTED: simulator.NodeKind.JETSON}, older=older)
        yield control_plane


@pytest.fixture(scope="module")
def api(version: str, cluster: simulator.ControlPlane, new_stack: Callable[[Json], Stack]) -> Iterator[httpx2.Client]:
    """The cluster with the Jetson stack up."""
    settings = jetson()
    if version == "v1beta1":
        settings = changed(settings, "cluster.kubernetes_version", "1.34")
        settings = changed(settings, "cluster.mutating_policies", version)
    new_stack(settings).up()
    with connect(cluster) as connected:
        account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/kai-resource-reservation"
        eventually(lambda: connected.get(account).status_code == httpx2.codes.OK)
        yield connected


@pytest.fixture(autouse=True)
def no_pods_before(api: httpx2.Client) -> None:
    api.delete(PODS, params={"gracePeriodSeconds": "0"})
    eventually(lambda: not api.get(PODS).json()["items"])


def as_binder_creates(node: str) -> Json:
    """The pod of KAI v0.18.6, bound to a node."""
    pod: Json = yaml.safe_load((ROOT / "examples/reservation-pod.yaml").read_text(encoding="utf-8"))
    pod["spec"]["nodeName"] = node
    return pod


def create(api: httpx2.Client, pod: Json, *, user: str | None = BINDER, dry_run: bool = False) -> httpx2.Response:
    headers = {} if user is None else {"Impersonate-User": user}
    return api.post(PODS, json=pod, headers=headers, params={"dryRun": "All"} if dry_run else {})


def created(api: httpx2.Client, pod: Json, **options: Any) -> Json:  # noqa: ANN401 - passed on
    response = create(api, pod, **options)
    assert response.status_code == httpx2.codes.CREATED, response.text
    answer: Json = response.json()
    return answer


def refused(api: httpx2.Client, pod: Json, *, user: str | None = BINDER) -> str:
    response = create(api, pod, user=user)
    assert response.status_code in {httpx2.codes.FORBIDDEN, httpx2.codes.UNPROCESSABLE_CONTENT}, response.text
    return str(response.json()["message"])


def pod_path(pod: Json) -> str:
    return f"{PODS}/{pod['metadata']['name']}"


def say(api: httpx2.Client, pod: Json, *, dry_run: bool = False) -> httpx2.Response:
    """A reservation pod writes its GPU's UUID into its own annotation (KAI v0.17.0, cmd/resourcereservation)."""
    headers = MERGE | {"Impersonate-User": ACCOUNT}
    note = {"metadata": {"annotations": {INDEX: GPU}}}
    return api.patch(pod_path(pod), json=note, headers=headers, params={"dryRun": "All"} if dry_run else {})


def said(pod: Json) -> Json:
    return {key: text for key, text in pod["metadata"].get("annotations", {}).items() if key in {INDEX, UUID}}


def since(api: httpx2.Client, pod: Json) -> list[Json]:
    """Every state of a pod after the one given, as a watch shows them."""
    metadata = pod["metadata"]
    watch = {"watch": "true", "resourceVersion": metadata["resourceVersion"], "timeoutSeconds": "2"}
    answer = api.get(PODS, params=watch | {"fieldSelector": f"metadata.name={metadata['name']}"})
    return [json.loads(line)["object"] for line in answer.text.splitlines()]


def stable(pod: Json) -> Json:
    """The whole pod without what differs from run to run."""
    kept = copy.deepcopy(pod)
    for field in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"):
        kept["metadata"].pop(field, None)
    kept.pop("status", None)
    text = yaml.safe_dump(kept)
    token = next(v["name"] for v in kept["spec"]["volumes"] if v["name"].startswith("kube-api-access-"))
    result: Json = yaml.safe_load(text.replace(token, "kube-api-access-XXXXX"))
    return result


@pytest.mark.parametrize("node", ["jetson-1", "x86-1", UNLISTED])
def test_the_whole_pod_is_as_expected(api: httpx2.Client, golden: Golden, node: str) -> None:
    golden.check(f"reservation-pod/{node}", {"pod": stable(created(api, as_binder_creates(node)))})


@pytest.mark.parametrize("node", ["x86-1", UNLISTED])
def test_on_a_node_that_the_stack_does_not_list_the_pod_stays_as_kai_made_it(api: httpx2.Client, node: str) -> None:
    pod = as_binder_creates(node)
    [container] = created(api, pod)["spec"]["containers"]
    assert container["securityContext"] == pod["spec"]["containers"][0]["securityContext"]
    assert [e["name"] for e in container["env"]] == ["POD_NAME", "POD_NAMESPACE"]
    assert [m["mountPath"] for m in container["volumeMounts"]] == ["/var/run/secrets/kubernetes.io/serviceaccount"]


def test_a_second_round_of_admission_changes_nothing(api: httpx2.Client, version: str) -> None:
    """Two more policies, one named before ours and one after, take privilege away once: a new round must restore it."""
    once = as_binder_creates("jetson-1")
    alone = stable(created(api, once, dry_run=True))["spec"]
    policies = f"/apis/admissionregistration.k8s.io/{version}/mutatingadmissionpolicies"
    bindings = f"{policies.removesuffix('policies')}policybindings"
    names = ("aaa-interferes", "zzz-interferes")

    def marks(pod: Json) -> set[str]:
        return {f"test/{name}" for name in names} & set(pod["metadata"]["annotations"])

    for name in names:
        for path, body in ((policies, interfering_policy(name)), (bindings, interfering_binding(name))):
            body["apiVersion"] = f"admissionregistration.k8s.io/{version}"
            assert api.post(path, json=body).status_code == httpx2.codes.CREATED
    try:

        def interfered() -> Json | None:
            pod = created(api, once, dry_run=True)
            return pod if len(marks(pod)) == len(names) else None

        eventually(interfered)
        again = interfered()
        assert again is not None
        assert stable(again)["spec"] == alone
        [container] = again["spec"]["containers"]
        assert container["securityContext"]["privileged"] is True
        for kind in ("env", "volumeMounts"):
            keys = [entry.get("mountPath") or entry["name"] for entry in container[kind]]
            assert len(keys) == len(set(keys)), f"{kind} was added twice"
    finally:
        for name in names:
            api.delete(f"{bindings}/{name}")
            api.delete(f"{policies}/{name}")
        eventually(lambda: not marks(created(api, once, dry_run=True)))


def test_a_pod_that_was_mutated_once_passes_again_unchanged(api: httpx2.Client) -> None:
    first = created(api, as_binder_creates("jetson-1"), dry_run=True)
    again = as_binder_creates("jetson-1") | {"spec": first["spec"]}
    assert stable(created(api, again, dry_run=True))["spec"] == stable(first)["spec"]


class TestTheGuard:
    """What the reservation namespace refuses."""

    def test_a_pod_that_is_no_reservation_pod_may_not_be_privileged(self, api: httpx2.Client) -> None:
        pod = plain_pod("jetson-1")
        pod["spec"]["containers"][0]["securityContext"] = {"privileged": True}
        message = refused(api, pod, user=None)
        assert "spec.containers[main].securityContext.privileged is true" in message
        assert "only KAI's own reservation pod may, on these Tegra nodes: jetson-1" in message

    def test_a_plain_pod_is_welcome(self, api: httpx2.Client) -> None:
        assert "securityContext" not in created(api, plain_pod("jetson-1"), user=None)["spec"]["containers"][0]

    def test_a_pod_that_is_no_reservation_pod_may_not_mount_host_paths(self, api: httpx2.Client) -> None:
        pod = plain_pod("jetson-1")
        pod["spec"]["volumes"] = [{"name": "dev-nvidia", "hostPath": {"path": "/dev"}}]
        assert "spec.volumes[dev-nvidia].hostPath is /dev" in refused(api, pod, user=None)

    def test_a_reservation_pod_may_not_mount_any_other_host_path(self, api: httpx2.Client) -> None:
        pod = as_binder_creates("jetson-1")
        pod["spec"]["volumes"] = [{"name": "root", "hostPath": {"path": "/"}}]
        assert "it has volumes or mounts beyond the overrides'" in refused(api, pod)

    @pytest.mark.parametrize("field", ["hostNetwork", "hostPID", "hostIPC"])
    def test_host_namespaces_are_for_nobody(self, api: httpx2.Client, field: str) -> None:
        pod = as_binder_creates("jetson-1")
        pod["spec"][field] = True
        assert f"spec.{field} is true" in refused(api, pod)

    @pytest.mark.parametrize("node", ["x86-1", UNLISTED])
    def test_on_other_nodes_even_a_reservation_pod_may_not_be_privileged(self, api: httpx2.Client, node: str) -> None:
        pod = as_binder_creates(node)
        pod["spec"]["containers"][0]["securityContext"] = {"privileged": True}
        assert "securityContext.privileged is true" in refused(api, pod)

    def test_a_label_that_a_kubelet_gives_its_own_node_brings_no_privilege(self, api: httpx2.Client) -> None:
        node, key = f"/api/v1/nodes/{UNLISTED}", "kai-anywhere.io/platform"
        headers = {"Content-Type": "application/merge-patch+json"}
        api.patch(node, json={"metadata": {"labels": {key: "tegra"}}}, headers=headers)
        try:
            pod = as_binder_creates(UNLISTED)
            eventually(lambda: create(api, pod, dry_run=True).status_code != httpx2.codes.CREATED)
            assert "on these Tegra nodes: jetson-1" in refused(api, pod)
        finally:
            api.patch(node, json={"metadata": {"labels": {key: None}}}, headers=headers)

    @pytest.mark.parametrize("kind", ["initContainers", "ephemeralContainers"])
    def test_a_reservation_pod_brings_no_other_privileged_container(self, api: httpx2.Client, kind: str) -> None:
        other = {"name": "other", "image": "busybox:1", "securityContext": {"privileged": True}}
        if kind == "initContainers":
            pod = as_binder_creates("jetson-1")
            pod["spec"][kind] = [other]
            assert "it has other containers than resource-reservation" in refused(api, pod)
        else:
            pod = created(api, as_binder_creates("jetson-1"))
            path = f"{PODS}/{pod['metadata']['name']}/ephemeralcontainers"
            headers = {"Content-Type": "application/merge-patch+json"}
            response = api.patch(path, json={"spec": {kind: [other]}}, headers=headers)
            assert response.status_code == httpx2.codes.FORBIDDEN, response.text
            assert "spec.ephemeralContainers[other].securityContext.privileged is true" in response.json()["message"]

    def test_who_may_create_pods_here_gets_no_privileged_one_by_the_label(self, api: httpx2.Client) -> None:
        role = {
            "metadata": {"name": "pod-maker"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}],
        }
        binding = {
            "metadata": {"name": "pod-maker"},
            "subjects": [{"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}],
            "roleRef": {"kind": "Role", "name": "pod-maker", "apiGroup": "rbac.authorization.k8s.io"},
        }
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
        for path, body in (("roles", role), ("rolebindings", binding)):
            assert api.post(f"{rbac}/{path}", json=body).status_code == httpx2.codes.CREATED
        eventually(lambda: create(api, plain_pod("cpu-1"), user="mallory", dry_run=True).status_code == 201)
        assert "is created by KAI's binder" in refused(api, as_binder_creates("jetson-1"), user="mallory")
        # Whoever could remove the guard anyway is not hindered.
        created(api, as_binder_creates("jetson-1"), user=None)

    def test_a_pod_without_its_driver_libraries_is_refused_and_told_what_its_node_lacks(
        self, api: httpx2.Client
    ) -> None:
        node, key = "/api/v1/nodes/jetson-1", "kai-anywhere.io/platform"
        headers = {"Content-Type": "application/merge-patch+json"}
        api.patch(node, json={"metadata": {"labels": {key: None}}}, headers=headers).raise_for_status()
        try:
            reason = "its node lacks the label kai-anywhere.io/platform=tegra"
            eventually(lambda: reason in create(api, as_binder_creates("jetson-1"), dry_run=True).text)
            created(api, plain_pod("jetson-1"), user=None)
            created(api, as_binder_creates("x86-1"), dry_run=True)
        finally:
            api.patch(node, json={"metadata": {"labels": {key: "tegra"}}}, headers=headers).raise_for_status()
            eventually(lambda: create(api, as_binder_creates("jetson-1"), dry_run=True).status_code == 201)

    def test_the_image_of_a_privileged_pod_does_not_change(self, api: httpx2.Client) -> None:
        pod = created(api, as_binder_creates("jetson-1"))
        path = f"{PODS}/{pod['metadata']['name']}"
        image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "attacker.example/rootkit:1"}]
        response = api.patch(path, json=image, headers={"Content-Type": "application/json-patch+json"})
        assert response.status_code == httpx2.codes.UNPROCESSABLE_CONTENT
        assert "does not change" in response.json()["message"]


class TestTheIndex:
    """What a reservation pod writes about its GPU, as its own account, and what KAI's binder then reads there."""

    @pytest.fixture(autouse=True)
    def in_force(self, api: httpx2.Client) -> None:
        """Rights and policies hold some time after they were made."""
        pod = created(api, changed(as_binder_creates("jetson-1"), "metadata.name", "gpu-reservation-0000000000000000"))
        eventually(lambda: (answer := say(api, pod, dry_run=True)).is_success and said(answer.json()) != {INDEX: GPU})

    def test_on_a_jetson_the_binder_reads_index_0_and_at_no_moment_the_uuid(self, api: httpx2.Client) -> None:
        pod = created(api, as_binder_creates("jetson-1"))
        assert said(pod) == {}
        answer = say(api, pod)
        assert answer.status_code == httpx2.codes.OK, answer.text
        assert said(answer.json()) == {INDEX: "0", UUID: GPU}
        later = api.patch(pod_path(pod), json={"metadata": {"labels": {"later": "yes"}}}, headers=MERGE)
        assert later.status_code == httpx2.codes.OK, later.text
        # The binder watches its pod until the annotation is there: every state since the pod was made.
        states = [text for state in since(api, pod) if (text := said(state))]
        assert len(states) >= 2, "one for each patch"
        assert all(state == {INDEX: "0", UUID: GPU} for state in states)

    @pytest.mark.parametrize("node", ["x86-1", UNLISTED])
    def test_on_other_nodes_the_pod_says_its_uuid_and_is_not_touched(self, api: httpx2.Client, node: str) -> None:
        pod = created(api, as_binder_creates(node))
        answer = say(api, pod)
        assert answer.status_code == httpx2.codes.OK, answer.text
        pod["metadata"]["annotations"][INDEX] = GPU
        assert stable(answer.json()) == stable(pod)

    def test_another_pod_of_that_namespace_keeps_what_it_says(self, api: httpx2.Client) -> None:
        pod = created(api, plain_pod("jetson-1"), user=None)
        answer = say(api, pod)
        assert answer.status_code == httpx2.codes.OK, answer.text
        assert said(answer.json()) == {INDEX: GPU}


def test_in_other_namespaces_nothing_is_changed_and_nothing_is_refused(api: httpx2.Client) -> None:
    pod = as_binder_creates("jetson-1")
    pod["metadata"]["namespace"] = "default"
    pod["spec"].pop("serviceAccountName")
    answer = api.post("/api/v1/namespaces/default/pods", json=pod, params={"dryRun": "All"})
    assert answer.status_code == httpx2.codes.CREATED
    [container] = answer.json()["spec"]["containers"]
    assert container["securityContext"] == pod["spec"]["containers"][0]["securityContext"]


@pytest.mark.usefixtures("api")
def test_the_guard_has_no_type_errors(cluster: simulator.ControlPlane) -> None:
    assert type_checks(cluster)["kai-anywhere-reservation-guard"] == {}


@pytest.mark.usefixtures("api")
def test_the_example_in_the_readme_works_with_kubectl(cluster: simulator.ControlPlane) -> None:
    kubectl = install([KUBECTL])[KUBECTL]
    example = str(ROOT / "examples/reservation-pod.yaml")
    command = [str(kubectl), "--kubeconfig", str(cluster.kubeconfig), "create", "-f", example, "--as", BINDER]
    done = subprocess.run([*command, "--dry-run=server", "-o", "yaml"], check=True, capture_output=True, text=True)
    assert yaml.safe_load(done.stdout)["spec"]["containers"][0]["securityContext"]["privileged"] is True


def plain_pod(node: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "plain-", "namespace": NAMESPACE},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "busybox:1"}]},
    }


def interfering_policy(name: str) -> Json:
    expression = (
        f'Object{{metadata: Object.metadata{{annotations: {{"test/{name}": "was here"}}}}, spec: Object.spec{{'
        'containers: [Object.spec.containers{name: "resource-reservation", securityContext: '
        "Object.spec.containers.securityContext{privileged: false}}]}}"
    )
    return {
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "IfNeeded",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ],
            },
            "matchConditions": [
                {"name": "once", "expression": f"!('test/{name}' in object.metadata.?annotations.orValue({{}}))"}
            ],
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
        },
    }


def interfering_binding(name: str) -> Json:
    return {
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name},
    }
