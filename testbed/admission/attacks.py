"""What any pod of a cluster can do to the admission server, as a process of its own.

Its arguments are kind, port, seconds and addresses. Loopback alone, and bounded in number and time; each address is one
pod. It prints how often it connected, and how often it was answered.
"""

import asyncio
import json
import signal
import ssl
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import cast

from testbed.admission.objects import body, gvirtus_pod
from testbed.stacks import ROOT

PODS = ("127.0.0.2", "127.0.0.3")
CONNECTIONS = 400
"""Of all pods together; more than the server holds."""
_LINE = b"POST /mutate/gvirtus HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
_BOMB = zlib.compress(b"[" + b" " * (26 * 1024 * 1024), 9)
_GARBAGE = b'{"apiVersion": "x"}'
_REVIEW = body(gvirtus_pod())


@dataclass(frozen=True)
class Attack:
    """One kind of attack.

    Attributes:
        sends: on each connection, at once.
        tls: whether the handshake is made.
        again: whether it goes on after an answer on the same connection.
        reads: whether it reads answers.
    """

    sends: bytes
    tls: bool = True
    again: bool = False
    reads: bool = True


ATTACKS = {
    "connections that say nothing": Attack(b"", tls=False),
    "idle TLS connections": Attack(b""),
    "heads that never end": Attack(_LINE + b"X-A: b\r\n" * 20),
    "compressed bodies": Attack(
        _LINE + b"Content-Encoding: deflate\r\nContent-Length: %d\r\n\r\n" % len(_BOMB) + _BOMB, again=True
    ),
    "unfinished bodies": Attack(_LINE + b"Content-Length: %d\r\n\r\n" % (1024 * 1024) + b" " * (1024 * 1024 - 1)),
    "requests without a pause": Attack(_LINE + b"Content-Length: %d\r\n\r\n" % len(_GARBAGE) + _GARBAGE, again=True),
    "answers that nobody reads": Attack(
        (_LINE + b"Content-Length: %d\r\n\r\n" % len(_REVIEW) + _REVIEW) * 200, reads=False
    ),
}


@contextmanager
def attack(
    kind: str, port: int, *, seconds: float, pods: tuple[str, ...] = PODS
) -> Iterator[Callable[[], Counter[str]]]:
    """Attack a port for as long as the block lasts, or some seconds; what is yielded ends it and counts."""
    command = [sys.executable, "-m", "testbed.admission.attacks", kind, str(port), str(seconds), *pods]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"

        def over() -> Counter[str]:
            process.terminate()
            output, _ = process.communicate()
            return Counter(json.loads(output))

        try:
            yield over
        finally:
            process.kill()


def main(kind: str, port: str, seconds: str, *pods: str) -> None:
    """Attack, then print what was counted."""
    counts: Counter[str] = Counter()
    asyncio.run(_attack(ATTACKS[kind], int(port), float(seconds), pods, counts))
    sys.stdout.write(json.dumps(counts) + "\n")


async def _attack(kind: Attack, port: int, seconds: float, pods: tuple[str, ...], counts: Counter[str]) -> None:
    clients = asyncio.gather(
        *(_again_and_again(kind, port, pods[number % len(pods)], counts) for number in range(CONNECTIONS))
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, clients.cancel)
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    with suppress(TimeoutError, asyncio.CancelledError):
        async with asyncio.timeout(seconds):
            await clients


async def _again_and_again(kind: Attack, port: int, pod: str, counts: Counter[str]) -> None:
    tls = None
    if kind.tls:
        # Whoever attacks does not ask whom.
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    while True:
        writer: asyncio.StreamWriter | None = None
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, local_addr=(pod, 0))
            counts["connected"] += 1
            while True:
                writer.write(kind.sends)
                if not kind.reads:
                    cast("asyncio.Transport", writer.transport).pause_reading()
                    await asyncio.sleep(5)
                    break
                await writer.drain()
                head = await reader.readuntil(b"\r\n\r\n")
                counts[head.split(b" ", 2)[1].decode()] += 1
                if not kind.again:
                    await reader.read()
                    break
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            counts["closed"] += 1
        finally:
            if writer is not None:
                writer.transport.abort()
        await asyncio.sleep(0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])
