"""The server of KAI's emulated webhooks, asked with real TLS."""

import ssl
from typing import Any

import httpx2
import pytest

from simulator.operands.webhooks import Webhooks, serving

_REVIEW = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u-1", "object": {}}}


def _ask(webhooks: Webhooks, service: str = "queue-controller", review: Any = _REVIEW) -> httpx2.Response:  # noqa: ANN401 - JSON
    trusted = ssl.create_default_context(cadata=webhooks.authority)
    return httpx2.post(f"{webhooks.url}/{service}/validate", json=review, verify=trusted, trust_env=False)


def test_a_service_answers_only_while_its_pods_run() -> None:
    with serving() as webhooks:
        assert _ask(webhooks).status_code == 503
        webhooks.answering = frozenset({"queue-controller"})
        answer = _ask(webhooks)
        assert answer.json() == {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {"uid": "u-1", "allowed": True},
        }
        assert _ask(webhooks, "admission").status_code == 503
        webhooks.answering = frozenset()
        assert _ask(webhooks).status_code == 503


def test_nobody_trusts_the_server_but_by_its_own_authority_and_it_ends_with_its_process() -> None:
    with serving() as webhooks:
        with pytest.raises(httpx2.ConnectError, match="certificate verify failed"):
            httpx2.post(webhooks.url, json=_REVIEW, trust_env=False)
        webhooks.answering = frozenset({"queue-controller"})
        assert _ask(webhooks).is_success
    with pytest.raises(httpx2.ConnectError):
        _ask(webhooks)
