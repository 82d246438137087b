"""Pods that ask for remote GPUs on a real API server: the policies give what the admission server does, pod by pod.

What holds for the carrier `webhook` too stands in tests/support/gvirtus/contract.py.
"""

import time
from collections.abc import Callable, Iterator

import httpx2
import pytest
from typing_extensions import override

import simulator
from config.gvirtus import FRONTEND_ALLOWED, BackendKind
from config.stack import StackSettings
from manifests.admission_objects import deny_binding, mutating_binding
from manifests.gvirtus import backends as gvirtus
from manifests.gvirtus import frontends as gvirtus_frontends
from manifests.gvirtus import policy as gvirtus_policy
from manifests.gvirtus.injection import NOT_SERVED, PATH, TOO_LONG, VOLUME
from manifests.objects import Manifest
from manifests.pod_guard import MAX_CONTAINERS, MAX_ENTRIES
from testbed.inventory import connect
from testbed.stacks import Json, changed, parse
from testbed.stacks import gvirtus as gvirtus_stack
from testbed.waiting import eventually
from tests.support.gvirtus.cases import (
    ADDRESSES,
    CASES,
    GPU,
    LOCKED,
    RESTRICTED,
    TEAM,
    annotated,
    create,
    created,
    generated_name,
    namespace,
    pod,
    post,
    refused,
    remote_and_gpu,
    stack_of,
    unlabelled,
)
from tests.support.gvirtus.contract import CarrierTests
from tests.support.gvirtus.placement import place
from tests.support.type_checks import type_checks

POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
SETTINGS = parse(stack_of(gvirtus_stack()))
assert SETTINGS.gvirtus is not None
REMOTE = SETTINGS.gvirtus
SERVICES = f"/api/v1/namespaces/{REMOTE.namespace}/services"
_REFRESH_SECONDS = 1.0
"""How often the API server looks which policies there are (v1.36)."""


@pytest.fixture(scope="module")
def api(cluster: simulator.ControlPlane) -> Iterator[httpx2.Client]:
    """The cluster with the policies in force."""
    with connect(cluster) as connected:
        for manifest in objects(SETTINGS):
            post(connected, manifest)
        for owner in (TEAM, RESTRICTED):
            account = f"/api/v1/namespaces/{owner}/serviceaccounts/default"
            eventually(lambda path=account: connected.get(path).status_code == httpx2.codes.OK)  # type: ignore[misc]
        eventually(lambda: in_force(connected))
        yield connected


def objects(settings: StackSettings) -> list[Manifest]:
    """The policies of a stack with remote GPUs, and the namespaces of the tests' pods."""
    remote = settings.gvirtus
    assert remote is not None
    assert remote.frontends is not None
    policies: list[Manifest] = []
    for kind in BackendKind:
        policies.append(gvirtus_policy.injection_policy(settings, remote, kind))
        policies.append(gvirtus_policy.injection_binding(settings, remote, kind))
    return [
        gvirtus.backends_namespace(remote),
        namespace(TEAM, {}),
        namespace(RESTRICTED, {"pod-security.kubernetes.io/enforce": "restricted"}),
        *(service(name) for name in sorted(remote.backends)),
        gvirtus_policy.requests_policy(settings, remote),
        deny_binding(gvirtus_policy.REQUESTS),
        *policies,
        gvirtus_frontends.placement_policy(settings),
        mutating_binding(settings, gvirtus_frontends.PLACEMENT),
        gvirtus_frontends.guard_policy(settings, remote.frontends),
        deny_binding(gvirtus_frontends.GUARD),
    ]


def service(name: str, address: str | None = None) -> Manifest:
    """A backend's Service, with its usual address or another one."""
    made = gvirtus.service(REMOTE, name)
    made["spec"]["clusterIP"] = address or ADDRESSES[name]
    return made


def replace_service(api: httpx2.Client, name: str, address: str | None = None) -> None:
    """Make a backend's Service anew: an address stays for a Service's life."""
    assert api.delete(f"{SERVICES}/{name}").status_code == httpx2.codes.OK
    post(api, service(name, address))


def in_force(api: httpx2.Client) -> bool:
    """Whether every policy works; each comes into force in its own time."""
    answers = [create(api, case()) for case in (pod, CASES["lupine"], remote_and_gpu)]
    if any(answer.status_code != httpx2.codes.CREATED for answer in answers):
        return False
    plain, lupine, device = (answer.json() for answer in answers)
    return (
        "gvirtus.io/properties" in plain["metadata"].get("annotations", {})
        and any(e["name"] == "LUPINE_SERVER" for e in lupine["spec"]["containers"][0].get("env", []))
        and FRONTEND_ALLOWED in device["spec"]["nodeSelector"]
        and create(api, annotated(gvirtus_io__backend="nowhere")).status_code != httpx2.codes.CREATED
        and create(api, on_the_frontend()).status_code != httpx2.codes.CREATED
    )


def new_pods_have(api: httpx2.Client, host: str) -> bool:
    """Whether they are connected, and to this address: they are refused while there is no Service."""
    answer = create(api, generated_name())
    return answer.status_code == httpx2.codes.CREATED and (
        f'"{host}"' in answer.json()["metadata"]["annotations"]["gvirtus.io/properties"]
    )


def on_the_frontend() -> Json:
    ordinary = unlabelled(pod(resources=GPU))
    ordinary["spec"]["nodeName"] = "cpu-1"
    return ordinary


class TestPolicies(CarrierTests):
    """The carrier `policy`."""

    @override
    def placed(self, of: Manifest) -> Manifest:
        return place(of)

    def test_a_changed_address_reaches_new_pods_alone(self, api: httpx2.Client, pods: str) -> None:
        before = created(api, pod(), dry_run=False)["metadata"]["annotations"]["gvirtus.io/properties"]
        replace_service(api, "gpu-a", "10.96.9.9")
        try:
            eventually(lambda: new_pods_have(api, "10.96.9.9"))
            assert api.get(f"{pods}/app").json()["metadata"]["annotations"]["gvirtus.io/properties"] == before
        finally:
            replace_service(api, "gpu-a")
            eventually(lambda: new_pods_have(api, ADDRESSES["gpu-a"]))


@pytest.mark.parametrize("owner", gvirtus_policy.namespaces_left_alone(SETTINGS))
def test_the_operators_namespaces_are_left_alone(api: httpx2.Client, owner: str) -> None:
    if owner not in {item["metadata"]["name"] for item in api.get("/api/v1/namespaces").json()["items"]}:
        policy = gvirtus_policy.injection_policy(SETTINGS, REMOTE, BackendKind.GVIRTUS)
        [expression] = policy["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
        assert owner in expression["values"]
        return
    new_pod = pod(securityContext=LOCKED)
    new_pod["metadata"]["namespace"] = owner
    assert "annotations" not in created(api, new_pod)["metadata"]


def test_a_container_that_comes_in_later_gets_it_too(api: httpx2.Client) -> None:
    """Another policy adds a sidecar after ours: a new round reaches it, and adds nothing twice."""
    for path, body in ((POLICIES, sidecar_policy()), (BINDINGS, sidecar_binding())):
        assert api.post(path, json=body).status_code == httpx2.codes.CREATED
    try:
        eventually(lambda: len(created(api, pod())["spec"]["containers"]) == 2)
        made = created(api, pod())
        for container in made["spec"]["containers"]:
            assert [e["name"] for e in container["env"]] == ["GVIRTUS_CONFIG"]
            assert [m["mountPath"] for m in container["volumeMounts"]].count(PATH) == 1
        assert [v["name"] for v in made["spec"]["volumes"]].count(VOLUME) == 1
    finally:
        api.delete(f"{BINDINGS}/zzz-sidecar")
        api.delete(f"{POLICIES}/zzz-sidecar")
        eventually(lambda: len(created(api, pod())["spec"]["containers"]) == 1)


def _many(field: str) -> Json:
    """A pod with more in one of its lists than any that is meant to run."""
    new_pod = pod()
    [main] = new_pod["spec"]["containers"]
    match field:
        case "volumes":
            new_pod["spec"]["volumes"] = [{"name": f"v{number}", "emptyDir": {}} for number in range(20_000)]
        case "env":
            main["env"] = [{"name": f"E{number}", "value": "x"} for number in range(20_000)]
        case _:
            new_pod["spec"][field] = [main | {"name": f"c{number}"} for number in range(5_000)]
            new_pod["spec"].setdefault("containers", [main])
    return new_pod


@pytest.mark.parametrize("field", ["volumes", "env", "containers", "initContainers"])
def test_a_pod_with_more_than_any_pod_has_is_refused_and_one_without_the_label_is_not(
    api: httpx2.Client, field: str
) -> None:
    new_pod = _many(field)
    created(api, unlabelled(new_pod))
    assert TOO_LONG in refused(api, new_pod)


def test_a_pod_with_as_much_as_a_pod_may_have_is_served(api: httpx2.Client) -> None:
    new_pod = pod(env=[{"name": f"E{number}", "value": "x"} for number in range(MAX_ENTRIES)])
    [main] = new_pod["spec"]["containers"]
    new_pod["spec"]["containers"] += [{"name": f"c{n}", "image": main["image"]} for n in range(1, MAX_CONTAINERS)]
    assert created(api, new_pod)["spec"]["containers"][0]["env"][-1]["name"] == "GVIRTUS_CONFIG"


class TestFrontends:
    """Ordinary CUDA pods stay away from nodes whose GPUs stand for remote ones."""

    @pytest.mark.parametrize("request_", ["whole", "init", "fraction", "memory"])
    def test_a_pod_that_wants_a_real_gpu_is_sent_to_one(self, api: httpx2.Client, request_: str) -> None:
        new_pod = unlabelled(pod(resources=GPU) if request_ == "whole" else pod())
        if request_ == "init":
            new_pod["spec"]["initContainers"] = [{"name": "first", "image": "b:1", "resources": GPU}]
        if request_ == "fraction":
            new_pod["metadata"]["annotations"] = {"gpu-fraction": "0.5"}
        if request_ == "memory":
            new_pod["metadata"]["annotations"] = {"gpu-memory": "2000"}
        made = created(api, new_pod)
        assert made["spec"]["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
        assert place(new_pod)["spec"]["nodeSelector"] == made["spec"]["nodeSelector"]

    def test_what_the_pod_says_of_nodes_stays(self, api: httpx2.Client) -> None:
        new_pod = unlabelled(remote_and_gpu())
        assert created(api, new_pod)["spec"]["nodeSelector"] == {"disk": "ssd", "nvidia.com/gpu.present": "true"}

    def test_a_pod_without_a_gpu_is_left_alone(self, api: httpx2.Client) -> None:
        assert "nodeSelector" not in created(api, unlabelled(pod()))["spec"]

    @pytest.mark.parametrize("none", ["0", 0, "0k"])
    def test_no_gpu_written_as_zero_is_none(self, api: httpx2.Client, none: str | int) -> None:
        """Charts write it for those who want no GPU; such a pod runs on any node, a frontend too."""
        zero = {"limits": {"nvidia.com/gpu": none}}
        assert "nodeSelector" not in created(api, unlabelled(pod(resources=zero)))["spec"]
        assert "nodeSelector" not in created(api, pod(resources=zero))["spec"]
        assert create(api, changed(unlabelled(pod(resources=zero)), "spec.nodeName", "cpu-1")).is_success

    def test_a_remote_pod_without_a_device_runs_anywhere(self, api: httpx2.Client) -> None:
        assert "nodeSelector" not in created(api, pod())["spec"]

    def test_a_remote_pod_with_a_device_takes_a_frontends(self, api: httpx2.Client) -> None:
        made = created(api, pod(resources=GPU))
        assert made["spec"]["nodeSelector"] == {"gvirtus.io/frontend.allowed": "true"}

    def test_an_ordinary_pod_bound_to_a_frontend_is_refused(self, api: httpx2.Client) -> None:
        message = refused(api, on_the_frontend())
        assert "the GPUs of these nodes stand for remote ones: cpu-1" in message
        assert "nodeSelector nvidia.com/gpu.present: 'true'" in message

    def test_an_ordinary_pod_bound_to_a_gpu_node_is_welcome(self, api: httpx2.Client) -> None:
        new_pod = unlabelled(pod(resources=GPU))
        new_pod["spec"]["nodeName"] = "x86-1"
        assert "nodeSelector" not in created(api, new_pod)["spec"]

    def test_an_ordinary_pod_that_says_it_needs_no_gpu_node_is_refused(self, api: httpx2.Client) -> None:
        new_pod = unlabelled(pod(resources=GPU))
        new_pod["spec"]["nodeSelector"] = {"nvidia.com/gpu.present": "false"}
        assert "stand for remote ones" in refused(api, new_pod)


@pytest.mark.usefixtures("api")
def test_no_policy_has_type_errors(cluster: simulator.ControlPlane) -> None:
    ours = {name: warnings for name, warnings in type_checks(cluster).items() if "gvirtus" in name}
    assert ours == {gvirtus_policy.REQUESTS: {}, gvirtus_frontends.GUARD: {}}


def test_without_the_addresses_a_pod_is_refused_and_not_let_in_unchanged(api: httpx2.Client) -> None:
    for name in REMOTE.backends:
        assert api.delete(f"{SERVICES}/{name}").status_code == httpx2.codes.OK
    try:
        eventually(lambda: create(api, pod()).status_code != httpx2.codes.CREATED)
        created(api, unlabelled(pod()))
    finally:
        for name in REMOTE.backends:
            post(api, service(name))
        eventually(lambda: in_force(api))


def test_policies_that_were_away_learn_what_changed_meanwhile(api: httpx2.Client) -> None:
    """As after `pulumi destroy` and `up`: the API server forgets for good to read ConfigMaps as parameters then."""
    kinds = {backend.kind for backend in REMOTE.backends.values()}
    for kind in kinds:
        assert api.delete(f"{BINDINGS}/{gvirtus_policy.policy_name(kind)}").status_code == httpx2.codes.OK
    eventually(lambda: NOT_SERVED in create(api, pod()).text)
    time.sleep(2 * _REFRESH_SECONDS)
    replace_service(api, "gpu-a", "10.96.9.10")
    for kind in kinds:
        post(api, gvirtus_policy.injection_binding(SETTINGS, REMOTE, kind))
    try:
        eventually(lambda: new_pods_have(api, "10.96.9.10"))
    finally:
        replace_service(api, "gpu-a")
        eventually(lambda: new_pods_have(api, ADDRESSES["gpu-a"]))


@pytest.mark.parametrize(("kind", "case"), [(BackendKind.GVIRTUS, pod), (BackendKind.LUPINE, CASES["lupine"])])
def test_a_pod_that_nobody_served_is_refused_and_not_let_in_unchanged(
    api: httpx2.Client, kind: BackendKind, case: Callable[[], Json]
) -> None:
    """What a pod meets while the policies learn of another set of backends, each in its own time."""
    path = f"{BINDINGS}/{gvirtus_policy.policy_name(kind)}"
    assert api.delete(path).status_code == httpx2.codes.OK
    try:
        eventually(lambda: NOT_SERVED in create(api, case()).text)
        created(api, unlabelled(case()))
    finally:
        post(api, gvirtus_policy.injection_binding(SETTINGS, REMOTE, kind))
        eventually(lambda: in_force(api))
    created(api, case())


@pytest.mark.parametrize(("name", "case"), [("gpu-a", pod), ("gpu-b", CASES["lupine"])])
def test_a_pod_whose_backend_has_lost_its_address_is_refused_in_words(
    api: httpx2.Client, name: str, case: Callable[[], Json]
) -> None:
    """Where a backend leaves, its Service may go before the policy of its kind, or before this learns of it."""
    assert api.delete(f"{SERVICES}/{name}").status_code == httpx2.codes.OK
    try:
        eventually(lambda: NOT_SERVED in create(api, case()).text)
        assert "no such key" not in create(api, case()).text
    finally:
        post(api, service(name))
        eventually(lambda: in_force(api))


def sidecar_policy() -> Json:
    expression = 'Object{spec: Object.spec{containers: [Object.spec.containers{name: "late", image: "late:1"}]}}'
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "zzz-sidecar"},
        "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": TEAM}},
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ],
            },
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
        },
    }


def sidecar_binding() -> Json:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": "zzz-sidecar"},
        "spec": {"policyName": "zzz-sidecar"},
    }
