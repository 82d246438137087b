"""Pods that ask for remote GPUs on a real API server: the policies give what the pure functions say, pod by pod."""

import copy
import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
import yaml

import simulator
from config.gvirtus import BackendKind
from manifests import gvirtus, gvirtus_frontends, gvirtus_policy
from manifests.gvirtus_frontends import place
from manifests.gvirtus_injection import ENABLED_LABEL, PATH, VOLUME, inject, refusal
from manifests.objects import Manifest
from tests.support.inventory import connect
from tests.support.stacks import ROOT, Json, changed, parse
from tests.support.stacks import gvirtus as gvirtus_stack
from tests.support.waiting import eventually

pytestmark = pytest.mark.engine

TEAM = "gvirtus-test-team"
RESTRICTED = "gvirtus-test-restricted"
SETTINGS = parse(
    changed(gvirtus_stack(), "gvirtus.backends.gpu-c", {"image": "gvirtus/gvirtus:1", "node": "x86-1", "port": 34567})
)
assert SETTINGS.gvirtus is not None
REMOTE = SETTINGS.gvirtus
INJECTION = gvirtus.injection(REMOTE, {"gpu-a": "10.96.7.7", "gpu-b": "10.96.7.8", "gpu-c": "10.96.7.9"})
LOCKED = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
GPU = {"limits": {"nvidia.com/gpu": "1"}}


def pod(**container: Any) -> Json:  # noqa: ANN401 - JSON
    """A pod with one container that asks for a remote GPU."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "app", "namespace": TEAM, "labels": {ENABLED_LABEL: "true", "app": "a"}},
        "spec": {"containers": [{"name": "main", "image": "registry.example.com/app:1", **container}]},
    }


def several_containers() -> Json:
    result = pod()
    result["spec"]["containers"] += [{"name": "b", "image": "b:1"}, {"name": "c", "image": "c:1", "args": ["x"]}]
    return result


def init_and_sidecar() -> Json:
    result = pod()
    result["spec"]["initContainers"] = [
        {"name": "prepare", "image": "b:1", "command": ["prepare"]},
        {"name": "sidecar", "image": "c:1", "restartPolicy": "Always"},
    ]
    return result


def restricted() -> Json:
    result = pod(securityContext=LOCKED)
    result["metadata"]["namespace"] = RESTRICTED
    return result


def generated_name() -> Json:
    result = pod()
    del result["metadata"]["name"]
    result["metadata"]["generateName"] = "app-"
    return result


def other_volume() -> Json:
    result = pod(volumeMounts=[{"name": "data", "mountPath": "/data"}])
    result["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}]
    return result


def without_token() -> Json:
    """No volume at all: neither the user's nor a service account's token."""
    result = pod()
    result["spec"]["automountServiceAccountToken"] = False
    return result


def annotated(**annotations: str) -> Json:
    result = pod()
    result["metadata"]["annotations"] = {
        name.replace("__", "/").replace("_", "."): v for name, v in annotations.items()
    }
    return result


def own_file() -> Json:
    """One container brings its own properties file; the other one does not."""
    own = [{"name": "GVIRTUS_CONFIG", "value": "/app/own.json"}]
    result = pod(env=own)
    result["spec"]["containers"].append({"name": "other", "image": "b:1"})
    return result


def own_file_at_our_path() -> Json:
    result = pod(
        env=[{"name": "GVIRTUS_CONFIG", "value": f"{PATH}/mine.json"}],
        volumeMounts=[{"name": "mine", "mountPath": PATH}],
    )
    result["spec"]["volumes"] = [{"name": "mine", "emptyDir": {}}]
    return result


def remote_and_gpu() -> Json:
    result = pod(resources=GPU)
    result["spec"]["nodeSelector"] = {"disk": "ssd"}
    return result


CASES: dict[str, Callable[[], Json]] = {
    "no command": pod,
    "args only": lambda: pod(args=["serve", "--port", "1"]),
    "shell string": lambda: pod(command=["/bin/sh", "-c", "cd /app && ./x 'a b' && echo \"$HOME\""]),
    "environment": lambda: pod(env=[{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)"}]),
    "environment from a field": lambda: pod(
        env=[{"name": "GVIRTUS_CONFIG", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    ),
    "a variable said twice": lambda: pod(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
    "our variable by hand": lambda: pod(env=[{"name": "GVIRTUS_CONFIG", "value": PATH}, {"name": "B", "value": "2"}]),
    "several containers": several_containers,
    "init and sidecar": init_and_sidecar,
    "read-only root": lambda: pod(securityContext={"readOnlyRootFilesystem": True}),
    "restricted namespace": restricted,
    "generateName": generated_name,
    "another volume": other_volume,
    "no volume": without_token,
    "own file in one container": own_file,
    "own file at our path": own_file_at_our_path,
    "backend by name": lambda: annotated(gvirtus_io__backend="gpu-c"),
    "lupine": lambda: annotated(gvirtus_io__backend="gpu-b"),
    "lupine in every container": lambda: (
        init_and_sidecar() | {"metadata": annotated(gvirtus_io__backend="gpu-b")["metadata"]}
    ),
    "lupine set by hand": lambda: (
        pod(env=[{"name": "LUPINE_SERVER", "value": "elsewhere:1"}])
        | {"metadata": annotated(gvirtus_io__backend="gpu-b")["metadata"]}
    ),
    "properties written by the user": lambda: annotated(gvirtus_io__properties="{}"),
    "a device of a frontend": remote_and_gpu,
}


@pytest.fixture(scope="module")
def api(control_plane: simulator.ControlPlane) -> Iterator[httpx2.Client]:
    """The cluster with the policies in force; all of it is gone afterwards."""
    with connect(control_plane) as connected:
        made: list[str] = []
        try:
            for manifest in objects():
                path = post(connected, manifest)
                made.append(path)
            for namespace in (TEAM, RESTRICTED):
                account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
                eventually(lambda path=account: connected.get(path).status_code == httpx2.codes.OK)  # type: ignore[misc]
            eventually(lambda: in_force(connected))
            yield connected
        finally:
            for path in reversed(made):
                connected.delete(path)
            for path in made:
                eventually(lambda path=path: connected.get(path).status_code == httpx2.codes.NOT_FOUND)  # type: ignore[misc]
            eventually(lambda: not changes_anything(connected))


@pytest.fixture(scope="module", autouse=True)
def cron_job(api: httpx2.Client) -> None:
    """Made first, since its first Job starts with the next minute."""
    job = {"template": template(), "backoffLimit": 0}
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "every-minute", "namespace": TEAM},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job}},
    }
    post(api, manifest)


@pytest.fixture
def pods(api: httpx2.Client) -> Iterator[str]:
    """Path of the team's pods; the test's own pod is gone afterwards."""
    path = f"/api/v1/namespaces/{TEAM}/pods"
    yield path
    api.delete(f"{path}/app", params={"gracePeriodSeconds": "0"})
    eventually(lambda: api.get(f"{path}/app").status_code == httpx2.codes.NOT_FOUND)


def objects() -> list[Manifest]:
    frontends = REMOTE.frontends
    assert frontends is not None
    policies: list[Manifest] = []
    for kind in BackendKind:
        policies.append(gvirtus_policy.injection_policy(SETTINGS, REMOTE, kind))
        policies.append(gvirtus_policy.injection_binding(REMOTE, kind))
    return [
        gvirtus.backends_namespace(REMOTE),
        namespace(TEAM, {}),
        namespace(RESTRICTED, {"pod-security.kubernetes.io/enforce": "restricted"}),
        gvirtus_policy.endpoints_config(REMOTE, INJECTION.endpoints),
        gvirtus_policy.requests_policy(SETTINGS, REMOTE),
        gvirtus_policy.requests_binding(),
        *policies,
        gvirtus_frontends.placement_policy(SETTINGS),
        gvirtus_frontends.placement_binding(),
        gvirtus_frontends.guard_policy(SETTINGS, frontends),
        gvirtus_frontends.guard_binding(),
    ]


def namespace(name: str, labels: dict[str, str]) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def post(api: httpx2.Client, manifest: Manifest) -> str:
    """Create an object and return its path."""
    prefix = "/api/v1" if manifest["apiVersion"] == "v1" else f"/apis/{manifest['apiVersion']}"
    if owner := manifest["metadata"].get("namespace"):
        prefix += f"/namespaces/{owner}"
    kind = manifest["kind"].lower()
    path = f"{prefix}/{kind[:-1] + 'ies' if kind.endswith('y') else kind + 's'}"
    response = api.post(path, json=manifest)
    assert response.status_code == httpx2.codes.CREATED, response.text
    return f"{path}/{manifest['metadata']['name']}"


def create(api: httpx2.Client, wanted: Json, *, dry_run: bool = True) -> httpx2.Response:
    path = f"/api/v1/namespaces/{wanted['metadata']['namespace']}/pods"
    return api.post(path, json=wanted, params={"dryRun": "All"} if dry_run else {})


def created(api: httpx2.Client, wanted: Json, *, dry_run: bool = True) -> Json:
    response = create(api, wanted, dry_run=dry_run)
    assert response.status_code == httpx2.codes.CREATED, response.text
    answer: Json = response.json()
    return answer


def refused(api: httpx2.Client, wanted: Json) -> str:
    response = create(api, wanted)
    assert response.status_code == httpx2.codes.UNPROCESSABLE_CONTENT, response.text
    return str(response.json()["message"])


def in_force(api: httpx2.Client) -> bool:
    """Whether every policy works; each comes into force in its own time."""
    answers = [create(api, case()) for case in (pod, CASES["lupine"], remote_and_gpu)]
    if any(answer.status_code != httpx2.codes.CREATED for answer in answers):
        return False
    plain, lupine, device = (answer.json() for answer in answers)
    return (
        "gvirtus.io/properties" in plain["metadata"].get("annotations", {})
        and any(e["name"] == "LUPINE_SERVER" for e in lupine["spec"]["containers"][0].get("env", []))
        and gvirtus_frontends.FRONTEND_ALLOWED in device["spec"]["nodeSelector"]
        and create(api, annotated(gvirtus_io__backend="nowhere")).status_code != httpx2.codes.CREATED
        and create(api, on_the_frontend()).status_code != httpx2.codes.CREATED
    )


def changes_anything(api: httpx2.Client) -> bool:
    """Whether any policy still works, in a namespace that stays."""
    for case in (pod, CASES["lupine"], remote_and_gpu, lambda: annotated(gvirtus_io__backend="x"), on_the_frontend):
        wanted = case()
        wanted["metadata"]["namespace"] = "default"
        answer = create(api, wanted)
        if answer.status_code != httpx2.codes.CREATED:
            return True
        made = answer.json()
        if made["metadata"].get("annotations", {}) != wanted["metadata"].get("annotations", {}):
            return True
        if made["spec"].get("nodeSelector") != wanted["spec"].get("nodeSelector"):
            return True
    return False


def on_the_frontend() -> Json:
    ordinary = unlabelled(pod(resources=GPU))
    ordinary["spec"]["nodeName"] = "cpu-1"
    return ordinary


def unlabelled(of: Json) -> Json:
    result = copy.deepcopy(of)
    del result["metadata"]["labels"][ENABLED_LABEL]
    return result


def stable(of: Json) -> Json:
    """The pod without what differs from run to run."""
    kept = copy.deepcopy(of)
    for field in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"):
        kept["metadata"].pop(field, None)
    if "generateName" in kept["metadata"]:
        del kept["metadata"]["name"]
    kept.pop("status", None)
    text = yaml.safe_dump(kept)
    for volume in kept["spec"].get("volumes", []):
        if volume["name"].startswith("kube-api-access-"):
            text = text.replace(volume["name"], "kube-api-access")
    result: Json = yaml.safe_load(text)
    return result


def as_defaulted(api: httpx2.Client, wanted: Json) -> Json:
    """What the API server makes of the pod while no policy of ours looks at it; the label is put back."""
    plain = unlabelled(wanted)
    # A selector of ours would be the ordinary pods' one.
    gpu = [c.pop("resources", None) for c in plain["spec"]["containers"]]
    result = created(api, plain)
    result["metadata"]["labels"][ENABLED_LABEL] = "true"
    for container, resources in zip(result["spec"]["containers"], gpu, strict=True):
        if resources is not None:
            container["resources"] = resources | {"requests": resources["limits"]}
    return result


def template() -> Json:
    return {
        "metadata": {"labels": {ENABLED_LABEL: "true"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "a:1"}]},
    }


@pytest.mark.parametrize("name", CASES)
def test_the_policies_give_what_the_function_says(api: httpx2.Client, name: str) -> None:
    wanted = CASES[name]()
    expected = place(inject(as_defaulted(api, wanted), INJECTION))
    assert refusal(expected, INJECTION) is None
    got = created(api, wanted)
    assert stable(got) == stable(expected)


@pytest.mark.parametrize("name", CASES)
def test_a_second_pass_changes_nothing(api: httpx2.Client, name: str) -> None:
    once = created(api, CASES[name]())
    assert inject(once, INJECTION) == once
    again = copy.deepcopy(once)
    again["metadata"] = {key: value for key, value in once["metadata"].items() if key not in {"uid", "resourceVersion"}}
    assert stable(created(api, again)) == stable(once)


def test_what_a_pod_gets_in_plain_words(api: httpx2.Client) -> None:
    made = created(api, pod())
    assert made["metadata"]["annotations"] == {
        "gvirtus.io/backend": "gpu-a",
        "gvirtus.io/properties": (
            '{"communicator":[{"endpoint":{"suite":"tcp/ip","protocol":"tcp",'
            '"server_address":"10.96.7.7","port":"9999"}}]}'
        ),
    }
    [container] = made["spec"]["containers"]
    assert container["env"] == [{"name": "GVIRTUS_CONFIG", "value": "/run/gvirtus/properties.json"}]
    assert "command" not in container
    lupine = created(api, CASES["lupine"]())
    assert lupine["metadata"]["annotations"] == {"gvirtus.io/backend": "gpu-b"}
    assert lupine["spec"]["containers"][0]["env"] == [
        {"name": "LUPINE_SERVER", "value": "gpu-b.gvirtus-system.svc:14833"}
    ]
    assert not [v for v in lupine["spec"]["volumes"] if v["name"] == VOLUME]


@pytest.mark.parametrize("value", ["false", "True", "1", ""])
def test_a_pod_that_does_not_ask_is_left_alone(api: httpx2.Client, value: str) -> None:
    wanted = pod()
    wanted["metadata"]["labels"][ENABLED_LABEL] = value
    made = created(api, wanted)
    assert "annotations" not in made["metadata"]
    assert "env" not in made["spec"]["containers"][0]


@pytest.mark.parametrize("owner", gvirtus_policy.namespaces_left_alone(SETTINGS))
def test_the_operators_namespaces_are_left_alone(api: httpx2.Client, owner: str) -> None:
    if owner not in {item["metadata"]["name"] for item in api.get("/api/v1/namespaces").json()["items"]}:
        policy = gvirtus_policy.injection_policy(SETTINGS, REMOTE, BackendKind.GVIRTUS)
        [expression] = policy["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
        assert owner in expression["values"]
        return
    wanted = pod(securityContext=LOCKED)
    wanted["metadata"]["namespace"] = owner
    assert "annotations" not in created(api, wanted)["metadata"]


@pytest.mark.parametrize("name", ["nowhere", "", "GPU-A"])
def test_an_unknown_backend_is_refused_with_the_names_that_there_are(api: httpx2.Client, name: str) -> None:
    wanted = annotated(gvirtus_io__backend=name)
    message = refused(api, wanted)
    assert str(refusal(inject(wanted, INJECTION), INJECTION)) in message
    assert "gpu-a, gpu-b, gpu-c; without it, pods get gpu-a" in message


def test_a_volume_in_the_way_is_refused(api: httpx2.Client) -> None:
    wanted = pod()
    wanted["spec"]["volumes"] = [{"name": VOLUME, "emptyDir": {}}]
    message = refused(api, wanted)
    assert str(refusal(inject(wanted, INJECTION), INJECTION)) in message
    assert "rename your volume" in message


@pytest.mark.parametrize("where", ["containers", "initContainers"])
def test_a_mount_in_the_way_is_refused(api: httpx2.Client, where: str) -> None:
    wanted = pod()
    wanted["spec"]["volumes"] = [{"name": "mine", "emptyDir": {}}]
    mounts = [{"name": "mine", "mountPath": PATH}]
    if where == "containers":
        wanted["spec"]["containers"][0]["volumeMounts"] = mounts
    else:
        wanted["spec"]["initContainers"] = [{"name": "first", "image": "b:1", "volumeMounts": mounts}]
    message = refused(api, wanted)
    assert str(refusal(inject(wanted, INJECTION), INJECTION)) in message


def test_a_volume_of_that_name_is_nobodys_business_with_lupine(api: httpx2.Client) -> None:
    wanted = CASES["lupine"]()
    wanted["spec"]["volumes"] = [{"name": VOLUME, "emptyDir": {}}]
    created(api, wanted)


def test_a_dry_run_leaves_nothing(api: httpx2.Client, pods: str) -> None:
    created(api, pod(), dry_run=True)
    assert api.get(f"{pods}/app").status_code == httpx2.codes.NOT_FOUND


def test_kai_and_others_may_change_the_pod_afterwards(api: httpx2.Client, pods: str) -> None:
    made = created(api, pod(), dry_run=False)
    patches: list[Json] = [
        {"metadata": {"labels": {"runai/queue": "robots"}, "annotations": {"pod-group-name": "pg-1"}}},
        {"metadata": {"labels": {ENABLED_LABEL: None}}},
        {"metadata": {"labels": {ENABLED_LABEL: "true"}, "annotations": {"gvirtus.io/backend": "nowhere"}}},
        {"metadata": {"finalizers": ["example.com/hold"]}},
        {"metadata": {"finalizers": None}},
    ]
    for patch in patches:
        answer = api.patch(f"{pods}/app", json=patch, headers={"Content-Type": "application/merge-patch+json"})
        assert answer.status_code == httpx2.codes.OK, answer.text
    now = api.get(f"{pods}/app").json()
    ours = ("containers", "volumes", "initContainers")
    assert {k: now["spec"].get(k) for k in ours} == {k: made["spec"].get(k) for k in ours}


def test_a_job_runs_to_its_end_with_the_injected_pod(api: httpx2.Client) -> None:
    """Its controller takes a finalizer off the pod by an update."""
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once", "namespace": TEAM}}
    path = post(api, job | {"spec": {"template": template(), "backoffLimit": 0}})
    eventually(lambda: api.get(path).json()["status"].get("succeeded") == 1)
    assert_injected(api, "job-name=once")


def test_a_cron_job_makes_injected_pods(api: httpx2.Client) -> None:
    def its_pods() -> list[Json]:
        listed = api.get(f"/api/v1/namespaces/{TEAM}/pods").json()["items"]
        found: list[Json] = [p for p in listed if p["metadata"]["labels"].get("job-name", "").startswith("every-")]
        return found

    eventually(its_pods, within_s=240)
    for made in its_pods():
        assert made["metadata"]["annotations"]["gvirtus.io/backend"] == "gpu-a"
        assert [e["name"] for e in made["spec"]["containers"][0]["env"]] == ["GVIRTUS_CONFIG"]


def test_a_container_that_comes_in_later_gets_it_too(api: httpx2.Client) -> None:
    """Another policy adds a sidecar after ours: a new round reaches it, and adds nothing twice."""
    policies = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
    bindings = f"{policies.removesuffix('policies')}policybindings"
    for path, body in ((policies, sidecar_policy()), (bindings, sidecar_binding())):
        assert api.post(path, json=body).status_code == httpx2.codes.CREATED
    try:
        eventually(lambda: len(created(api, pod())["spec"]["containers"]) == 2)
        made = created(api, pod())
        for container in made["spec"]["containers"]:
            assert [e["name"] for e in container["env"]] == ["GVIRTUS_CONFIG"]
            assert [m["mountPath"] for m in container["volumeMounts"]].count(PATH) == 1
        assert [v["name"] for v in made["spec"]["volumes"]].count(VOLUME) == 1
    finally:
        api.delete(f"{bindings}/zzz-sidecar")
        api.delete(f"{policies}/zzz-sidecar")
        eventually(lambda: len(created(api, pod())["spec"]["containers"]) == 1)


class TestFrontends:
    """Ordinary CUDA pods stay away from nodes whose GPUs stand for remote ones."""

    @pytest.mark.parametrize("request_", ["whole", "init", "fraction", "memory"])
    def test_a_pod_that_wants_a_real_gpu_is_sent_to_one(self, api: httpx2.Client, request_: str) -> None:
        wanted = unlabelled(pod(resources=GPU) if request_ == "whole" else pod())
        if request_ == "init":
            wanted["spec"]["initContainers"] = [{"name": "first", "image": "b:1", "resources": GPU}]
        if request_ == "fraction":
            wanted["metadata"]["annotations"] = {"gpu-fraction": "0.5"}
        if request_ == "memory":
            wanted["metadata"]["annotations"] = {"gpu-memory": "2000"}
        made = created(api, wanted)
        assert made["spec"]["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
        assert place(wanted)["spec"]["nodeSelector"] == made["spec"]["nodeSelector"]

    def test_what_the_pod_says_of_nodes_stays(self, api: httpx2.Client) -> None:
        wanted = unlabelled(remote_and_gpu())
        assert created(api, wanted)["spec"]["nodeSelector"] == {"disk": "ssd", "nvidia.com/gpu.present": "true"}

    def test_a_pod_without_a_gpu_is_left_alone(self, api: httpx2.Client) -> None:
        assert "nodeSelector" not in created(api, unlabelled(pod()))["spec"]

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
        wanted = unlabelled(pod(resources=GPU))
        wanted["spec"]["nodeName"] = "x86-1"
        assert "nodeSelector" not in created(api, wanted)["spec"]

    def test_an_ordinary_pod_that_says_it_needs_no_gpu_node_is_refused(self, api: httpx2.Client) -> None:
        wanted = unlabelled(pod(resources=GPU))
        wanted["spec"]["nodeSelector"] = {"nvidia.com/gpu.present": "false"}
        assert "stand for remote ones" in refused(api, wanted)


@pytest.mark.parametrize(
    ("file", "variable"),
    [("examples/gvirtus-app/job.yaml", "GVIRTUS_CONFIG"), ("examples/lupine-app/job.yaml", "LUPINE_SERVER")],
)
def test_the_pod_of_an_example_is_welcome_and_gets_its_gpu(api: httpx2.Client, file: str, variable: str) -> None:
    job: Json = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))
    answer = api.post("/apis/batch/v1/namespaces/default/jobs", json=job, params={"dryRun": "All"})
    assert answer.status_code == httpx2.codes.CREATED, answer.text
    assert "Warning" not in answer.headers
    template = job["spec"]["template"]
    metadata = template["metadata"] | {"name": "app", "namespace": RESTRICTED}
    made = created(api, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    assert [e["name"] for e in made["spec"]["containers"][0]["env"]] == [variable]


def test_the_pod_of_the_document_is_welcome_and_gets_its_gpu(api: httpx2.Client) -> None:
    text = (ROOT / "docs/gvirtus.md").read_text(encoding="utf-8")
    snippets = [yaml.safe_load(block) for block in re.findall(r"(?ms)^```yaml\n(.*?)^```$", text)]
    [wanted] = [snippet for snippet in snippets if snippet.get("kind") == "Pod"]
    assert created(api, wanted)["spec"]["containers"][0]["env"][0]["name"] == "GVIRTUS_CONFIG"


def test_no_policy_has_type_errors(api: httpx2.Client) -> None:
    policies = api.get("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies").json()["items"]
    ours = {p["metadata"]["name"]: p["status"]["typeChecking"] for p in policies if "gvirtus" in p["metadata"]["name"]}
    assert ours == {gvirtus_policy.REQUESTS: {}, gvirtus_frontends.GUARD: {}}


def test_without_the_addresses_a_pod_is_refused_and_not_let_in_unchanged(api: httpx2.Client) -> None:
    path = f"/api/v1/namespaces/{REMOTE.namespace}/configmaps/{gvirtus_policy.ENDPOINTS}"
    assert api.delete(path).status_code == httpx2.codes.OK
    try:
        eventually(lambda: create(api, pod()).status_code != httpx2.codes.CREATED)
        created(api, unlabelled(pod()))
    finally:
        post(api, gvirtus_policy.endpoints_config(REMOTE, INJECTION.endpoints))
        eventually(lambda: in_force(api))


def test_a_changed_address_reaches_new_pods_alone(api: httpx2.Client, pods: str) -> None:
    path = f"/api/v1/namespaces/{REMOTE.namespace}/configmaps/{gvirtus_policy.ENDPOINTS}"
    before = created(api, pod(), dry_run=False)["metadata"]["annotations"]["gvirtus.io/properties"]
    moved = dict(INJECTION.endpoints) | {"gpu-a": dataclasses.replace(INJECTION.endpoints["gpu-a"], host="10.96.9.9")}

    def write(endpoints: Any) -> None:  # noqa: ANN401 - the builder's own type
        body = {"data": gvirtus_policy.endpoints_data(endpoints)}
        api.patch(path, json=body, headers={"Content-Type": "application/merge-patch+json"}).raise_for_status()

    def new_pods_have(host: str) -> bool:
        return host in created(api, generated_name())["metadata"]["annotations"]["gvirtus.io/properties"]

    write(moved)
    try:
        eventually(lambda: new_pods_have("10.96.9.9"))
        assert api.get(f"{pods}/app").json()["metadata"]["annotations"]["gvirtus.io/properties"] == before
    finally:
        write(INJECTION.endpoints)
        eventually(lambda: new_pods_have("10.96.7.7"))


def assert_injected(api: httpx2.Client, selector: str) -> None:
    listed = api.get(f"/api/v1/namespaces/{TEAM}/pods", params={"labelSelector": selector}).json()["items"]
    assert listed
    for made in listed:
        assert made["metadata"]["annotations"]["gvirtus.io/backend"] == "gpu-a"
        assert [e["name"] for e in made["spec"]["containers"][0]["env"]] == ["GVIRTUS_CONFIG"]


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
