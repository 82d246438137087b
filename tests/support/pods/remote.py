"""Applications with remote GPUs, as real pods."""

import json

import httpx2

from manifests.gvirtus.injection import ENABLED_LABEL, GVIRTUS_VARIABLE, PATH, frontend_properties
from testbed.stacks import Json
from tests.support.gvirtus.cases import LOCKED, TEAM
from tests.support.pods.runs import run_to_end
from tests.support.pods.stand_ins_image import APPLICATION, STAND_INS_IMAGE

_USER = 1000


def application(*, labelled: bool, name: str = "app") -> Json:
    """A pod of the stand-in for an application: no user's rights, no writable file."""
    main = {"name": "main", "image": STAND_INS_IMAGE, "command": list(APPLICATION), "securityContext": LOCKED}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": TEAM, "labels": {ENABLED_LABEL: "true"} if labelled else {}},
        "spec": {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [main]},
    }


def assert_an_application_is_served(api: httpx2.Client, address: str) -> None:
    """The process reads the file that was injected, and the backend behind the Service answers it."""
    ended = run_to_end(api, application(labelled=True))
    [container] = ended["spec"]["containers"]
    assert container["command"] == list(APPLICATION), "the pod's own command stays"
    properties = json.loads(frontend_properties(address, "9999"))
    assert ended["told"] == {
        "variable": PATH,
        "user": _USER,
        "endpoint": properties["communicator"][0]["endpoint"],
        "reply_bytes": 20,
        "exit_code": -1,
        "payload": 0,
    }


def assert_others_get_nothing(api: httpx2.Client) -> None:
    """The same process in a pod without the label finds neither variable nor file."""
    ended = run_to_end(api, application(labelled=False))
    assert ended["told"] == {"variable": None, "user": _USER}
    [container] = ended["spec"]["containers"]
    assert GVIRTUS_VARIABLE not in [variable["name"] for variable in container.get("env", [])]
