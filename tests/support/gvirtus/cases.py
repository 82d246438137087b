"""Pods that ask for remote GPUs, and how they are created: one list for both carriers."""

import copy
from collections.abc import Callable
from typing import Any

import httpx2
import yaml

from manifests.gvirtus.injection import ENABLED_LABEL, PATH
from manifests.objects import Manifest
from testbed.stacks import Json, changed

TEAM = "gvirtus-test-team"
RESTRICTED = "gvirtus-test-restricted"
ADDRESSES = {"gpu-a": "10.96.7.7", "gpu-b": "10.96.7.8", "gpu-c": "10.96.7.9"}
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


def own_file_at_our_path(mounted_at: str = PATH, value: str = f"{PATH}/mine.json") -> Json:
    result = pod(
        env=[{"name": "GVIRTUS_CONFIG", "value": value}],
        volumeMounts=[{"name": "mine", "mountPath": mounted_at}],
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
    "own file at our path with a slash": lambda: own_file_at_our_path(mounted_at=f"{PATH}/", value=PATH),
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


def stack_of(stack: Json) -> Json:
    """A stack with remote GPUs, and one backend more, on a port of its own."""
    return changed(stack, "gvirtus.backends.gpu-c", {"image": "gvirtus/gvirtus:1", "node": "x86-1", "port": 34567})


def namespace(name: str, labels: dict[str, str]) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def post(api: httpx2.Client, manifest: Manifest) -> str:
    """Create an object and return its path."""
    prefix = "/api/v1" if manifest["apiVersion"] == "v1" else f"/apis/{manifest['apiVersion']}"
    if owner := manifest["metadata"].get("namespace"):
        prefix += f"/namespaces/{owner}"
    kind = manifest["kind"].lower()
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}es" if kind.endswith("s") else f"{kind}s"
    path = f"{prefix}/{plural}"
    response = api.post(path, json=manifest)
    assert response.status_code == httpx2.codes.CREATED, response.text
    return f"{path}/{manifest['metadata']['name']}"


def create(api: httpx2.Client, new_pod: Json, *, dry_run: bool = True) -> httpx2.Response:
    path = f"/api/v1/namespaces/{new_pod['metadata']['namespace']}/pods"
    return api.post(path, json=new_pod, params={"dryRun": "All"} if dry_run else {})


def created(api: httpx2.Client, new_pod: Json, *, dry_run: bool = True) -> Json:
    response = create(api, new_pod, dry_run=dry_run)
    assert response.status_code == httpx2.codes.CREATED, response.text
    answer: Json = response.json()
    return answer


def refused(api: httpx2.Client, new_pod: Json) -> str:
    response = create(api, new_pod)
    assert response.status_code == httpx2.codes.UNPROCESSABLE_CONTENT, response.text
    return str(response.json()["message"])


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


def as_defaulted(api: httpx2.Client, new_pod: Json) -> Json:
    """What the API server makes of the pod while no policy of ours looks at it; the label is put back."""
    plain = unlabelled(new_pod)
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
