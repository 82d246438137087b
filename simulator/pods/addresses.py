"""Answers the calls that `launcher` holds: a program gets the pod's own address, files and name.

A server on every address, or on loopback, gets the pod's address instead. Who connects to such a server from the same
process, as controller-runtime's health check does, is led there too. A file below a mount of the container is looked
for in the pod's folder, where the program runs.
"""

import fcntl
import ipaddress
import os
import random
import select
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress

from simulator.pods import launcher

_RECEIVE, _SEND = 0xC0502100, 0xC0182101
"""SECCOMP_IOCTL_NOTIF_RECV and _SEND (linux/seccomp.h)."""
_NOTIFICATION = struct.Struct("QII iIQ6Q")
_ANSWER = struct.Struct("QqiI")
_CONTINUE = 1
_NAMES = struct.Struct("65s" * 6)
"""struct new_utsname (linux/utsname.h): the second one is the machine's name."""
_V4, _V6 = struct.Struct("!HH4s"), struct.Struct("!HHI16s")
"""Family (in the machine's own order), port, address."""
_LONGEST_PATH = 4096
"""PATH_MAX (linux/limits.h)."""
_HERE = 0xFFFFFF9C
"""AT_FDCWD (linux/fcntl.h), as 32 bits."""
_LONGEST_NAME = 63
"""Of a container's host name, in characters: the kubelet cuts a longer pod's name."""
_POD_RANGE = ipaddress.ip_network("127.64.0.0/10")


def any_address() -> str:
    """A loopback address for one start of one pod: among four million, so that simulators need not agree on them."""
    return str(_POD_RANGE[random.randrange(1, _POD_RANGE.num_addresses - 1)])  # noqa: S311 (no secret)


class Answers:
    """Answers a process's calls.

    Attributes:
        address: the pod's.
        name: the pod's, as its programs' machine is called.
        mounts: the paths that are in the pod's folder.
    """

    def __init__(self, address: str, name: str = "pod", mounts: Sequence[str] = ()) -> None:
        self.address = address
        self.name = name
        self.mounts = tuple(mount.rstrip("/").encode() for mount in mounts)
        self._ports: set[int] = set()

    def answer(self, listener: int) -> bool:
        """Answer one call; tells whether there will be others.

        Raises:
            OSError: the process ended meanwhile.
        """
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        events = [event for _, event in poll.poll(0)]
        if any(event & select.POLLIN for event in events):
            self._answer(listener)
            return True
        # Nothing waits: either a signal has interrupted the call meanwhile, or all processes behind the filter ended.
        # Receiving would block then in older kernels.
        return not any(event & select.POLLHUP for event in events)

    def _answer(self, listener: int) -> None:
        received = bytearray(_NOTIFICATION.size)
        # A call that a signal interrupts is no longer there; the program makes it again.
        with suppress(FileNotFoundError):
            fcntl.ioctl(listener, _RECEIVE, received)
            number, thread, _, call, _, _, *arguments = _NOTIFICATION.unpack(received)
            then = _CONTINUE
            with suppress(OSError):
                then = self._change(thread, call, arguments)
            fcntl.ioctl(listener, _SEND, _ANSWER.pack(number, 0, 0, then))

    def _change(self, thread: int, call: int, arguments: Sequence[int]) -> int:
        """Write into the program's memory what it names or asks for; gives what the kernel shall do then."""
        calls = launcher.calls()
        if call == calls.old_stat:
            arguments = (_HERE, *arguments)
        first, pointer, length, *_ = arguments
        is_file = call in {calls.open, calls.stat, calls.old_stat}
        memory = os.open(f"/proc/{thread}/mem", os.O_RDWR)
        try:
            if call == calls.uname:
                os.pwrite(memory, self.names(), first)
                return 0
            named = os.pread(memory, _LONGEST_PATH if is_file else length, pointer)
            if is_file:
                named = named.partition(b"\0")[0]
                changed = self.own_file(named) if first & 0xFFFFFFFF == _HERE else named
            else:
                changed = self.moved(named, listens=call == calls.bind)
            if changed != named:
                os.pwrite(memory, changed, pointer)
        finally:
            os.close(memory)
        return _CONTINUE

    def names(self) -> bytes:
        """What `uname` tells: this machine's names, and the pod's as its own."""
        system = os.uname()
        fields = (system.sysname, self.name[:_LONGEST_NAME], system.release, system.version, system.machine, "(none)")
        return _NAMES.pack(*(field.encode() for field in fields))

    def own_file(self, path: bytes) -> bytes:
        """The same below the folder where the program runs, with its end, where a mount has it; else unchanged.

        A path grows no longer: it has room in the program for as much as it was.
        """
        if any(path == mount or path.startswith(mount + b"/") for mount in self.mounts):
            return path[1:] + b"\0"
        return path

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
            _, port, packed = _V4.unpack_from(sockaddr)
            if self._is_own(port, ipaddress.IPv4Address(packed), listens=listens):
                return sockaddr[:4] + own + sockaddr[_V4.size :]
        if family == socket.AF_INET6 and len(sockaddr) >= _V6.size:
            _, port, _, packed = _V6.unpack_from(sockaddr)
            host = ipaddress.IPv6Address(packed)
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
