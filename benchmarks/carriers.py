"""What each carrier of the overrides adds to a pod's creation: none, the policy, the webhook.

Pods are created as dry runs on one real API server, which asks every policy and webhook all the same and writes
nothing: a disk that is slow for a moment would be more than what is measured. Carriers take turns, another one first in
each round; each round gives one number per carrier, so that a machine whose speed drifts spoils no comparison. The API
server's processor time for a pod that no carrier is for stands beside the wall time: it hardly changes with what else
runs on the machine.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import httpx2

from benchmarks.result import Result, of_pairs, rounds, show, tell
from config.reservation import Privilege
from manifests import admission, reservation
from testbed.admission.deployment import Deployment, deployment, make, prepare, remove
from testbed.admission.objects import reservation_pod
from testbed.inventory import connect
from testbed.simulated import processor_s, start
from testbed.stacks import Json, jetson, parse, webhook
from testbed.waiting import eventually

GOAL_MATCHED_MS = 3.0
GOAL_OTHERS = 1.1
PODS = rounds(150, 40)
"""Per round, carrier and kind of pod."""


@dataclass(frozen=True)
class _Cost:
    """Of one pod.

    Attributes:
        wall_ms: until it is created, at the median.
        processor_ms: of the API server.
    """

    wall_ms: float
    processor_ms: float


def results() -> Iterator[Result]:
    """Measure on a simulator of its own."""
    with tempfile.TemporaryDirectory() as name:
        yield from _measure(Path(name))


def _measure(folder: Path) -> Iterator[Result]:
    settings = parse(webhook())
    costs: dict[tuple[str, str], list[_Cost]] = {}
    with start(folder / "simulator") as control_plane, connect(control_plane) as api:
        prepare(api, settings, "jetson-1")
        with deployment(folder / "server", control_plane, api, settings) as server:
            server.install()
            replica = server.start()
            eventually(lambda: _is_mutated(api))
            trusted = _take_away(api, server, replica.port)
            carriers: dict[str, Callable[[], AbstractContextManager[None]]] = {
                "none": nullcontext,
                "policy": lambda: _policy(api),
                "webhook": lambda: _webhook(api, trusted),
            }
            order = list(carriers)
            for number in range(rounds(9, 2) + 1):
                order.append(order.pop(0))
                for carrier in order:
                    with carriers[carrier]():
                        for kind, pod in (("matched", reservation_pod()), ("other", _other_pod())):
                            cost = _cost(api, pod, lambda: processor_s(control_plane, "kube-apiserver"))
                            if number:  # the first round warms everything up
                                costs.setdefault((carrier, kind), []).append(cost)
    for carrier in ("policy", "webhook"):
        yield _added(carrier, costs["none", "matched"], costs[carrier, "matched"])
    for carrier in ("policy", "webhook"):
        pairs = list(zip(costs[carrier, "other"], costs["none", "other"], strict=True))
        sides, name = (carrier, "none"), f"A pod that is not matched: carrier {carrier} over none"
        yield of_pairs(name, [(a.wall_ms, b.wall_ms) for a, b in pairs], sides, goal=GOAL_OTHERS, unit="ms")
        processor = [(a.processor_ms, b.processor_ms) for a, b in pairs]
        yield of_pairs(f"{name}, in processor time of the API server", processor, sides, unit="ms")


def _added(carrier: str, without: list[_Cost], with_it: list[_Cost]) -> Result:
    more = tuple(b.wall_ms - a.wall_ms for a, b in zip(without, with_it, strict=True))
    parts = {
        name: f"{show(statistics.median(cost.wall_ms for cost in costs))} ms"
        for name, costs in ((carrier, with_it), ("none", without))
    }
    return Result(f"A matched pod: what carrier {carrier} adds", "ms", more, GOAL_MATCHED_MS, parts=parts)


@contextmanager
def _policy(api: httpx2.Client) -> Iterator[None]:
    settings = parse(jetson())
    objects = [
        reservation.overrides_policy(settings, Privilege.PRIVILEGED),
        reservation.overrides_binding(settings, Privilege.PRIVILEGED),
    ]
    for manifest in objects:
        make(api, manifest)
    eventually(lambda: _is_mutated(api))
    yield
    for manifest in reversed(objects):
        remove(api, manifest)
    eventually(lambda: not _is_mutated(api))


@contextmanager
def _webhook(api: httpx2.Client, configuration: Json) -> Iterator[None]:
    make(api, configuration)
    eventually(lambda: _is_mutated(api))
    yield
    remove(api, configuration)
    eventually(lambda: not _is_mutated(api))


def _take_away(api: httpx2.Client, server: Deployment, port: int) -> Json:
    """The webhook's configuration as the server left it, with the authority that it trusts; the cluster loses it.

    It leads to the server's own port: a cluster's Service is the kernel's work, the test bed's a program that copies.
    """
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    configuration: Json = api.get(f"{path}/{admission.RESERVATION_WEBHOOK}").raise_for_status().json()
    for manifest in server.configurations.values():
        remove(api, manifest)
    eventually(lambda: not _is_mutated(api))
    for entry in configuration["webhooks"]:
        entry["clientConfig"]["service"]["port"] = port
    metadata = {
        key: value for key, value in configuration["metadata"].items() if key in {"name", "labels", "annotations"}
    }
    return configuration | {"metadata": metadata}


def _cost(api: httpx2.Client, pod: Json, processor: Callable[[], float]) -> _Cost:
    times = []
    before = processor()
    for _ in range(PODS):
        begin = time.perf_counter()
        response = _create(api, pod)
        times.append((time.perf_counter() - begin) * 1000)
        response.raise_for_status()
    return _Cost(statistics.median(times), (processor() - before) * 1000 / PODS)


def _create(api: httpx2.Client, pod: Json) -> httpx2.Response:
    namespace = pod["metadata"].get("namespace", reservation.NAMESPACE)
    return api.post(f"/api/v1/namespaces/{namespace}/pods", json=pod, params={"dryRun": "All"})


def _other_pod() -> Json:
    """A pod that no carrier is for."""
    pod = reservation_pod()
    pod["metadata"] = {"name": "other", "namespace": "default"}
    del pod["spec"]["serviceAccountName"]
    return pod


def _is_mutated(api: httpx2.Client) -> bool:
    response = _create(api, reservation_pod())
    if not response.is_success:
        return False
    [container] = response.json()["spec"]["containers"]
    return container["securityContext"].get("privileged") is True


if __name__ == "__main__":
    tell(results())
