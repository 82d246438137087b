"""Answers the calls of `bind` that `launcher` holds: a server on every address, or on loopback, gets the pod's own."""

import fcntl
import ipaddress
import os
import random
import select
import socket
import struct
from contextlib import suppress

_RECEIVE, _SEND = 0xC0502100, 0xC0182101
"""SECCOMP_IOCTL_NOTIF_RECV and _SEND (linux/seccomp.h)."""
_NOTIFICATION = struct.Struct("QII iIQ6Q")
_ANSWER = struct.Struct("QqiI")
_CONTINUE = 1
_V4, _V6 = struct.Struct("=H2s4s"), struct.Struct("=H2sI16s")
_POD_RANGE = ipaddress.ip_network("127.64.0.0/10")


def any_address() -> str:
    """A loopback address for one start of one pod: among four million, so that simulators need not agree on them."""
    return str(_POD_RANGE[random.randrange(1, _POD_RANGE.num_addresses - 1)])  # noqa: S311 (no secret)


def answer(listener: int, address: str) -> bool:
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
    number, thread, _, _, _, _, _, pointer, length, *_ = _NOTIFICATION.unpack(received)
    with suppress(OSError):
        memory = os.open(f"/proc/{thread}/mem", os.O_RDWR)
        try:
            os.pwrite(memory, moved(os.pread(memory, length, pointer), address), pointer)
        finally:
            os.close(memory)
    fcntl.ioctl(listener, _SEND, _ANSWER.pack(number, 0, 0, _CONTINUE))
    return True


def moved(sockaddr: bytes, address: str) -> bytes:
    """The same port at the pod's address; unchanged where the kernel is to choose the port, or the address is special.

    An IPv6 socket for every address takes IPv4 too, written as IPv6: Go opens such ones.
    """
    own = ipaddress.ip_address(address).packed
    family = int.from_bytes(sockaddr[:2], "little")
    if family == socket.AF_INET and len(sockaddr) >= _V4.size:
        _, port, there = _V4.unpack_from(sockaddr)
        if port != b"\0\0" and _is_shared(ipaddress.IPv4Address(there)):
            return _V4.pack(family, port, own) + sockaddr[_V4.size :]
    if family == socket.AF_INET6 and len(sockaddr) >= _V6.size:
        _, port, flow, there = _V6.unpack_from(sockaddr)
        host = ipaddress.IPv6Address(there)
        if port != b"\0\0" and _is_shared(host.ipv4_mapped or host):
            return _V6.pack(family, port, flow, b"\0" * 10 + b"\xff\xff" + own) + sockaddr[_V6.size :]
    return sockaddr


def _is_shared(host: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return host.is_unspecified or host.is_loopback
