"""Loopback ports: which are free, and who has one that is not."""

import itertools
import random
import socket
import time
from contextlib import suppress

import psutil

LOOPBACK = "127.0.0.1"
_CANDIDATES = range(20000, 30000)
"""Below what Linux (32768, net.ipv4.ip_local_port_range) and macOS (49152) give to outgoing connections, and below the
node ports of Kubernetes (30000)."""

RELEASE_SECONDS = 2.0
"""How long a killed process with many threads may take to give its ports back."""


def becomes_free(port: int, within_seconds: float = RELEASE_SECONDS) -> bool:
    """Whether a server may listen on this loopback port, now or after a moment."""
    deadline = time.monotonic() + within_seconds
    while not (free := is_free(port)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return free


def is_free(port: int) -> bool:
    """Whether a server may listen on this loopback port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def free_ports(count: int, *, besides: int | None = None) -> list[int]:
    """Different loopback ports that nobody listens on, and that no outgoing connection will be given.

    A port that the kernel hands out (`bind` to port 0) may become the near end of anybody's connection before the
    server that it was meant for listens: seconds, on a busy machine.

    Args:
        count: how many.
        besides: one that something else will have.
    """
    candidates = (port for port in random.sample(_CANDIDATES, len(_CANDIDATES)) if port != besides)
    return list(itertools.islice(filter(is_free, candidates), count))


def owner(port: int) -> str | None:
    """The process that listens on a port, as `name (pid 1234)`; None where the system does not tell."""
    with suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
            # Of another user's process there is no number, unless root asks.
            if listens and connection.pid is not None:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    return None
