"""Remote GPUs and the guard of all pods on an API server that has MutatingAdmissionPolicy v1beta1 alone.

What else holds on v1 stands in test_injection.py and in tests/engine/reservation/test_pod_guard.py.
"""

from collections.abc import Iterator

import httpx2
import pytest

from config.gvirtus import FRONTEND_ALLOWED
from testbed.inventory import connect
from testbed.simulated import start
from testbed.stacks import ROOT, beta_policies, parse
from testbed.waiting import eventually
from tests.engine.gvirtus.test_injection import in_force, objects, on_the_frontend
from tests.policy.objects import changed
from tests.support.gvirtus.cases import (
    CASES,
    GPU,
    annotated,
    as_defaulted,
    create,
    created,
    pod,
    post,
    refused,
    stable,
    stack_of,
    unlabelled,
)
from tests.support.gvirtus.contract import refusal, served
from tests.support.gvirtus.placement import place
from tests.support.pods import twin
from tests.support.pods.corpus import plain


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """The cluster with the policies in force."""
    with start(tmp_path_factory.mktemp("cluster") / "simulator", older=True) as older, connect(older) as connected:
        for manifest in objects(parse(stack_of(beta_policies()))):
            if manifest["kind"].startswith("Mutating"):
                assert manifest["apiVersion"] == "admissionregistration.k8s.io/v1beta1"
            post(connected, manifest)
        twin.prepare(connected)
        eventually(lambda: in_force(connected))
        yield connected


TWICE = "a variable said twice"
"""What Kubernetes 1.34 can't merge."""


@pytest.mark.parametrize("name", sorted(CASES.keys() - {TWICE}))
def test_a_pod_becomes_what_the_server_says(api: httpx2.Client, name: str) -> None:
    new_pod = CASES[name]()
    assert stable(created(api, new_pod)) == stable(place(served(as_defaulted(api, new_pod))))


def test_a_variable_said_twice_is_refused_as_the_guide_says(api: httpx2.Client) -> None:
    answer = create(api, CASES[TWICE]())
    assert answer.status_code == httpx2.codes.FORBIDDEN
    assert "duplicate entries for key" in answer.json()["message"]
    assert "`duplicate entries for key`" in (ROOT / "docs/distributions.md").read_text(encoding="utf-8")
    assert created(api, unlabelled(CASES[TWICE]()))["spec"]["containers"][0]["env"] == [
        {"name": "A", "value": "1"},
        {"name": "A", "value": "2"},
    ]


def test_a_pod_that_does_not_ask_is_left_alone(api: httpx2.Client) -> None:
    made = created(api, unlabelled(pod()))
    assert "annotations" not in made["metadata"]
    assert "env" not in made["spec"]["containers"][0]


def test_an_unknown_backend_is_refused_with_the_names_that_there_are(api: httpx2.Client) -> None:
    new_pod = annotated(gvirtus_io__backend="nowhere")
    assert refusal(new_pod) in refused(api, new_pod)


def test_a_frontends_gpu_is_for_remote_pods_alone(api: httpx2.Client) -> None:
    assert created(api, pod(resources=GPU))["spec"]["nodeSelector"] == {FRONTEND_ALLOWED: "true"}
    assert "stand for remote ones" in refused(api, on_the_frontend())


def test_the_guard_of_all_pods_welcomes_and_refuses(api: httpx2.Client) -> None:
    assert twin.create(api, plain()).is_success
    offends = changed(plain(), "spec.hostPID", True)
    assert twin.denied(twin.create(api, offends))
    assert twin.create(api, offends, twin.FREE).is_success
