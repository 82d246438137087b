"""Requests at a fixed rate against one HTTPS server, whatever it answers meanwhile."""

import asyncio
import ssl
import statistics
import time
from dataclasses import dataclass

import aiohttp

from benchmarks.admission_servers import NAME


@dataclass(frozen=True)
class Latency:
    """Milliseconds.

    Attributes:
        p50: the median.
        p99: what one in a hundred exceeds.
        count: of how many.
        failures: answers that were not 200, or none.
    """

    p50: float
    p99: float
    count: int
    failures: int = 0

    @staticmethod
    def of(milliseconds: list[float], failures: int = 0) -> "Latency":
        """Summarise."""
        return Latency(
            statistics.median(milliseconds),
            statistics.quantiles(milliseconds, n=100)[98],
            len(milliseconds),
            failures,
        )


async def load(port: int, authorities: str, body: bytes, *, per_second: int, seconds: float) -> Latency:
    """Send reviews; each counts from the moment at which it was due, so that a stall is not hidden."""
    tls = ssl.create_default_context(cadata=authorities)
    times: list[float] = []
    failures = 0

    async def one(session: aiohttp.ClientSession, due: float) -> None:
        nonlocal failures
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        try:
            async with session.post(
                f"https://127.0.0.1:{port}/mutate/reservation",
                data=body,
                headers={"Content-Type": "application/json"},
                server_hostname=NAME,
            ) as response:
                await response.read()
                failures += response.status != 200  # noqa: PLR2004 - HTTP's OK
        except aiohttp.ClientError:
            failures += 1
        times.append((time.perf_counter() - due) * 1000)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls, limit=20)) as session:
        begin = time.perf_counter() + 0.1
        due = [begin + number / per_second for number in range(int(per_second * seconds))]
        await asyncio.gather(*(one(session, at) for at in due))
    warm = times[per_second:]
    return Latency.of(warm, failures)
