"""Replicas end gracefully, or are killed: no pod is lost, and none comes through without its overrides."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx2

from testbed.admission.deployment import Deployment
from testbed.waiting import eventually
from tests.support.admission.pods import Load, is_mutated, pods, post
from tests.support.pods.reservation_cases import as_binder_creates

_PODS = 1000
_CREATORS = 8
_PATIENCE_SECONDS = 300.0
"""For a request that concerns all of them."""


def test_a_replica_that_is_asked_to_end_answers_until_nobody_asks(api: httpx2.Client, two_replicas: Deployment) -> None:
    leaving = two_replicas.replicas[0]
    with Load(api) as load:
        eventually(lambda: load.answered > 20)
        two_replicas.service.backends = [leaving.port, two_replicas.replicas[1].port]
        codes: list[int] = []
        ending = threading.Thread(target=lambda: codes.append(leaving.stop()))
        ending.start()
        eventually(lambda: leaving.ask("/readyz")[0] in {0, httpx2.codes.SERVICE_UNAVAILABLE})
        # What a cluster does with a replica that is not ready.
        two_replicas.service.backends = [two_replicas.replicas[1].port]
        ending.join()
        answered = load.answered
        eventually(lambda: load.answered > answered + 20)
    assert codes == [0]
    assert load.failures == []


def test_both_killed_in_a_burst_of_1000_pods_lose_none_and_let_none_through_unmutated(
    api: httpx2.Client, two_replicas: Deployment
) -> None:
    """Each pod is created as KAI's binder does it: after a refusal, again."""
    names = [f"burst-{number}" for number in range(_PODS)]
    created = threading.Semaphore(0)
    refusals: list[str] = []

    def create(name: str) -> None:
        pod = as_binder_creates()
        pod["metadata"]["name"] = name
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            with suppress(httpx2.TimeoutException):
                answer = post(api, pod, dry_run=False)
                if answer.status_code in {httpx2.codes.CREATED, httpx2.codes.CONFLICT}:
                    created.release()
                    return
                refusals.append(answer.text)
            time.sleep(0.5)

    try:
        with ThreadPoolExecutor(_CREATORS) as workers:
            burst = [workers.submit(create, name) for name in names]
            for _ in range(_PODS // 4):
                assert created.acquire(timeout=600)
            two_replicas.kill()
            eventually(lambda: refusals)
            two_replicas.start()
            two_replicas.start()
            for creation in burst:
                creation.result()
        listed = {pod["metadata"]["name"]: pod for pod in api.get(pods(), timeout=_PATIENCE_SECONDS).json()["items"]}
        assert set(names) <= listed.keys(), "a pod was lost"
        assert all(is_mutated(listed[name]) for name in names), "a pod came through unmutated"
        assert all("failed calling webhook" in refusal for refusal in refusals), "refused by the server itself"
    finally:
        api.delete(pods(), params={"gracePeriodSeconds": "0"}, timeout=_PATIENCE_SECONDS)
        eventually(lambda: not api.get(pods(), params={"limit": "1"}).json()["items"], within_seconds=_PATIENCE_SECONDS)
