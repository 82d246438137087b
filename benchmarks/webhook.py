"""The admission server over the simplest Flask server doing the same: reviews per second of a processor.

Both have one core and get the same reviews of a reservation pod over TLS, from as many clients, one after the other,
give the same answers, and write the log that they write by default, a line per review.
What counts is the processor time of the server per review: it is what one core can do in a second, and hardly changes
with what else runs on the machine. Latency stands beside it.
"""

import asyncio
import json
import os
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import aiohttp
import psutil

from benchmarks.admission_servers import NAME, VARIANTS
from benchmarks.result import Result, of_pairs, rounds, show, tell
from testbed.admission.objects import body, reservation_pod
from testbed.stacks import ROOT

GOAL = 10.0
CLIENTS = 4
REVIEWS = rounds(2000, 200)
OURS = ("benchmarks.admission_servers", VARIANTS[0], "log")
FLASK = ("benchmarks.flask_server",)


@dataclass(frozen=True)
class _Server:
    """One that listens.

    Attributes:
        process: its process.
        port: where it listens.
        authorities: who issued its certificate.
    """

    process: psutil.Process
    port: int
    authorities: str

    def processor_seconds(self) -> float:
        """Its processor time until now."""
        times = self.process.cpu_times()
        return times.user + times.system


@dataclass(frozen=True)
class _Cost:
    """Of one review.

    Attributes:
        processor_ms: of the server.
        wall_ms: until its answer, at the median.
    """

    processor_ms: float
    wall_ms: float


def results() -> Iterator[Result]:
    """Measure both, round by round."""
    with _serving(OURS) as ours, _serving(FLASK) as flask:
        for server in (ours, flask):
            asyncio.run(_ask(server, 50))
        pairs = [(_cost(flask), _cost(ours)) for _ in range(rounds(5, 2))]
    sides = ("Flask", "ours")
    name = "Reviews per second of a processor: ours over the simplest Flask server"
    processor = [(theirs.processor_ms, our.processor_ms) for theirs, our in pairs]
    yield of_pairs(name, processor, sides, goal=GOAL, at_least=True, unit="ms each")
    latency = [(theirs.wall_ms, our.wall_ms) for theirs, our in pairs]
    yield of_pairs(f"Latency of the simplest Flask server over ours, {CLIENTS} clients", latency, sides, unit="ms")
    yield Result(
        "Reviews per second on one core", "/s", tuple(1000 / our.processor_ms for _, our in pairs),
        parts={"Flask": f"{show(1000 / statistics.median(theirs.processor_ms for theirs, _ in pairs))} /s"},
    )  # fmt: skip


@contextmanager
def _serving(module: tuple[str, ...]) -> Iterator[_Server]:
    command = [sys.executable, "-m", *module]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT
    ) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            if not line:
                sys.exit(f"{' '.join(module)} did not start")
            announcement = json.loads(line)
            yield _Server(psutil.Process(process.pid), announcement["port"], announcement["authorities"])
        finally:
            process.terminate()


def _cost(server: _Server) -> _Cost:
    begin = server.processor_seconds()
    times = asyncio.run(_ask(server, REVIEWS))
    return _Cost((server.processor_seconds() - begin) * 1000 / REVIEWS, statistics.median(times))


async def _ask(server: _Server, count: int) -> list[float]:
    """Milliseconds of each review; exits where one is not answered."""
    tls = ssl.create_default_context(cadata=server.authorities)
    review = body(reservation_pod())
    times: list[float] = []
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores - {min(cores)} or cores)

    async def client(session: aiohttp.ClientSession) -> None:
        for _ in range(count // CLIENTS):
            begin = time.perf_counter()
            async with session.post(
                f"https://127.0.0.1:{server.port}/mutate/reservation",
                data=review,
                headers={"Content-Type": "application/json"},
                server_hostname=NAME,
            ) as response:
                answer = await response.json()
            times.append((time.perf_counter() - begin) * 1000)
            if not answer["response"].get("patch"):
                sys.exit(f"{server.process.cmdline()} answered without a patch: {answer}")

    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls, limit=CLIENTS)) as session:
            for attempt in range(100):
                try:
                    await asyncio.open_connection("127.0.0.1", server.port)
                    break
                except OSError:
                    await asyncio.sleep(0.1 * (attempt > 0))
            await asyncio.gather(*(client(session) for _ in range(CLIENTS)))
    finally:
        os.sched_setaffinity(0, cores)
    return times


if __name__ == "__main__":
    tell(results())
