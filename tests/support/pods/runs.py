"""Pods that run to their end, and workloads that become available."""

import json

import httpx2

from testbed.stacks import Json
from testbed.waiting import eventually

PATIENT_SECONDS = 240.0
"""Images are copied for each container, on a machine that may be busy."""


def run_to_end(api: httpx2.Client, pod: Json) -> Json:
    """Create a pod, wait until its process has ended well, delete it; the pod and what it told as `told`."""
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
    response = api.post(path, json=pod)
    assert response.status_code == httpx2.codes.CREATED, response.text
    path = f"{path}/{pod['metadata']['name']}"
    try:
        eventually(
            lambda: api.get(path).json()["status"].get("phase") in {"Succeeded", "Failed"},
            within_seconds=PATIENT_SECONDS,
        )
        ended: Json = api.get(path).json()
    except AssertionError as error:
        raise AssertionError(explained(api, path)) from error
    finally:
        delete(api, path)
    assert ended["status"]["phase"] == "Succeeded", json.dumps(ended["status"], indent=2)
    [state] = [status["state"]["terminated"] for status in ended["status"]["containerStatuses"]]
    return ended | {"told": json.loads(state["message"])}


def delete(api: httpx2.Client, path: str) -> None:
    """Delete an object at once, and wait until it is gone."""
    api.delete(path, params={"propagationPolicy": "Foreground"})
    eventually(lambda: api.get(path).status_code == httpx2.codes.NOT_FOUND, within_seconds=PATIENT_SECONDS)


def available(api: httpx2.Client, path: str) -> None:
    """Wait until a Deployment's or DaemonSet's pods all count as available."""

    def done() -> bool:
        live = api.get(path).json()
        status = live.get("status", {})
        count = status.get("desiredNumberScheduled") or live["spec"].get("replicas")
        ready = status.get("numberAvailable") or status.get("availableReplicas")
        return bool(count) and count == ready and status["observedGeneration"] == live["metadata"]["generation"]

    try:
        eventually(done, within_seconds=PATIENT_SECONDS)
    except AssertionError as error:
        namespace = path.split("/namespaces/")[1].partition("/")[0]
        pods = api.get(f"/api/v1/namespaces/{namespace}/pods").json()["items"]
        paths = [f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}" for pod in pods]
        raise AssertionError("\n".join([path, *(explained(api, path) for path in paths)])) from error


def explained(api: httpx2.Client, path: str) -> str:
    """What the cluster says of a pod: its status and its events."""
    pod = api.get(path).json()
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    selector = {"fieldSelector": f"involvedObject.name={name}"}
    events = api.get(f"/api/v1/namespaces/{namespace}/events", params=selector).json()["items"]
    return json.dumps(pod["status"], indent=2) + "".join(f"\n{event['reason']}: {event['message']}" for event in events)
