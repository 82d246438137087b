"""`make bench-admission`: the admission server alone, and what each carrier adds to a pod's creation.

Everything is taken in one run on one machine: reviews by each JSON library, the server at 200 requests per second on
one core under each HTTP server that was compared, nonsense that it must answer, and pod creation on one real API server
with no carrier, with the policy and with the webhook; and what attacks from other addresses cost. The chart goes to
docs/admission.svg.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import httpx2
import psutil

from agents.admission import review
from benchmarks.admission_chart import draw
from benchmarks.admission_load import Latency, load
from benchmarks.admission_servers import VARIANTS
from config.reservation import Privilege
from manifests import reservation
from testbed.admission.attacks import ATTACKS, attack
from testbed.admission.deployment import deployment, make, prepare, remove
from testbed.admission.fuzz import SEED, fuzz
from testbed.admission.objects import body, reservation_pod
from testbed.inventory import connect
from testbed.simulated import start
from testbed.stacks import ROOT, jetson, parse, webhook
from testbed.waiting import eventually

PER_SECOND = 200
SECONDS = 15.0
GOAL_P99_MS = 10.0
GOAL_RSS_MIB = 80.0
FUZZ_CASES = 100_000
ATTACKED_PER_SECOND = 20
ATTACKED_SECONDS = 10.0
PODS = 400
CHART = ROOT / "docs" / "admission.svg"
_PATH = f"/api/v1/namespaces/{reservation.NAMESPACE}/pods"


def main() -> None:
    """Measure, print and draw."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _json_libraries()
        for variant in VARIANTS:
            _server(variant)
        _attacks()
        _fuzz()
        created = _creation(folder)
    CHART.parent.mkdir(exist_ok=True)
    CHART.write_text(draw(created), encoding="utf-8")
    _say(f"chart: {CHART.relative_to(ROOT)}")


def _json_libraries() -> None:
    """A whole review in and out by each library; the standard library's does none of msgspec's checks."""
    data = body(reservation_pod())

    def standard() -> None:
        request = json.loads(data)["request"]
        json.dumps({"response": {"uid": request["uid"], "allowed": True}}).encode()

    def ours() -> None:
        request = review.read(data)
        review.write(request, review.Answer(allowed=True))

    for name, work in (("json", standard), ("msgspec, checked", ours)):
        _say(f"review in and out by {name}: {_microseconds(work):.1f} us of {len(data)} bytes")


def _microseconds(work: Callable[[], None]) -> float:
    rounds = 5_000
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(rounds):
            work()
        best = min(best, time.perf_counter() - begin)
    return best / rounds * 1e6


def _server(variant: str) -> None:
    command = [sys.executable, "-m", "benchmarks.admission_servers", variant]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        line = process.stdout.readline()
        if not line:
            _say(f"{variant}: not measured, since it is not installed")
            return
        ports = json.loads(line)
        begin = _cpu_seconds(process.pid)
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cores - {min(cores)} or cores)
        latency = asyncio.run(
            load(ports["port"], ports["authorities"], body(reservation_pod()), per_second=PER_SECOND, seconds=SECONDS)
        )
        os.sched_setaffinity(0, cores)
        cpu_ms = (_cpu_seconds(process.pid) - begin) * 1000 / (PER_SECOND * SECONDS)
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        process.stdin.close()
    [peak] = re.findall(r"VmHWM:\s+(\d+) kB", status)
    _say(
        f"{variant}: p50 {latency.p50:.1f} ms, p99 {latency.p99:.1f} ms (goal below {GOAL_P99_MS:g}) at {PER_SECOND} "
        f"requests/s on one core, {cpu_ms:.2f} ms of CPU time each; {latency.failures} failures of {latency.count}; "
        f"peak memory {int(peak) / 1024:.0f} MiB (goal below {GOAL_RSS_MIB:g}); load of the machine "
        f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )


def _attacks() -> None:
    """What each attack of two pods costs an API server, and the server's memory."""
    alone: Latency | None = None
    for kind in (None, *ATTACKS):
        command = [sys.executable, "-m", "benchmarks.admission_servers", VARIANTS[0]]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            ports = json.loads(process.stdout.readline())
            with nullcontext() if kind is None else attack(kind, ports["port"], seconds=2 * ATTACKED_SECONDS):
                latency = asyncio.run(
                    load(
                        ports["port"],
                        ports["authorities"],
                        body(reservation_pod()),
                        per_second=ATTACKED_PER_SECOND,
                        seconds=ATTACKED_SECONDS,
                    )
                )
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
            process.stdin.close()
        alone = alone or latency
        [peak] = re.findall(r"VmHWM:\s+(\d+) kB", status)
        _say(
            f"attack, {kind or 'none'}: p50 {latency.p50:.1f} ms ({latency.p50 / alone.p50:.1f} x), p99 "
            f"{latency.p99:.1f} ms ({latency.p99 / alone.p99:.1f} x), {latency.failures} failures of "
            f"{ATTACKED_PER_SECOND * ATTACKED_SECONDS:g}, peak memory {int(peak) / 1024:.0f} MiB"
        )


def _cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def _fuzz() -> None:
    """Each case goes to a real server over a connection of its own."""
    begin = time.perf_counter()
    result = fuzz(FUZZ_CASES)
    counts = ", ".join(f"{count} {name}" for name, count in sorted(result.counts.items()))
    seconds = time.perf_counter() - begin
    _say(f"fuzz: {FUZZ_CASES} cases (seed {SEED}) in {seconds:.0f} s: {counts}; {len(result.defects)} defects")
    for defect in result.defects[:10]:
        _say(defect)


def _creation(folder: Path) -> dict[str, Latency]:
    settings = parse(webhook())
    measured = {}
    with start(folder / "simulator") as control_plane, connect(control_plane) as api:
        prepare(api, settings, "jetson-1")
        _create(api, 50)
        measured["none"] = _create(api, PODS)
        # By the webhook's settings there is no policy.
        by_policy = parse(jetson())
        policy = [
            reservation.overrides_policy(by_policy, Privilege.PRIVILEGED),
            reservation.overrides_binding(by_policy, Privilege.PRIVILEGED),
        ]
        for manifest in policy:
            make(api, manifest)
        eventually(lambda: _is_mutated(api))
        measured["policy"] = _create(api, PODS)
        for manifest in reversed(policy):
            remove(api, manifest)
        eventually(lambda: not _is_mutated(api))
        with deployment(folder / "server", control_plane, api, settings) as server:
            server.install()
            replica = server.start()
            eventually(lambda: _is_mutated(api))
            measured["webhook"] = _create(api, PODS)
            status = Path(f"/proc/{replica.process.pid}/status").read_text(encoding="ascii")
    [peak] = re.findall(r"VmHWM:\s+(\d+) kB", status)
    for name, latency in measured.items():
        _say(
            f"pod creation, carrier {name}: p50 {latency.p50:.1f} ms, p99 {latency.p99:.1f} ms of {latency.count} pods"
        )
    _say(f"the whole server beside it: peak memory {int(peak) / 1024:.0f} MiB (goal below {GOAL_RSS_MIB:g})")
    return measured


def _create(api: httpx2.Client, count: int) -> Latency:
    times = []
    for number in range(count):
        pod = reservation_pod()
        pod["metadata"]["name"] = f"pod-{number}"
        begin = time.perf_counter()
        response = api.post(_PATH, json=pod)
        times.append((time.perf_counter() - begin) * 1000)
        assert response.status_code == httpx2.codes.CREATED, response.text
    api.delete(_PATH, params={"gracePeriodSeconds": "0"})
    eventually(lambda: not api.get(_PATH).json()["items"])
    return Latency.of(times)


def _is_mutated(api: httpx2.Client) -> bool:
    response = api.post(_PATH, json=reservation_pod(), params={"dryRun": "All"})
    if response.status_code != httpx2.codes.CREATED:
        return False
    [container] = response.json()["spec"]["containers"]
    return container["securityContext"].get("privileged") is True


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
