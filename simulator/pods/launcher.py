"""Becomes a pod's program: dies with its parent, which chooses the addresses, the files and the name that it gets.

Run as a script with the standard library alone: `launcher.py SOCKET PARENT PROGRAM [ARGUMENT...]`. SOCKET is the number
of an inherited socket by which the parent gets the filter's listener.

Two of KAI's programs open ports that no flag of theirs moves (v0.17.0: 9443 for webhooks, 8080 for metrics), and two
simulators on one machine would share every port. In a cluster, pods have addresses. Here a filter (seccomp) holds each
call that names an address or a file until the parent has written the pod's own into it, and the one that asks for the
machine's name until the parent has answered with the pod's.
"""

import array
import ctypes
import os
import platform
import signal
import socket
import struct
import sys
from typing import NamedTuple

# linux/prctl.h, linux/seccomp.h, linux/filter.h, linux/audit.h
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_SET_MODE_FILTER, _GET_ACTION_AVAILABLE, _NEW_LISTENER = 1, 2, 1 << 3
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06


class Calls(NamedTuple):
    """The numbers of the calls that are held.

    All but `uname` and `old_stat` have what they name as their second argument. `old_stat` is what a program built for
    a glibc before 2.33 asks on x86-64, as uv's Python is; other machines have none.
    """

    bind: int
    connect: int
    open: int
    stat: int
    uname: int
    old_stat: int


_NONE = 0xFFFFFFFF
"""The number of no call."""
_MACHINES = {
    "x86_64": (0xC000003E, 317, Calls(bind=49, connect=42, open=257, stat=262, uname=63, old_stat=4)),
    "aarch64": (0xC00000B7, 277, Calls(bind=200, connect=203, open=56, stat=79, uname=160, old_stat=_NONE)),
}
"""Architecture, the number of the call `seccomp` there, and those of `bind`, `connect`, `openat`, `newfstatat`,
`uname` and `stat`."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def unavailable() -> str | None:
    """Why no program can be run like this here, None where it can."""
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        return f"they need Linux on {' or '.join(_MACHINES)}, this is {platform.system()} on {platform.machine()}"
    action = ctypes.c_uint32(_NOTIFY)
    _, seccomp, _ = _MACHINES[platform.machine()]
    if ctypes.CDLL(None, use_errno=True).syscall(seccomp, _GET_ACTION_AVAILABLE, 0, ctypes.byref(action)) != 0:
        return "this kernel has no seccomp notification, which gives each pod its address (Linux 5.5 has it)"
    return None


def calls() -> Calls:
    """What is held on this machine."""
    return _MACHINES[platform.machine()][2]


def _called(name: str, answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        sys.exit(f"the simulator can't start this program: {name}: {os.strerror(number)}")
    return answer


def _listener() -> int:
    """The descriptor at which each held call of this process and its children waits for an answer."""
    architecture, seccomp, held = _MACHINES[platform.machine()]
    instructions = b"".join(
        struct.pack("HBBI", *instruction)
        for instruction in (
            (_LOAD, 0, 0, 4),
            (_JUMP_IF_EQUAL, 0, 1 + len(held), architecture),
            (_LOAD, 0, 0, 0),
            # How many instructions are left before the last one.
            *((_JUMP_IF_EQUAL, len(held) - place, 0, call) for place, call in enumerate(held)),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _NOTIFY),
        )
    )
    libc = ctypes.CDLL(None, use_errno=True)
    _called("prctl", libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    program = _Program(len(instructions) // 8, instructions)
    return _called("seccomp", libc.syscall(seccomp, _SET_MODE_FILTER, _NEW_LISTENER, ctypes.byref(program)))


def main() -> None:
    """Become the program."""
    number, parent, *command = sys.argv[1:]
    _called("prctl", ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL))
    if os.getppid() != int(parent):
        sys.exit("the simulator died while it started this program")
    with socket.socket(fileno=int(number)) as to_parent:
        descriptors = array.array("i", [_listener()])
        to_parent.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
    try:
        os.execv(command[0], command)  # noqa: S606 (that is what this is for)
    except OSError as error:
        sys.exit(f"{command[0]} can't be executed: {error.strerror}")


if __name__ == "__main__":
    main()
