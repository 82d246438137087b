"""What the benchmark compares with gives the same answers: otherwise the ratio would say nothing."""

import base64
import json

import jsonpatch
import pytest

from agents.admission.review import write
from benchmarks import flask_server
from testbed.admission.objects import body, gvirtus_pod, request, reservation_pod, served
from testbed.stacks import Json

_ENV = [{"name": "LD_LIBRARY_PATH", "value": "/mine"}, {"name": "OTHER", "value": "1"}]


def container(**fields: object) -> Json:
    return {"name": "resource-reservation", "image": "a:1", **fields}


PODS = {
    "as KAI makes it": reservation_pod(),
    "without a security context": reservation_pod(containers=[container()]),
    "behind another container": reservation_pod(containers=[{"name": "mine", "image": "a:1"}, container()]),
    "with a variable of ours": reservation_pod(containers=[container(env=_ENV)]),
    "with a volume of its own": reservation_pod(volumes=[{"name": "mine", "emptyDir": {}}]),
    "on an x86 node": reservation_pod(nodeName="x86-1"),
    "without KAI's container": reservation_pod(containers=[{"name": "mine", "image": "a:1"}]),
    "of somebody else": gvirtus_pod(),
}


def outcome(pod: Json, response: Json) -> tuple[bool, Json, Json]:
    """Whether it is allowed, why not, and what the pod becomes, without the order of variables of other names."""
    patch = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    became: Json = jsonpatch.apply_patch(pod, patch)
    for container in became["spec"]["containers"]:
        container.get("env", []).sort(key=lambda variable: variable["name"])
    return response["allowed"], response.get("status", {}), became


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
@pytest.mark.parametrize("changes", [{}, {"operation": "UPDATE"}, {"namespace": "default"}], ids=str)
def test_the_flask_server_answers_as_ours_does(pod: Json, changes: Json) -> None:
    client = flask_server.APP.test_client()
    answered = client.post("/mutate/reservation", data=body(pod, **changes), content_type="application/json").get_json()
    review = request(pod, **changes)
    ours = json.loads(write(review, served().answer("reservation", review)))
    assert outcome(pod, answered["response"]) == outcome(pod, ours["response"])
    assert answered["response"]["uid"] == ours["response"]["uid"]
