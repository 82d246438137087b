"""Who wants power over a Jetson by way of KAI's reservation namespace, on real API servers, as the attacker.

The attacker has ClusterRole edit in KAI's namespace and in that of the reservation pods. So he may impersonate KAI's
binder, create pods, and get into them. The objects are the stack's own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx2
import pytest

import simulator
from config.reservation import Privilege
from manifests import reservation
from manifests.admission_objects import deny_binding
from manifests.reservation_guard import GUARD, guard_policy
from testbed.admission.deployment import make, prepare, remove
from testbed.inventory import connect
from testbed.reused import ReusedSimulators
from testbed.simulated import start
from testbed.stacks import Json, jetson, never, parse
from testbed.waiting import eventually
from tests.policy.objects import changed
from tests.support.pods.reservation_cases import ABOVE_BASELINE, NEAR, NODE, OVER_THE_ENTRYPOINT, as_binder_creates
from tests.support.pods.twin import POLICIES
from tests.support.type_checks import type_checks

KAI = "kai-scheduler"
BINDER = f"system:serviceaccount:{KAI}:binder"
PODS = f"/api/v1/namespaces/{reservation.NAMESPACE}/pods"
BINDINGS = POLICIES.removesuffix("policies") + "policybindings"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
MERGE = {"Content-Type": "application/merge-patch+json"}
DRY = {"dryRun": "All"}
CONTAINER = "spec.containers.0"
OURS = f"ValidatingAdmissionPolicy '{GUARD}'"
FEW = "only KAI's own reservation pod may, on these Tegra nodes: jetson-1"


@pytest.fixture(scope="module", params=["v1", "v1beta1"])
def stack(request: pytest.FixtureRequest) -> Json:
    """The Jetson stack for a cluster that serves this version of MutatingAdmissionPolicy."""
    if request.param == "v1":
        return jetson()
    return changed(changed(jetson(), "cluster.kubernetes_version", "1.34"), "cluster.mutating_policies", request.param)


@pytest.fixture(scope="module")
def cluster(
    stack: Json, tmp_path_factory: pytest.TempPathFactory, reused_simulators: ReusedSimulators
) -> Iterator[simulator.ControlPlane]:
    older = "mutating_policies" in stack["cluster"]
    folder = tmp_path_factory.mktemp("cluster") / "simulator"
    with start(folder, older=True) if older else reused_simulators.lent() as control_plane:
        yield control_plane


@pytest.fixture(scope="module")
def overrides(stack: Json) -> tuple[Json, Json]:
    """The policy that adds to reservation pods, and its binding."""
    settings = parse(stack)
    return (
        reservation.overrides_policy(settings, Privilege.PRIVILEGED),
        reservation.overrides_binding(settings, Privilege.PRIVILEGED),
    )


@pytest.fixture(scope="module")
def api(cluster: simulator.ControlPlane, stack: Json, overrides: tuple[Json, Json]) -> Iterator[httpx2.Client]:
    """The cluster with what the Jetson stack makes for reservation pods, KAI's binder, and the attacker."""
    with connect(cluster) as admin:
        settings = parse(stack)
        prepare(admin, settings, NODE)
        for name in ("default", reservation.SERVICE_ACCOUNT):
            there = f"/api/v1/namespaces/{reservation.NAMESPACE}/serviceaccounts/{name}"
            eventually(lambda there=there: admin.get(there).is_success)  # type: ignore[misc]
        _accounts(admin)
        for override in overrides:
            make(admin, override)
        _post(admin, POLICIES, guard_policy(settings))
        _post(admin, BINDINGS, deny_binding(GUARD))
        eventually(lambda: _create(admin, as_binder_creates(), user=BINDER).is_success)
        eventually(lambda: not _create(admin, changed(_plain(), "spec.hostPID", True)).is_success)
        eventually(lambda: not _create(admin, changed(as_binder_creates(), f"{CONTAINER}.args", ["a"])).is_success)
        yield admin


@pytest.fixture(scope="module")
def mallory(cluster: simulator.ControlPlane, api: httpx2.Client) -> Iterator[httpx2.Client]:
    """The attacker's own connection."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}}
    token = _post(api, f"/api/v1/namespaces/{KAI}/serviceaccounts/mallory/token", body)["status"]["token"]
    with connect(cluster, token) as client:
        eventually(lambda: client.post(PODS, json=_plain(), params=DRY).is_success)
        eventually(lambda: _create(client, as_binder_creates(), user=BINDER).is_success)
        yield client


@pytest.fixture
def stored(api: httpx2.Client) -> Iterator[str]:
    """The path of a privileged reservation pod of KAI's own."""
    pod = api.post(PODS, json=as_binder_creates(), headers={"Impersonate-User": BINDER})
    assert pod.is_success, pod.text
    assert pod.json()["spec"]["containers"][0]["securityContext"]["privileged"] is True
    path = f"{PODS}/{pod.json()['metadata']['name']}"
    yield path
    api.delete(path, params={"gracePeriodSeconds": "0"})
    eventually(lambda: api.get(path).status_code == httpx2.codes.NOT_FOUND)


def _accounts(api: httpx2.Client) -> None:
    _post(api, "/api/v1/namespaces", {"metadata": {"name": KAI}})
    rules = {
        # Upstream's (KAI v0.18.6, kai-binder).
        "binder": [{"apiGroups": [""], "resources": ["pods", "configmaps"], "verbs": ["*"]}],
        # Of one who also writes policies and debugs pods, but may not remove our guard.
        "mallory": [
            {
                "apiGroups": ["admissionregistration.k8s.io"],
                "resources": ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"],
                "verbs": ["create"],
            },
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]},
            {"apiGroups": [""], "resources": ["pods/ephemeralcontainers"], "verbs": ["patch"]},
        ],
    }
    for name, rule in rules.items():
        account = {"kind": "ServiceAccount", "name": name, "namespace": KAI}
        _post(api, f"/api/v1/namespaces/{KAI}/serviceaccounts", {"metadata": {"name": name}})
        _post(api, f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rule})
        binding = {"metadata": {"name": name}, "subjects": [account]}
        reference = {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io"}
        _post(api, f"{RBAC}/clusterrolebindings", binding | {"roleRef": reference | {"name": name}})
        if name == "mallory":
            for namespace in (KAI, reservation.NAMESPACE):
                path = f"{RBAC}/namespaces/{namespace}/rolebindings"
                _post(api, path, binding | {"roleRef": reference | {"name": "edit"}})


def _post(api: httpx2.Client, path: str, body: Json) -> Json:
    response = api.post(path, json=body)
    assert response.status_code == httpx2.codes.CREATED, response.text
    answer: Json = response.json()
    return answer


def _create(api: httpx2.Client, pod: Json, *, user: str | None = None) -> httpx2.Response:
    headers = {} if user is None else {"Impersonate-User": user}
    return api.post(PODS, json=pod, headers=headers, params=DRY)


def _plain(node: str | None = None) -> Json:
    spec = {"containers": [{"name": "main", "image": "busybox:1"}]} | ({} if node is None else {"nodeName": node})
    return {"metadata": {"generateName": "plain-", "namespace": reservation.NAMESPACE}, "spec": spec}


def _message_of(response: httpx2.Response) -> str:
    """The guard's own refusal."""
    assert not response.is_success, response.text
    message = str(response.json()["message"])
    assert OURS in message, message
    assert "in more ways than a message can hold" not in message, "the message itself could not be computed"
    return message


@contextmanager
def _guard_of(api: httpx2.Client, stack: Json, is_in_force: Callable[[], bool]) -> Iterator[None]:
    """The guard as another stack has it, for a while."""
    patch = {"op": "replace", "path": "/spec"}
    headers = {"Content-Type": "application/json-patch+json"}
    try:
        spec = guard_policy(parse(stack))["spec"]
        assert api.patch(f"{POLICIES}/{GUARD}", json=[patch | {"value": spec}], headers=headers).is_success
        eventually(is_in_force)
        yield
    finally:
        spec = guard_policy(parse(jetson()))["spec"]
        assert api.patch(f"{POLICIES}/{GUARD}", json=[patch | {"value": spec}], headers=headers).is_success
        another = changed(as_binder_creates(), "metadata.name", "another")
        eventually(lambda: not is_in_force() and _create(api, another, user=BINDER).is_success)


def _is_plain(response: httpx2.Response) -> bool:
    spec = response.json()["spec"]
    contexts = [container.get("securityContext", {}) for container in spec["containers"]]
    folders = [volume for volume in spec["volumes"] if "hostPath" in volume]
    return not folders and not any(context.get("privileged") for context in contexts)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *NEAR,
        (f"{CONTAINER}.ports", [{"containerPort": 22, "hostPort": 22}]),
        (f"{CONTAINER}.securityContext.seLinuxOptions", {"type": "spc_t"}),
        (f"{CONTAINER}.securityContext.seccompProfile", {"type": "Unconfined"}),
        (f"{CONTAINER}.securityContext.appArmorProfile", {"type": "Unconfined"}),
        ("spec.volumes", [{"name": "root", "hostPath": {"path": "/"}}]),
        ("spec.volumes", [{"name": "code", "gitRepo": {"repository": "https://example.com/x.git"}}]),
        ("spec.hostNetwork", True),
    ],
)
def test_who_comes_by_the_binders_name_gets_no_power_but_for_kais_own_pod(
    mallory: httpx2.Client, path: str, value: object
) -> None:
    response = _create(mallory, changed(as_binder_creates(), path, value), user=BINDER)
    if path in {"metadata.labels.app", "spec.nodeName"}:
        assert _is_plain(response), response.text
    elif path in {"spec.runtimeClassName", f"{CONTAINER}.name"}:
        assert not response.is_success, "the API server itself knows no such class, and no container without an image"
    else:
        message = _message_of(response)
        assert "not as KAI makes it" in message or FEW in message


def test_no_program_is_mounted_over_kais_own(mallory: httpx2.Client) -> None:
    pod = as_binder_creates()
    for path, value in OVER_THE_ENTRYPOINT:
        pod = changed(pod, path, value)
    assert "it has volumes or mounts beyond the overrides'" in _message_of(_create(mallory, pod, user=BINDER))


def test_no_other_container_runs_beside_kais_own(mallory: httpx2.Client) -> None:
    pod = as_binder_creates()
    pod["spec"]["containers"].append({"name": "other", "image": "busybox:1"})
    assert "it has other containers than resource-reservation" in _message_of(_create(mallory, pod, user=BINDER))


def test_without_the_binders_name_not_even_kais_own_pod_is_for_the_attacker(mallory: httpx2.Client) -> None:
    assert "is created by KAI's binder" in _message_of(_create(mallory, as_binder_creates()))


def test_a_refusal_says_everything_that_differs_and_the_setting_of_the_registry(api: httpx2.Client) -> None:
    pod = changed(as_binder_creates(), f"{CONTAINER}.image", "registry.example.com/kai/resourcereservation:v0.18.6")
    assert _message_of(_create(api, changed(pod, f"{CONTAINER}.command", ["sh"]), user=BINDER)).endswith(
        "this reservation pod is not as KAI makes it, so it gets no privilege on its Jetson: the image is not "
        "ghcr.io/kai-scheduler/kai-scheduler/resourcereservation with a tag or digest (kai.images.registry); it sets "
        "one of command, args, lifecycle, livenessProbe, readinessProbe, startupProbe, envFrom, volumeDevices"
    )


@pytest.mark.parametrize("version", [":v0.18.6-fips", "@sha256:" + "0" * 64])
def test_the_pod_of_kai_v0_18_is_kais_own(api: httpx2.Client, version: str) -> None:
    pod = as_binder_creates()
    pod["metadata"]["annotations"]["nvidia.com/container.resource-reservation.gpu-compute.mode"] = "time-slicing"
    pod["spec"]["tolerations"] = [{"key": "edge", "operator": "Exists"}]
    pod["spec"]["containers"][0]["env"].append({"name": "GODEBUG", "value": "fips140=only,tlsmlkem=0"})
    pod = changed(pod, f"{CONTAINER}.image", f"ghcr.io/kai-scheduler/kai-scheduler/resourcereservation{version}")
    response = _create(api, pod, user=BINDER)
    assert response.is_success, response.text
    assert response.json()["spec"]["containers"][0]["securityContext"]["privileged"] is True


def test_the_images_of_a_mirror_are_kais_where_the_stack_says_so(api: httpx2.Client) -> None:
    mirror = "registry.example.com:5000/kai"
    official = as_binder_creates()
    mirrored = changed(official, f"{CONTAINER}.image", f"{mirror}/resourcereservation:v0.18.6")
    assert not _create(api, mirrored, user=BINDER).is_success
    stack = changed(jetson(), "kai.images.registry", mirror)
    with _guard_of(api, stack, lambda: _create(api, mirrored, user=BINDER).is_success):
        assert f"the image is not {mirror}/resourcereservation" in _message_of(_create(api, official, user=BINDER))


@pytest.mark.parametrize(("path", "value"), ABOVE_BASELINE)
@pytest.mark.parametrize("node", [NODE, "x86-1", None])
def test_no_other_pod_is_above_baseline_whoever_makes_it(
    api: httpx2.Client, mallory: httpx2.Client, node: str | None, path: str, value: object
) -> None:
    for client in (api, mallory):
        assert FEW in _message_of(_create(client, changed(_plain(node), path, value)))


@pytest.mark.parametrize(("path", "value"), ABOVE_BASELINE)
def test_a_reservation_pod_of_another_platform_is_not_above_baseline(
    mallory: httpx2.Client, path: str, value: object
) -> None:
    pod = as_binder_creates("x86-1")
    del pod["spec"]["containers"][0]["securityContext"]
    assert FEW in _message_of(_create(mallory, changed(pod, path, value), user=BINDER))


@pytest.mark.parametrize(
    "way", ["exec?command=sh&stdin=true", "attach?stdin=true", "portforward?ports=80", "proxy", "proxy/secrets"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_nobody_gets_into_a_reservation_pod_but_who_could_remove_the_guard(
    api: httpx2.Client, mallory: httpx2.Client, stored: str, way: str, method: str
) -> None:
    message = _message_of(mallory.request(method, f"{stored}/{way}"))
    assert "a reservation pod may be privileged, so nobody gets into it" in message
    assert OURS not in api.request(method, f"{stored}/{way}").text


def test_the_attacker_gets_into_pods_of_other_namespaces(api: httpx2.Client, mallory: httpx2.Client) -> None:
    path = f"/api/v1/namespaces/{KAI}/pods"
    eventually(lambda: api.get(f"/api/v1/namespaces/{KAI}/serviceaccounts/default").is_success)
    _post(api, path, {"metadata": {"name": "own"}, "spec": _plain("cpu-1")["spec"]})
    response = mallory.post(f"{path}/own/exec?command=sh&stdin=true")
    assert response.status_code != httpx2.codes.FORBIDDEN, response.text
    assert OURS not in response.text


def test_a_reservation_pod_takes_no_ephemeral_container(
    api: httpx2.Client, mallory: httpx2.Client, stored: str
) -> None:
    mount = {"name": "dev-nvidia", "mountPath": "/host-dev"}
    for client, text in ((mallory, "nobody gets into it"), (api, "securityContext.privileged is true")):
        patch = {"spec": {"ephemeralContainers": [{"name": "in", "image": "busybox:1", "volumeMounts": [mount]}]}}
        response = client.patch(f"{stored}/ephemeralcontainers", json=patch, headers=MERGE, params=DRY)
        assert text in _message_of(response)


class TestPolicies:
    """Admission policies of the attacker's own."""

    def test_none_writes_the_reservation_container(
        self, api: httpx2.Client, mallory: httpx2.Client, overrides: tuple[Json, Json]
    ) -> None:
        expression = (
            'Object{spec: Object.spec{containers: [Object.spec.containers{name: "resource-reservation", '
            'image: "registry.example.com/rootkit:1"}]}}'
        )
        policy, binding = (changed(override, "metadata.name", "zzz-rewrites") for override in overrides)
        del policy["spec"]["paramKind"], policy["spec"]["matchConditions"]
        policy["spec"]["mutations"][0]["applyConfiguration"]["expression"] = expression
        binding["spec"] = {"policyName": "zzz-rewrites"}
        make(mallory, policy)
        make(mallory, binding)
        try:
            eventually(lambda: not _create(api, as_binder_creates(), user=BINDER).is_success)
            assert "the image is not ghcr.io" in _message_of(_create(api, as_binder_creates(), user=BINDER))
        finally:
            remove(api, binding)
            remove(api, policy)
            eventually(lambda: _create(api, as_binder_creates(), user=BINDER).is_success)

    def test_a_second_binding_brings_the_overrides_to_no_other_node(
        self, api: httpx2.Client, mallory: httpx2.Client, overrides: tuple[Json, Json]
    ) -> None:
        binding = changed(overrides[1], "metadata.name", "second")
        binding = changed(binding, "spec.paramRef.selector", {})
        assert _is_plain(_create(api, as_binder_creates("x86-1"), user=BINDER))
        make(mallory, binding)
        try:
            eventually(lambda: not _create(api, as_binder_creates("x86-1"), user=BINDER).is_success)
            assert FEW in _message_of(_create(api, as_binder_creates("x86-1"), user=BINDER))
        finally:
            remove(api, binding)
            eventually(lambda: _create(api, as_binder_creates("x86-1"), user=BINDER).is_success)


class TestUpdates:
    """What is there can be looked after; nobody makes more of it."""

    ACCOUNT = f"system:serviceaccount:{reservation.NAMESPACE}:{reservation.SERVICE_ACCOUNT}"

    def patch(self, api: httpx2.Client, path: str, patch: Json, user: str | None = None) -> httpx2.Response:
        headers = MERGE if user is None else MERGE | {"Impersonate-User": user}
        return api.patch(path, json=patch, headers=headers, params=DRY)

    @pytest.fixture(autouse=True)
    def rights(self, api: httpx2.Client) -> Iterator[None]:
        """What KAI's chart gives the pod's own account (v0.18.6, kai-resource-reservation)."""
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "patch", "update", "watch"]}]
        subject = {"kind": "User", "name": self.ACCOUNT, "apiGroup": "rbac.authorization.k8s.io"}
        reference = {"kind": "Role", "name": "own", "apiGroup": "rbac.authorization.k8s.io"}
        folder = f"{RBAC}/namespaces/{reservation.NAMESPACE}"
        _post(api, f"{folder}/roles", {"metadata": {"name": "own"}, "rules": rules})
        binding = {"metadata": {"name": "own"}, "subjects": [subject], "roleRef": reference}
        _post(api, f"{folder}/rolebindings", binding)
        headers = {"Impersonate-User": self.ACCOUNT}
        eventually(lambda: api.get(PODS, headers=headers).is_success)
        yield
        api.delete(f"{folder}/rolebindings/own")
        api.delete(f"{folder}/roles/own")

    def test_the_pod_writes_its_own_annotation_and_nothing_that_matters(self, api: httpx2.Client, stored: str) -> None:
        uuid = {"metadata": {"annotations": {"run.ai/reserve_for_gpu_index": "GPU-1"}}}
        assert self.patch(api, stored, uuid, self.ACCOUNT).is_success
        pod = api.get(stored).json()
        for image in ("registry.example.com/rootkit:1", pod["spec"]["containers"][0]["image"] + "-old"):
            container = pod["spec"]["containers"][0] | {"image": image}
            response = self.patch(api, stored, {"spec": {"containers": [container]}}, self.ACCOUNT)
            assert "the image of a privileged reservation pod does not change" in _message_of(response)
        label = {"metadata": {"labels": {"app": "other"}}}
        assert "securityContext.privileged is true" in _message_of(self.patch(api, stored, label, self.ACCOUNT))

    def test_after_overrides_never_a_privileged_pod_can_be_looked_after_and_removed(
        self, api: httpx2.Client, stored: str
    ) -> None:
        above = changed(_plain(), "spec.hostPID", True)
        with _guard_of(api, never(), lambda: "no pod here may" in _create(api, above).text):
            for patch in (
                {"metadata": {"annotations": {"a": "b"}}},
                {"metadata": {"labels": {"app": None}}},
                {"metadata": {"finalizers": ["example.com/stays"]}},
                {"spec": {"activeDeadlineSeconds": 1000}},
            ):
                response = self.patch(api, stored, patch)
                assert response.is_success, response.text
            pod = api.get(stored).json()
            pod["spec"]["containers"][0]["image"] = "busybox:2"
            assert "no pod here may" in _message_of(api.put(stored, json=pod, params=DRY))
            ephemeral = {"spec": {"ephemeralContainers": [{"name": "in", "image": "busybox:1"}]}}
            assert "no pod here may" in _message_of(self.patch(api, f"{stored}/ephemeralcontainers", ephemeral))
            assert api.delete(stored, params=DRY).is_success


def test_the_guard_has_no_type_errors_with_and_without_what_is_privileged(
    api: httpx2.Client, cluster: simulator.ControlPlane
) -> None:
    policies = {
        name: changed(guard_policy(parse(of)), "metadata.name", name)
        for name, of in (("only-checked", jetson()), ("never", never()))
    }
    policies["wrong"] = changed(policies["never"], "spec.validations", [{"expression": "object.spec.absent == 1"}])
    policies["wrong"] = changed(policies["wrong"], "metadata.name", "wrong")
    for policy in policies.values():
        _post(api, POLICIES, policy)
    try:
        warnings = type_checks(cluster)
        assert warnings["only-checked"] == warnings["never"] == {}
        assert "undefined field 'absent'" in str(warnings["wrong"])
    finally:
        for name in policies:
            api.delete(f"{POLICIES}/{name}")
