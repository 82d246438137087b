"""Answers the calls that `launcher` holds: a server on every address, or on loopback, gets the pod's own instead.

Who connects to such a server from the same process, as controller-runtime's health check does, is led there too.
"""

import fcntl
import ipaddress
import os
import random
import select
import socket
import struct
import sys
from contextlib import suppress

from simulator.pods import launcher

_RECEIVE, _SEND = 0xC0502100, 0xC0182101
"""SECCOMP_IOCTL_NOTIF_RECV and _SEND (linux/seccomp.h)."""
_NOTIFICATION = struct.Struct("QII iIQ6Q")
_ANSWER = struct.Struct("QqiI")
_CONTINUE = 1
_V4, _V6 = struct.Struct("!HH4s"), struct.Struct("!HHI16s")
"""Family (in the machine's own order), port, address."""
_POD_RANGE = ipaddress.ip_network("127.64.0.0/10")


def any_address() -> str:
    """A loopback address for one start of one pod: among four million, so that simulators need not agree on them."""
    return str(_POD_RANGE[random.randrange(1, _POD_RANGE.num_addresses - 1)])  # noqa: S311 (no secret)


class Answers:
    """Answers a process's calls.

    Attributes:
        address: the pod's.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._ports: set[int] = set()

    def answer(self, listener: int) -> bool:
        """Answer one call; tells whether there will be others.

        Raises:
            OSError: the process ended meanwhile.
        """
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        # Where all processes behind a filter have ended, receiving would block in older kernels.
        if not any(event & select.POLLIN for _, event in poll.poll(0)):
            return False
        received = bytearray(_NOTIFICATION.size)
        fcntl.ioctl(listener, _RECEIVE, received)
        number, thread, _, call, _, _, _, pointer, length, *_ = _NOTIFICATION.unpack(received)
        with suppress(OSError):
            memory = os.open(f"/proc/{thread}/mem", os.O_RDWR)
            try:
                said = os.pread(memory, length, pointer)
                if (moved := self.moved(said, listens=call == launcher.bind_number())) != said:
                    os.pwrite(memory, moved, pointer)
            finally:
                os.close(memory)
        fcntl.ioctl(listener, _SEND, _ANSWER.pack(number, 0, 0, _CONTINUE))
        return True

    def moved(self, sockaddr: bytes, *, listens: bool) -> bytes:
        """The same port at the pod's address, where it is the pod's own port; anything else unchanged.

        An IPv6 socket for every address takes IPv4 too, written as IPv6: Go opens such ones.

        Args:
            sockaddr: as the program gave it.
            listens: whether it opens the port, or connects to it. Of what is on loopback only the ports that the
                program opened are its own: the API server is there too.
        """
        own = ipaddress.ip_address(self.address).packed
        family = int.from_bytes(sockaddr[:2], sys.byteorder)
        if family == socket.AF_INET and len(sockaddr) >= _V4.size:
            _, port, there = _V4.unpack_from(sockaddr)
            if self._is_own(port, ipaddress.IPv4Address(there), listens=listens):
                return sockaddr[:4] + own + sockaddr[_V4.size :]
        if family == socket.AF_INET6 and len(sockaddr) >= _V6.size:
            _, port, _, there = _V6.unpack_from(sockaddr)
            host = ipaddress.IPv6Address(there)
            if self._is_own(port, host.ipv4_mapped or host, listens=listens):
                return sockaddr[:8] + b"\0" * 10 + b"\xff\xff" + own + sockaddr[_V6.size :]
        return sockaddr

    def _is_own(self, port: int, host: ipaddress.IPv4Address | ipaddress.IPv6Address, *, listens: bool) -> bool:
        if not (host.is_unspecified or host.is_loopback):
            return False
        # A server at port 0 is given one by the kernel, which nobody else has.
        if listens and port:
            self._ports.add(port)
        return port in self._ports
