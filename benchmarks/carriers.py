"""What each carrier of the overrides adds to a pod's creation: the policy, the webhook, each over none.

Two clusters run beside each other, one with the carrier and one without. Pods are created on them by turns, one here
and one there, so that whatever else slows the machine slows both. Then the clusters change their parts, so that what
makes one of them slower spoils no comparison either. Each round gives one number with the carrier and one without.

Pods are created as dry runs on real API servers, which ask every policy and webhook all the same and write nothing: a
disk that is slow for a moment would be more than what is measured. The API server's processor time for a pod that no
carrier is for stands beside the wall time: it hardly changes with what else runs on the machine.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx2

from benchmarks.result import Result, of_pairs, rounds, show, tell
from config.reservation import Privilege
from manifests import admission, reservation
from testbed.admission.deployment import Deployment, deployment, make, prepare, remove
from testbed.admission.objects import reservation_pod
from testbed.inventory import connect
from testbed.simulated import processor_seconds, start
from testbed.stacks import Json, jetson, parse, webhook
from testbed.waiting import eventually

GOAL_MATCHED_MS = 3.0
GOAL_OTHERS = 1.1
PODS = rounds(100, 20)
"""Of each kind, per round, on each cluster with and without the carrier."""


@dataclass(frozen=True)
class _Cost:
    """Of one pod.

    Attributes:
        wall_ms: until it is created, at the median.
        processor_ms: of the API server.
    """

    wall_ms: float
    processor_ms: float


@dataclass(frozen=True)
class _Cluster:
    """One of both.

    Attributes:
        api: its API server.
        carriers: what puts a carrier into force, and takes it away.
        processor_seconds: what its API server has taken until now.
    """

    api: httpx2.Client
    carriers: Mapping[str, Callable[[], AbstractContextManager[None]]]
    processor_seconds: Callable[[], float]


@dataclass
class _Side:
    """Pods that are created with a carrier, or without.

    Attributes:
        wall_ms: of each.
        processor_seconds: of all.
    """

    wall_ms: list[float] = field(default_factory=list)
    processor_seconds: float = 0.0

    @property
    def cost(self) -> _Cost:
        """Of one."""
        return _Cost(statistics.median(self.wall_ms), self.processor_seconds * 1000 / len(self.wall_ms))


def results() -> Iterator[Result]:
    """Measure on two simulators of its own."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        both = tuple(running.enter_context(_cluster(Path(name) / number)) for number in "12")
        costs: dict[tuple[str, str], list[tuple[_Cost, _Cost]]] = {}
        for number in range(rounds(9, 2) + 1):
            for carrier in ("policy", "webhook"):
                for kind, pair in _round(both, carrier).items():
                    if number:  # the first round warms everything up
                        costs.setdefault((carrier, kind), []).append(pair)
    for carrier in ("policy", "webhook"):
        yield _added(carrier, costs[carrier, "matched"])
    for carrier in ("policy", "webhook"):
        pairs = costs[carrier, "other"]
        sides, name = (carrier, "none"), f"A pod that is not matched: carrier {carrier} over none"
        yield of_pairs(name, [(a.wall_ms, b.wall_ms) for a, b in pairs], sides, goal=GOAL_OTHERS, unit="ms")
        processor = [(a.processor_ms, b.processor_ms) for a, b in pairs]
        yield of_pairs(f"{name}, in processor time of the API server", processor, sides, unit="ms")


@contextmanager
def _cluster(folder: Path) -> Iterator[_Cluster]:
    settings = parse(webhook())
    with start(folder / "simulator") as control_plane, connect(control_plane) as api:
        prepare(api, settings, "jetson-1")
        with deployment(folder / "server", control_plane, api, settings) as server:
            server.install()
            replica = server.start()
            eventually(lambda: _is_mutated(api))
            trusted = _take_away(api, server, replica.port)
            carriers = {"policy": partial(_policy, api), "webhook": partial(_webhook, api, trusted)}
            yield _Cluster(api, carriers, partial(processor_seconds, control_plane, "kube-apiserver"))


def _round(both: Sequence[_Cluster], carrier: str) -> dict[str, tuple[_Cost, _Cost]]:
    """By kind of pod, its cost with the carrier and without."""
    pods = {"matched": reservation_pod(), "other": _other_pod()}
    sides = {kind: (_Side(), _Side()) for kind in pods}
    for bearer, bare in (both, both[::-1]):
        with bearer.carriers[carrier]():
            for kind, pod in pods.items():
                _by_turns(tuple(zip((bearer, bare), sides[kind], strict=True)), pod)
    return {kind: (with_it.cost, without.cost) for kind, (with_it, without) in sides.items()}


def _by_turns(sides: Sequence[tuple[_Cluster, _Side]], pod: Json) -> None:
    before = [cluster.processor_seconds() for cluster, _ in sides]
    for number in range(PODS):
        for cluster, side in sides[:: 1 if number % 2 else -1]:
            begin = time.perf_counter()
            response = _create(cluster.api, pod)
            side.wall_ms.append((time.perf_counter() - begin) * 1000)
            response.raise_for_status()
    for (cluster, side), until_then in zip(sides, before, strict=True):
        side.processor_seconds += cluster.processor_seconds() - until_then


def _added(carrier: str, pairs: Sequence[tuple[_Cost, _Cost]]) -> Result:
    more = tuple(with_it.wall_ms - without.wall_ms for with_it, without in pairs)
    parts = {
        name: f"{show(statistics.median(cost.wall_ms for cost in costs))} ms"
        for name, costs in zip((carrier, "none"), zip(*pairs, strict=True), strict=True)
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
