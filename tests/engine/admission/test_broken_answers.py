"""A webhook that answers wrongly or not at all: its pods are refused within its timeout, all others go on."""

import base64
import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
import trustme

from manifests import admission, reservation_guard
from manifests.admission_objects import ADMISSION_GROUP
from manifests.objects import Manifest, manifests
from testbed.admission.deployment import CONFIGURATIONS, Deployment, make, remove
from testbed.http_server import Handler, serving
from testbed.stacks import parse, webhook
from testbed.waiting import eventually
from tests.support.admission.pods import NAMESPACE, is_mutated, is_mutated_now, plain_pod, post
from tests.support.pods.reservation_cases import as_binder_creates

_NAME = "broken.test.io"
_TIMEOUT_SECONDS = 2
_JSON_PATCH = {"Content-Type": "application/json-patch+json"}


def _review(response: dict[str, Any]) -> bytes:
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    return json.dumps(body).encode()


def _huge_patch(uid: str) -> tuple[int, bytes]:
    note = [{"op": "add", "path": "/metadata/annotations/huge", "value": "x" * 4_000_000}]
    patch = base64.b64encode(json.dumps(note).encode()).decode()
    return 200, _review({"uid": uid, "allowed": True, "patchType": "JSONPatch", "patch": patch})


def _patch_of_nowhere(uid: str) -> tuple[int, bytes]:
    note = [{"op": "replace", "path": "/spec/nothing/there", "value": 1}]
    patch = base64.b64encode(json.dumps(note).encode()).decode()
    return 200, _review({"uid": uid, "allowed": True, "patchType": "JSONPatch", "patch": patch})


def _silence(_: str) -> tuple[int, bytes]:
    time.sleep(_TIMEOUT_SECONDS * 2)
    return 200, b"{}"


Answer = Callable[[str], tuple[int, bytes]]
_ANSWERS: dict[str, tuple[Answer, str]] = {
    "500": (lambda _: (500, b"out of order"), "an error on the server"),
    "no-json": (lambda _: (200, b"<html>"), "failed calling webhook"),
    "another-document": (lambda _: (200, b'{"kind": "Status", "apiVersion": "v1"}'), "failed calling webhook"),
    "anothers-answer": (lambda _: (200, _review({"uid": "another", "allowed": True})), "failed calling webhook"),
    "silence": (_silence, "context deadline exceeded"),
    "a-patch-of-nowhere": (_patch_of_nowhere, "does not apply"),
    # Our own server, which is asked next, takes no pod of that size.
    "a-huge-patch": (_huge_patch, "status code 413"),
}
"""What is answered, and what the API server says of it."""


@contextmanager
def _answering(answer: Answer) -> Iterator[tuple[int, str]]:
    """A server with a certificate: its port, and who issued the certificate."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    class Reviews(Handler):
        def do_POST(self) -> None:
            self.answer(*answer(json.loads(self.body())["request"]["uid"]), {"Content-Type": "application/json"})

    with serving(Reviews, context) as port:
        yield port, authority.cert_pem.bytes().decode("ascii")


def _in_our_place(server: Deployment, port: int, authority: str) -> Manifest:
    """The webhook of reservation pods as the stack makes it, with somebody else behind it."""
    made = server.reachable(admission.reservation_webhook(server.settings))
    made["metadata"] = {"name": "aaa-broken"}
    made["webhooks"][0] |= {"name": _NAME, "timeoutSeconds": _TIMEOUT_SECONDS, "matchConditions": []}
    trusted = base64.b64encode(authority.encode()).decode()
    made["webhooks"][0]["clientConfig"] = {"url": f"https://127.0.0.1:{port}/", "caBundle": trusted}
    return made


def _failures_counted(api: httpx2.Client) -> float:
    """What the API server's own metrics say of calls of that webhook that came to no good."""
    lines = [line for line in api.get("/metrics").text.splitlines() if f'name="{_NAME}"' in line]
    counted = ("apiserver_admission_webhook_rejection_count", "apiserver_admission_webhook_request_total")
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(counted))


@pytest.mark.parametrize("kind", _ANSWERS)
def test_a_wrong_answer_refuses_the_pod_in_bounded_time_and_others_go_on(
    api: httpx2.Client, two_replicas: Deployment, kind: str
) -> None:
    answer, says = _ANSWERS[kind]
    with _answering(answer) as (port, authority):
        broken = _in_our_place(two_replicas, port, authority)
        make(api, broken)
        try:
            eventually(lambda: post(api, as_binder_creates()).status_code != httpx2.codes.CREATED)
            before, begin = _failures_counted(api), time.monotonic()
            refusal = post(api, as_binder_creates(), dry_run=False)
            assert refusal.status_code in {httpx2.codes.INTERNAL_SERVER_ERROR, httpx2.codes.UNPROCESSABLE_CONTENT}
            assert says in refusal.json()["message"], refusal.text
            assert time.monotonic() - begin < _TIMEOUT_SECONDS + 5
            assert _failures_counted(api) > before
            for pod in (plain_pod(NAMESPACE, {}), plain_pod("default", {"app": "kai-resource-reservation"})):
                assert post(api, pod).status_code == httpx2.codes.CREATED
        finally:
            remove(api, broken)
        eventually(lambda: is_mutated_now(api))


def test_a_webhook_that_was_told_to_let_pods_through_is_caught_by_the_guard(
    api: httpx2.Client, two_replicas: Deployment
) -> None:
    """Ignore with nobody behind it: the pod comes unchanged, and a pod without its libraries is refused."""
    path = f"{CONFIGURATIONS}/{admission.RESERVATION_WEBHOOK}"

    def policy(value: str) -> None:
        change = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": value}]
        assert api.patch(path, json=change, headers=_JSON_PATCH).status_code == httpx2.codes.OK

    guard = list(manifests(reservation_guard.objects(parse(webhook()))).values())
    two_replicas.kill()
    policy("Ignore")
    try:
        answer = httpx2.Response(500)

        def let_through() -> bool:
            nonlocal answer
            answer = post(api, as_binder_creates())
            return answer.status_code == httpx2.codes.CREATED

        eventually(let_through)
        assert not is_mutated(answer.json()), "nobody was there to change it"
        for manifest in guard:
            kind = f"{manifest['kind'].lower()}s".replace("policys", "policies")
            made = api.post(f"/apis/{ADMISSION_GROUP}/v1/{kind}", json=manifest)
            assert made.status_code == httpx2.codes.CREATED, made.text
        eventually(lambda: not let_through())
        assert answer.status_code == httpx2.codes.UNPROCESSABLE_CONTENT, answer.text
        assert reservation_guard.GUARD in answer.json()["message"]
    finally:
        for manifest in reversed(guard):
            kind = f"{manifest['kind'].lower()}s".replace("policys", "policies")
            api.delete(f"/apis/{ADMISSION_GROUP}/v1/{kind}/{manifest['metadata']['name']}")
        policy("Fail")
        two_replicas.start()
        eventually(lambda: is_mutated_now(api))
