"""What verify says of reservation pods, from what the cluster would make of one."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from cluster.access.client import Cluster
from cluster.reservation_pods import differences_of, expectation, reservation_pod
from config.stack import StackSettings
from manifests import kai
from operations.verify import reservation_pods
from operations.verify.reservation_pods import verify
from operations.verify.steps import Outcome
from testbed.stacks import changed, jetson, parse
from tests.support.api_server import connected
from tests.support.reservation import as_the_stack_says


class Admission:
    """An API server that answers dry runs."""

    def __init__(self) -> None:
        self.answer: httpx2.Response = httpx2.Response(201, json={})
        self.asked: list[httpx2.Request] = []

    def connect(self) -> Cluster:
        return connected(self._take)

    def _take(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request)
        return self.answer

    def refuse(self, code: int, message: str) -> None:
        self.answer = httpx2.Response(code, json={"kind": "Status", "code": code, "message": message})


@pytest.fixture
def admission() -> Admission:
    return Admission()


@pytest.fixture
def cluster(admission: Admission) -> Iterator[Cluster]:
    connection = admission.connect()
    yield connection
    connection.close()


@pytest.fixture
def settings() -> StackSettings:
    return parse(jetson())


def test_a_pod_that_gets_what_the_stack_says_holds_and_is_shown(
    admission: Admission, cluster: Cluster, settings: StackSettings
) -> None:
    admission.answer = httpx2.Response(201, json=as_the_stack_says(settings, "jetson-1"))
    step = verify(cluster, settings, "jetson-1")
    assert step.outcome is Outcome.HELD
    assert "privileged: true" in step.evidence
    assert any("/dev" in line for line in step.evidence)


def test_nothing_is_stored_and_kai_s_binder_is_who_asks(
    admission: Admission, cluster: Cluster, settings: StackSettings
) -> None:
    admission.answer = httpx2.Response(201, json=as_the_stack_says(settings, "jetson-1"))
    verify(cluster, settings, "jetson-1")
    [request] = admission.asked
    assert request.url.params["dryRun"] == "All"
    assert request.headers["impersonate-user"] == "system:serviceaccount:kai-scheduler:binder"
    sent = json.loads(request.content)
    assert sent["spec"]["nodeName"] == "jetson-1"
    assert "volumes" not in sent["spec"]


def test_overrides_that_are_gone_are_a_failure_that_names_what_lacks(
    admission: Admission, cluster: Cluster, settings: StackSettings
) -> None:
    admission.answer = httpx2.Response(201, json=reservation_pod(settings, "jetson-1"))
    step = verify(cluster, settings, "jetson-1")
    assert step.outcome is Outcome.FAILED
    assert "pulumi up --refresh" in step.says
    assert "privileged is false; it should be true." in step.evidence
    assert any(line.startswith("it lacks the host path") for line in step.evidence)
    assert any(line.startswith("it lacks the variable LD_LIBRARY_PATH=") for line in step.evidence)


def test_a_node_that_is_no_jetson_gets_nothing_and_privilege_there_is_a_failure(
    admission: Admission, cluster: Cluster, settings: StackSettings
) -> None:
    admission.answer = httpx2.Response(201, json=reservation_pod(settings, "x86-1"))
    assert verify(cluster, settings, "x86-1").outcome is Outcome.HELD
    admission.answer = httpx2.Response(201, json=as_the_stack_says(settings, "jetson-1"))
    step = verify(cluster, settings, "x86-1")
    assert step.outcome is Outcome.FAILED
    assert "privileged is true; it should be false." in step.evidence
    assert "it has the host path /dev, which it should not have." in step.evidence


def test_a_lower_rung_is_what_is_expected_where_the_stack_says_so(admission: Admission, cluster: Cluster) -> None:
    none = parse(changed(jetson(), "reservation.privilege", "none"))
    admission.answer = httpx2.Response(201, json=as_the_stack_says(none, "jetson-1"))
    step = verify(cluster, none, "jetson-1")
    assert step.outcome is Outcome.HELD
    assert "privileged: false" in step.evidence
    assert "host paths: none" in step.evidence
    privileged = list(differences_of(as_the_stack_says(parse(jetson()), "jetson-1"), expectation(none, "jetson-1")))
    assert "privileged is true; it should be false." in privileged


def test_a_refusal_is_a_failure_with_the_api_server_s_words(
    admission: Admission, cluster: Cluster, settings: StackSettings
) -> None:
    admission.refuse(403, "ValidatingAdmissionPolicy 'other' denied request: no")
    step = verify(cluster, settings, "jetson-1")
    assert (step.outcome, step.evidence) == (
        Outcome.FAILED,
        ("ValidatingAdmissionPolicy 'other' denied request: no",),
    )


def test_who_may_not_ask_as_the_binder_is_told_so_and_nothing_failed(
    admission: Admission, cluster: Cluster, settings: StackSettings
) -> None:
    admission.refuse(403, 'serviceaccounts "binder" is forbidden: User "me" cannot impersonate resource')
    step = verify(cluster, settings, "jetson-1")
    assert step.outcome is Outcome.SKIPPED
    assert "impersonate" in step.says


def test_a_local_chart_does_not_tell_the_tag_but_the_registry_that_the_guard_asks_for(settings: StackSettings) -> None:
    local = parse(changed(jetson(), "kai.chart", {"source": "/charts/kai"}))
    [container] = reservation_pod(local, "jetson-1")["spec"]["containers"]
    assert container["image"] == f"{kai.REGISTRY}/resourcereservation:unknown"
    [pinned] = reservation_pod(settings, "jetson-1")["spec"]["containers"]
    assert pinned["image"].startswith(f"{kai.REGISTRY}/resourcereservation:v")


def test_the_pod_is_the_one_of_the_example(settings: StackSettings) -> None:
    from testbed.admission.objects import reservation_pod as example  # noqa: PLC0415 - beside ours by the same name

    ours: Any = copy.deepcopy(reservation_pod(settings, "jetson-1"))["spec"]
    theirs = example()["spec"]
    [own], [kais] = ours["containers"], theirs["containers"]
    kais["resources"] = {
        kind: {name: str(n) for name, n in amounts.items()} for kind, amounts in kais["resources"].items()
    }
    del kais["imagePullPolicy"]
    assert own == kais
    assert {key: ours[key] for key in ("nodeName", "runtimeClassName", "serviceAccountName")} == {
        key: theirs[key] for key in ("nodeName", "runtimeClassName", "serviceAccountName")
    }
    assert reservation_pods.NAME == "reservation pods"
