"""One corpus for the policy pack and for its twin in the cluster: both must give the same verdict on every object.

The pack judges the object as a program would register it; the API server gets it as a creation that it does not store
(dry run), with the twin in force and nothing else of a stack.
"""

import copy
import json
import random
import time
from collections.abc import Iterator

import httpx2
import pytest

import simulator
from manifests import pod_guard
from manifests.admission_objects import deny_binding
from pod_checks import table
from policy.stack_platform import stack_facts
from testbed.inventory import connect
from testbed.stacks import Json, jetson, parse, x86
from testbed.waiting import eventually
from tests.policy.objects import changed, reservation_pod, without
from tests.support.pods.corpus import (
    CHANGES,
    COMBINATIONS,
    CONTAINER,
    FORBIDDEN,
    FORBIDDEN_TOGETHER,
    GIVEN_ALONE,
    IMAGE,
    IN_EPHEMERAL,
    KINDS,
    NEW,
    NV_FRACTIONS,
    REFUSED_BY_KUBERNETES,
    REFUSED_UNDER_NV_FRACTIONS,
    both,
    plain,
)
from tests.support.pods.reservation_cases import NEAR
from tests.support.pods.twin import (
    BINDER,
    DRY,
    FREE,
    GUARDED,
    MERGE,
    OFFENCES,
    POLICIES,
    RESERVATION,
    as_sidecar,
    compare,
    create,
    denied,
    disagreement,
    findings,
    make_namespace,
    path_of,
    places,
    post,
    prepare,
    unguarded,
)
from tests.support.type_checks import type_checks


@pytest.fixture(scope="module")
def api(cluster: simulator.ControlPlane) -> Iterator[httpx2.Client]:
    """A cluster with the twin of the Jetson stack, a guarded namespace, one without the label, and what was before."""
    with connect(cluster) as connected:
        prepare(connected)
        yield connected


@pytest.mark.parametrize("kind", KINDS)
def test_both_welcome_a_compliant_object(api: httpx2.Client, kind: str) -> None:
    body = KINDS[kind](plain())
    assert findings(body) == set()
    assert create(api, body).is_success


@pytest.mark.parametrize("kind", KINDS)
def test_pack_and_twin_agree_on_every_change_in_every_place(api: httpx2.Client, kind: str) -> None:
    differences, refused = [], 0
    for change in CHANGES:
        for place in places(change):
            body = KINDS[kind](change.apply(as_sidecar(plain()), place))
            assert bool(findings(body)) is not change.allowed, f"{change.path}={change.value} at {place}"
            refused += not change.allowed
            if difference := disagreement(api, body):
                differences.append(f"{change.path}={change.value} at {place}: {difference}")
    assert differences == []
    assert refused > len(FORBIDDEN)


@pytest.mark.parametrize("name", COMBINATIONS)
def test_pack_and_twin_agree_on_what_takes_several_changes(api: httpx2.Client, name: str) -> None:
    bodies = [KINDS[kind](COMBINATIONS[name](plain())) for kind in KINDS]
    assert [difference for body in bodies if (difference := disagreement(api, body))] == []
    assert {bool(findings(body)) for body in bodies} == {name in FORBIDDEN_TOGETHER}


def test_pack_and_twin_agree_on_the_annotations_of_nv_fractions(api: httpx2.Client) -> None:
    stack = changed(x86(), "kai.gpu_sharing_mode", "nv_fractions")
    facts, namespace, name = stack_facts(json.dumps(stack), {}), "nv-fractions", f"{pod_guard.POD_GUARD}-nv"
    make_namespace(api, namespace)
    only_here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    policy = changed(pod_guard.guard_policy(parse(stack)), "metadata.name", name)
    post(api, POLICIES, changed(policy, "spec.matchConstraints.namespaceSelector", only_here))
    post(api, POLICIES.removesuffix("policies") + "policybindings", deny_binding(name))
    eventually(lambda: not create(api, changed(plain(), "spec.hostPID", True), namespace).is_success)
    refused = set()
    given = {name: COMBINATIONS[name] for name in GIVEN_ALONE}
    for key, asking in (NV_FRACTIONS | given).items():
        for kind in KINDS:
            body = KINDS[kind](asking(plain()))
            response = create(api, body, namespace)
            assert response.is_success != bool(findings(body, facts)), f"{key} of {kind}: {response.text}"
            assert response.is_success or f"'{name}'" in response.json()["message"], response.text
            refused |= set() if response.is_success else {key}
    assert refused == REFUSED_UNDER_NV_FRACTIONS | given.keys()


def test_every_check_of_the_table_is_in_the_corpus_as_refused_and_as_allowed() -> None:
    refused = {change.check for change in FORBIDDEN} | {"host_processes", "proc_mounts"}
    allowed = {change.check for change in CHANGES if change.allowed}
    assert refused == allowed == {check.name for check in table.CHECKS}


@pytest.mark.parametrize("name", REFUSED_BY_KUBERNETES)
def test_kubernetes_itself_refuses_what_the_twin_leaves_out(api: httpx2.Client, name: str) -> None:
    body = REFUSED_BY_KUBERNETES[name](plain())
    assert findings(body)
    response = create(api, body)
    assert response.status_code == httpx2.codes.UNPROCESSABLE_CONTENT
    assert "ValidatingAdmissionPolicy" not in response.text


def test_pack_and_twin_agree_on_random_objects(api: httpx2.Client) -> None:
    chance = random.Random(20261122)  # noqa: S311 - a corpus that repeats itself
    differences, refused = [], 0
    for _ in range(150):
        pod = as_sidecar(plain())
        by_check = {change.check: change for change in chance.sample(CHANGES, 6)}
        if "profiles" in by_check:
            # Kubernetes refuses a field and an annotation that contradict each other.
            by_check.pop("profile_annotations", None)
        if "sysctls" in by_check:
            by_check.pop("host_namespaces", None)
        for change in list(by_check.values())[: chance.randint(1, 5)]:
            pod = change.apply(pod, chance.choice(places(change)))
        body = KINDS[chance.choice(list(KINDS))](pod)
        refused += bool(findings(body))
        if difference := disagreement(api, body):
            differences.append(difference)
    assert differences == []
    assert 30 < refused < 145, "both verdicts must occur"


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Deployment", "metadata.annotations"),
        ("CronJob", "metadata.annotations"),
        ("CronJob", "spec.jobTemplate.metadata.annotations"),
    ],
)
def test_pack_and_twin_agree_on_annotations_outside_the_template(api: httpx2.Client, kind: str, path: str) -> None:
    body = changed(KINDS[kind](plain()), path, {"cdi.k8s.io/x": "nvidia.com/gpu=all"})
    assert findings(body)
    assert not disagreement(api, body)


class TestEphemeralContainers:
    """The subresource of a pod that runs, and so has a node's name."""

    def patch(self, api: httpx2.Client, container: Json, pod: str = "running") -> httpx2.Response:
        path = f"/api/v1/namespaces/{GUARDED}/pods/{pod}/ephemeralcontainers"
        return api.patch(path, json={"spec": {"ephemeralContainers": [container]}}, headers=MERGE, params=DRY)

    def test_pack_and_twin_agree_on_every_change(self, api: httpx2.Client) -> None:
        differences = []
        tried = [change for change in CHANGES if change.everywhere and change.check in IN_EPHEMERAL]
        for change in tried:
            container = {"name": "debug", "image": IMAGE, "env": [{}], "volumeMounts": [{"name": "cache"}]}
            container["env"] = [{"name": "MODE", "value": "fast"}]
            container["volumeMounts"] = [{"name": "cache", "mountPath": "/cache"}]
            pod = change.apply(changed(plain(), "spec.ephemeralContainers", [container]), "spec.ephemeralContainers.0")
            difference = compare(findings(pod), self.patch(api, pod["spec"]["ephemeralContainers"][0]))
            if difference:
                differences.append(f"{change.path}={change.value}: {difference}")
        assert differences == []
        assert len(tried) > 30

    def test_a_pod_with_power_over_its_node_gets_none(self, api: httpx2.Client) -> None:
        response = self.patch(api, {"name": "debug", "image": IMAGE}, "old-pod")
        assert denied(response), "it would share the node's processes"
        assert "spec.hostPID is true" in response.json()["message"]
        assert "spec.nodeName" not in response.json()["message"]


class TestAnnotationsOfOtherRequests:
    """A status and a binding set annotations of a pod, and are no updates of it."""

    CDI = {"nvidia.cdi.k8s.io/container.app": "nvidia.com/gpu=all"}  # noqa: RUF012 - a constant

    def status(self, api: httpx2.Client, body: Json, pod: str = "running", *, dry: bool = True) -> httpx2.Response:
        path = f"/api/v1/namespaces/{GUARDED}/pods/{pod}/status"
        return api.patch(path, json=body, headers=MERGE, params=DRY if dry else {})

    def test_a_status_brings_no_devices(self, api: httpx2.Client) -> None:
        response = self.status(api, {"metadata": {"annotations": self.CDI}})
        assert denied(response)
        message = response.json()["message"]
        assert "Pod running: metadata.annotations[nvidia.cdi.k8s.io/container.app] is nvidia.com/gpu=all" in message
        assert self.status(api, {"metadata": {"annotations": {"note": "text"}}, "status": {"message": "x"}}).is_success

    def test_a_status_takes_no_request_away_from_who_has_the_nvidia_runtime_for_it(self, api: httpx2.Client) -> None:
        asking = both(
            ("spec.schedulerName", "kai-scheduler"),
            ("spec.runtimeClassName", "nvidia"),
            ("metadata.annotations", {"gpu-fraction": "0.5", "note": "text"}),
        )(plain("asking"))
        post(api, path_of(asking, GUARDED), asking)
        response = self.status(api, {"metadata": {"annotations": {"gpu-fraction": None}}}, "asking")
        assert denied(response)
        assert "Pod asking: spec.runtimeClassName is nvidia" in response.json()["message"]
        assert self.status(api, {"metadata": {"annotations": {"gpu-fraction": "0.4"}}}, "asking").is_success

    # Two pods, never one deleted and made again: a status patch by kwok that meets a deletion with grace period 0 lets
    # the API server delete by name, and the next pod of that name goes (Kubernetes v1.36, deleteWithoutFinalizers).
    @pytest.mark.parametrize(("pod", "path"), [("bound", "pods/bound/binding"), ("bound-too", "bindings")])
    def test_a_binding_brings_no_devices(self, api: httpx2.Client, pod: str, path: str) -> None:
        post(api, path_of(plain(pod), GUARDED), changed(plain(pod), "spec.schedulerName", "none"))
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod, "annotations": self.CDI},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "cpu-1"},
        }
        response = api.post(f"/api/v1/namespaces/{GUARDED}/{path}", json=binding)
        assert denied(response)
        assert f"Binding {pod}: metadata.annotations[nvidia.cdi.k8s.io/" in response.json()["message"]
        harmless = changed(binding, "metadata.annotations", {"note": "bound"})
        response = api.post(f"/api/v1/namespaces/{GUARDED}/{path}", json=harmless)
        assert response.is_success, response.text
        bound = api.get(f"/api/v1/namespaces/{GUARDED}/pods/{pod}").json()
        assert bound["spec"]["nodeName"] == "cpu-1"
        assert bound["metadata"]["annotations"] == {"note": "bound"}

    @pytest.mark.parametrize("key", ["nvidia.cdi.k8s.io/container.app", "nvidia.com/container.app.gpus.devices"])
    def test_kais_binder_alone_says_the_devices_of_a_pod_that_is_there(self, api: httpx2.Client, key: str) -> None:
        pod = changed(plain(f"given-{key.count('gpus')}"), "spec.schedulingGates", [{"name": "example.com/wait"}])
        path = f"{path_of(pod, GUARDED)}/{pod['metadata']['name']}"
        post(api, path_of(pod, GUARDED), pod)
        binder = MERGE | {"Impersonate-User": BINDER}
        # Its rights take a moment to be in force.
        eventually(lambda: api.patch(path, json={}, headers=binder).is_success)

        def says(device: str, headers: dict[str, str] = MERGE) -> httpx2.Response:
            return api.patch(path, json={"metadata": {"annotations": {key: device}}}, headers=headers)

        assert denied(says("all"))
        assert denied(create(api, changed(plain(), "metadata.annotations", {key: "all"}), user=BINDER))
        assert says("GPU-1", binder).is_success
        assert denied(says("GPU-2"))
        assert api.patch(path, json={"metadata": {"labels": {"a": "b"}}}, headers=MERGE).is_success
        assert api.get(path).json()["metadata"]["annotations"][key] == "GPU-1"

    def test_what_a_pod_had_before_refuses_no_status(self, api: httpx2.Client) -> None:
        pod = both(
            ("spec.schedulingGates", [{"name": "example.com/wait"}]),
            ("spec.hostPID", True),
            ("metadata.annotations", self.CDI),
        )(plain("annotated"))
        with unguarded(api, pod):
            post(api, path_of(pod, GUARDED), pod)
        assert self.status(api, {"status": {"message": "x"}}, "annotated").is_success
        more = {"metadata": {"annotations": {"cdi.k8s.io/more": "nvidia.com/gpu=1"}}}
        response = self.status(api, more, "annotated")
        assert denied(response)
        assert "container.app" not in response.json()["message"]
        assert "hostPID" not in response.json()["message"]


class TestUpdates:
    """What was there before the guard stays usable; what an update adds is judged."""

    def patch(self, api: httpx2.Client, path: str, patch: Json, *, dry: bool = True) -> httpx2.Response:
        return api.patch(path, json=patch, headers=MERGE, params=DRY if dry else {})

    @pytest.mark.parametrize(
        "patch",
        [
            {"metadata": {"finalizers": None}},
            {"metadata": {"labels": {"a": "b"}}},
            {"spec": {"activeDeadlineSeconds": 1000}},
        ],
    )
    def test_an_old_pod_takes_what_does_not_touch_its_offences(self, api: httpx2.Client, patch: Json) -> None:
        assert self.patch(api, f"/api/v1/namespaces/{GUARDED}/pods/old-pod", patch).is_success

    def test_an_old_pod_takes_no_other_image(self, api: httpx2.Client) -> None:
        containers = [changed(plain(), f"{CONTAINER}.image", "app:2")["spec"]["containers"][0]]
        body = api.get(f"/api/v1/namespaces/{GUARDED}/pods/old-pod").json()
        body["spec"]["containers"][0]["image"] = containers[0]["image"]
        response = api.put(f"/api/v1/namespaces/{GUARDED}/pods/old-pod", json=body, params=DRY)
        assert denied(response), "the image would get the old one's power"

    def test_a_running_pod_takes_another_image(self, api: httpx2.Client) -> None:
        body = api.get(f"/api/v1/namespaces/{GUARDED}/pods/running").json()
        body["spec"]["containers"][0]["image"] = "app:2"
        assert api.put(f"/api/v1/namespaces/{GUARDED}/pods/running", json=body, params=DRY).is_success
        body["spec"]["containers"][0]["image"] = "app:latest"
        assert denied(api.put(f"/api/v1/namespaces/{GUARDED}/pods/running", json=body, params=DRY))

    def test_an_old_pod_takes_a_status_and_can_be_deleted(self, api: httpx2.Client) -> None:
        path = f"/api/v1/namespaces/{GUARDED}/pods/old-pod"
        assert self.patch(api, f"{path}/status", {"status": {"message": "x"}}).is_success
        assert api.delete(path, params=DRY).is_success

    @pytest.mark.parametrize(
        "patch",
        [
            {"spec": {"replicas": 1}},
            {"spec": {"paused": True}},
            {"spec": {"template": {"metadata": {"annotations": {"restarted": "now"}}}}},
            {"spec": {"template": {"spec": {"hostPID": None}}}},
        ],
    )
    def test_an_old_deployment_takes_what_adds_no_offence(self, api: httpx2.Client, patch: Json) -> None:
        assert self.patch(api, f"/apis/apps/v1/namespaces/{GUARDED}/deployments/old", patch).is_success

    def test_an_old_deployment_takes_no_further_offence_and_is_told_of_that_alone(self, api: httpx2.Client) -> None:
        patch = {"spec": {"template": {"spec": {"hostIPC": True}}}}
        response = self.patch(api, f"/apis/apps/v1/namespaces/{GUARDED}/deployments/old", patch)
        assert denied(response)
        message = response.json()["message"]
        assert "spec.template.spec.hostIPC is true" in message
        assert "hostPID" not in message
        assert "privileged is true" not in message

    def test_new_pods_of_an_old_deployment_are_judged(self, api: httpx2.Client) -> None:
        assert denied(create(api, OFFENCES(plain())))

    @pytest.mark.parametrize(
        "kind",
        ["PodTemplate", "ReplicationController", "ReplicaSet", "Deployment", "DaemonSet", "StatefulSet", "CronJob"],
    )
    def test_pack_and_twin_agree_on_updates_of_what_was_compliant(self, api: httpx2.Client, kind: str) -> None:
        body = KINDS[kind](plain(f"updated-{kind.lower()}"))
        if kind == "DaemonSet":
            body["spec"]["template"]["spec"]["nodeSelector"] = {"example.com/no": "node"}
        elif kind == "CronJob":
            body["spec"]["suspend"] = True
        elif kind != "PodTemplate":
            body["spec"]["replicas"] = 0
        path = f"{path_of(body, GUARDED)}/{body['metadata']['name']}"
        stored = post(api, path_of(body, GUARDED), body)
        differences = []
        for change in [*FORBIDDEN, *(change for change in CHANGES if change.allowed and change.check == "images")]:
            updated = KINDS[kind](change.apply(plain(f"updated-{kind.lower()}"), CONTAINER))
            there = (
                "template" if kind == "PodTemplate" else "spec.jobTemplate" if kind == "CronJob" else "spec.template"
            )
            update = changed(
                stored, there, updated["template"] if kind == "PodTemplate" else updated["spec"][there[5:]]
            )
            difference = compare(
                findings(updated), api.put(path, json=without(update, "metadata.resourceVersion"), params=DRY)
            )
            if difference:
                differences.append(f"{change.path}={change.value}: {difference}")
        assert differences == []


class TestGrants:
    """KAI's reservation pods on Tegra nodes, and what comes near them."""

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            *NEAR,
            ("metadata.labels.a", "b"),
            ("spec.containers.0.image", "ghcr.io/kai-scheduler/kai-scheduler/resourcereservation:v0.17.0"),
            ("spec.containers.0.env.2", {"name": "GODEBUG", "value": "fips140=only,tlsmlkem=0"}),
            ("spec.volumes.0.hostPath.path", "/"),
            ("spec.volumes.1.hostPath.path", "/"),
            ("spec.volumes.1.hostPath.type", "DirectoryOrCreate"),
            ("spec.volumes.0", {"name": "nvidia-libs", "projected": {"sources": [{"configMap": {"name": "program"}}]}}),
            ("spec.volumes.2", {"name": "more", "hostPath": {"path": "/dev", "type": "Directory"}}),
            ("spec.volumes.2", {"name": "more", "emptyDir": {}}),
            ("spec.containers.0.volumeMounts.0.readOnly", False),
            ("spec.containers.0.volumeMounts.1.readOnly", True),
            ("spec.containers.0.volumeMounts.1.subPath", "sda"),
            ("spec.containers.0.volumeMounts.1.mountPath", "/devices"),
            ("spec.containers.0.volumeMounts.1.mountPropagation", "Bidirectional"),
        ],
    )
    def test_pack_and_twin_agree_on_what_comes_near_a_reservation_pod(
        self, api: httpx2.Client, path: str, value: object
    ) -> None:
        pod = reservation_pod()
        token = {
            "sources": [{"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}]
        }
        pod["spec"]["volumes"].append({"name": "spare", "projected": token})
        pod["spec"]["containers"][0]["env"].append({"name": "GODEBUG", "value": "a=1"})
        body = changed(pod, path, value)
        assert not disagreement(api, body, RESERVATION)
        welcome = path == "metadata.labels.a" or "v0.17.0" in str(value) or "fips140" in str(value)
        assert bool(findings(body)) is not welcome

    def test_both_refuse_another_container_beside_kais(self, api: httpx2.Client) -> None:
        body = reservation_pod()
        body["spec"]["containers"].append({"name": "other", "image": IMAGE})
        assert findings(body)
        assert not disagreement(api, body, RESERVATION)

    def test_both_welcome_the_reservation_pod_on_tegra_and_nowhere_else(self, api: httpx2.Client) -> None:
        assert findings(reservation_pod()) == set()
        assert create(api, reservation_pod(), RESERVATION).is_success
        assert findings(changed(reservation_pod(), "metadata.namespace", FREE))
        body = without(reservation_pod(), "spec.serviceAccountName")
        assert denied(create(api, body, GUARDED))
        assert findings(changed(body, "metadata.namespace", GUARDED))

    def test_a_controller_of_reservation_pods_gets_no_grant(self, api: httpx2.Client) -> None:
        body = KINDS["Deployment"](changed(reservation_pod(), "metadata.labels", {"app": "web"}))
        assert findings(body)
        assert not disagreement(api, body, RESERVATION)

    def test_kais_binder_names_the_node_of_reservation_pods_on_every_platform(self, api: httpx2.Client) -> None:
        pod = changed(plain(), "spec.nodeName", "x86-1")
        assert denied(create(api, pod, RESERVATION))
        # Its rights take a moment to be in force.
        eventually(lambda: create(api, pod, RESERVATION, user=BINDER).is_success)
        assert denied(create(api, pod, GUARDED, user=BINDER))
        assert denied(create(api, changed(pod, "spec.hostPID", True), RESERVATION, user=BINDER))
        deployment = KINDS["Deployment"](pod)
        assert denied(create(api, deployment, RESERVATION, user=BINDER))


def test_a_namespace_without_the_label_is_not_guarded(api: httpx2.Client) -> None:
    assert create(api, OFFENCES(plain()), FREE).is_success


def test_a_guarded_cluster_leaves_out_what_is_privileged_by_design(api: httpx2.Client) -> None:
    for name in ("gpu-operator", "longhorn-system"):
        make_namespace(api, name)
    path = f"{POLICIES}/{pod_guard.POD_GUARD}"
    settings = changed(jetson(), "pod_guard", {"scope": "cluster", "exempt_namespaces": ["longhorn-system"]})
    labelled = pod_guard.guard_policy(parse(jetson()))["spec"]
    try:
        replace(api, path, pod_guard.guard_policy(parse(settings))["spec"])
        eventually(lambda: not create(api, OFFENCES(plain()), FREE).is_success)
        for namespace in (FREE, GUARDED, RESERVATION, "default"):
            assert denied(create(api, OFFENCES(plain()), namespace))
        for namespace in ("kube-system", "gpu-operator", "longhorn-system"):
            assert create(api, OFFENCES(plain()), namespace).is_success
    finally:
        replace(api, path, labelled)
        eventually(lambda: create(api, OFFENCES(plain()), FREE).is_success)


def test_a_new_entry_of_the_table_is_refused_by_pack_and_guard(
    api: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{POLICIES}/{pod_guard.POD_GUARD}"
    usual = pod_guard.guard_policy(parse(jetson()))["spec"]
    bodies = [change.apply(plain()) for _, change in NEW]
    assert all(create(api, body).is_success for body in bodies)
    monkeypatch.setattr(table, "CHECKS", (*table.CHECKS, *(check for check, _ in NEW)))
    try:
        replace(api, path, pod_guard.guard_policy(parse(jetson()))["spec"])
        eventually(lambda: not create(api, bodies[0]).is_success)
        assert [disagreement(api, body) for body in [*bodies, plain()]] == [""] * (len(NEW) + 1)
        assert all(findings(body) for body in bodies)
    finally:
        replace(api, path, usual)
        eventually(lambda: create(api, bodies[0]).is_success)


def replace(api: httpx2.Client, path: str, spec: Json) -> None:
    """Give the policy another spec, whatever its status controller writes meanwhile."""
    patch = [{"op": "replace", "path": "/spec", "value": spec}]
    response = api.patch(path, json=patch, headers={"Content-Type": "application/json-patch+json"})
    assert response.is_success, response.text


def test_a_message_names_object_field_value_rule_reason_and_remedy_on_one_line(api: httpx2.Client) -> None:
    body = changed(KINDS["CronJob"](plain()), "metadata.annotations", {"cdi.k8s.io/x": "one\ntwo"})
    message = create(api, body).json()["message"]
    assert message.endswith(
        "denied request: CronJob web: metadata.annotations[cdi.k8s.io/x] is one two (devices: the runtime injects "
        "devices that nobody requested; request the GPU: nvidia.com/gpu under resources.limits, or KAI's annotation "
        "gpu-fraction)"
    )


def test_a_message_about_very_much_is_cut(api: httpx2.Client) -> None:
    names = [f"cdi.k8s.io/{index}" for index in range(100)]
    response = create(api, changed(plain(), "metadata.annotations", dict.fromkeys(names, "é" * 100)))
    assert denied(response)
    assert response.json()["message"].endswith("...")


@pytest.mark.usefixtures("api")
def test_the_policy_has_no_type_errors(cluster: simulator.ControlPlane) -> None:
    assert type_checks(cluster)[pod_guard.POD_GUARD] == {}


def test_a_pod_of_many_containers_is_judged_within_the_servers_budget(api: httpx2.Client) -> None:
    pod = plain()
    many = [
        copy.deepcopy(pod["spec"]["containers"][0])
        | {"name": f"c{index}", "env": [{"name": f"E{number}", "value": "x" * 20} for number in range(50)]}
        for index in range(60)
    ]
    pod = changed(pod, "spec.containers", many)
    assert create(api, pod).is_success
    worse = changed(pod, "spec.containers.59.securityContext.privileged", True)
    response = create(api, worse)
    assert denied(response)
    assert "spec.containers[c59].securityContext.privileged is true" in response.json()["message"]


def _with(count: int, field: str) -> Json:
    """The plain pod with a list or map of so many entries."""
    entries = {
        "containers": [{"name": f"c{index}", "image": IMAGE} for index in range(count)],
        "initContainers": [{"name": f"c{index}", "image": IMAGE} for index in range(count)],
        "volumes": [
            *plain()["spec"]["volumes"],
            *({"name": f"v{index}", "emptyDir": {}} for index in range(count - 2)),
        ],
        "env": [{"name": f"E{index}"} for index in range(count)],
        "volumeMounts": [{"name": "cache", "mountPath": f"/{index}"} for index in range(count)],
        "annotations": {f"a/{index}": "" for index in range(count)},
    }[field]
    places = {"annotations": "metadata", "env": CONTAINER, "volumeMounts": CONTAINER}
    # Otherwise Kubernetes itself adds a volume and mounts of it.
    pod = changed(plain("long"), "spec.automountServiceAccountToken", False)
    return changed(pod, f"{places.get(field, 'spec')}.{field}", entries)


class TestLongLists:
    """What the API server takes to judge a list grows faster than the list."""

    @pytest.mark.parametrize(
        ("field", "bound"),
        [
            ("containers", pod_guard.MAX_CONTAINERS),
            ("initContainers", pod_guard.MAX_CONTAINERS),
            ("volumes", pod_guard.MAX_ENTRIES),
            ("env", pod_guard.MAX_ENTRIES),
            ("volumeMounts", pod_guard.MAX_ENTRIES),
            ("annotations", pod_guard.MAX_ENTRIES),
        ],
    )
    def test_a_list_at_the_bound_is_judged_and_a_longer_one_is_refused(
        self, api: httpx2.Client, field: str, bound: int
    ) -> None:
        assert create(api, _with(bound, field)).is_success
        for kind in ("Pod", "Deployment", "CronJob"):
            response = create(api, KINDS[kind](_with(bound + 1, field)))
            assert denied(response)
            message = response.json()["message"]
            assert f"{field} has more than {bound} entries" in message
            assert message.endswith("make several pods of it, or leave such a list as it was")
        assert create(api, _with(bound + 1, field), FREE).is_success

    def test_thousands_of_containers_are_refused_at_once(self, api: httpx2.Client) -> None:
        begin = time.monotonic()
        assert denied(create(api, _with(4000, "containers")))
        assert time.monotonic() - begin < 8, "it took 17 s while the guard looked into each"

    def test_what_was_long_before_can_go_and_stay_but_not_change(self, api: httpx2.Client) -> None:
        pod = KINDS["Deployment"](_with(pod_guard.MAX_CONTAINERS + 1, "containers"))
        path = f"/apis/apps/v1/namespaces/{GUARDED}/deployments/long"
        with unguarded(api, pod):
            stored = post(api, path_of(pod, GUARDED), changed(pod, "metadata.finalizers", ["example.com/stays"]))
        stored = without(stored, "metadata.resourceVersion")

        def put(body: Json) -> httpx2.Response:
            return api.put(path, json=body, params=DRY)

        assert put(without(stored, "metadata.finalizers")).is_success
        assert put(changed(stored, "spec.replicas", 0)).is_success
        assert put(changed(pod, "spec.template.spec.containers", plain()["spec"]["containers"])).is_success
        worse = changed(stored, "spec.template.spec.containers.7.securityContext", {"privileged": True})
        assert denied(put(worse)), "nobody looks into it"
        assert denied(put(changed(stored, "spec.template.spec.hostPID", True)))
        api.patch(path, json={"metadata": {"finalizers": None}}, headers=MERGE).raise_for_status()
        assert api.delete(path).is_success
