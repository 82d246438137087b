"""Machines behind an sshd, prepared as hosts."""

import hashlib
import json
from pathlib import Path

from tests.support.sshd import Machine, Sshd

PROBE = {
    "version": 1,
    "architecture": "aarch64",
    "python": "3.10.12",
    "platform": {"kind": "tegra", "generation": "orin", "model": "Orin", "jetpack": "6.2", "reasons": ["x"]},
    "driver": {"version": None, "library_folder": None, "reasons": []},
    "devices": [],
    "gpus": [{"index": 0, "uuid": None, "name": "Orin", "memory_mib": 30000, "memory_source": "meminfo"}],
    "nvml": {"ok": True, "reason": None},
    "memory": {"total_mib": 30000},
    "runtimes": [],
    "kubernetes": {"distribution": "k3s", "version": None, "reasons": []},
    "toolkit": {"version": None, "mode": None, "config": None},
    "user": {"uid": 0},
}

MEMORY_MIB = 30000
_ADDRESSES = iter(range(10, 250))


def jetson(server: Sshd) -> Machine:
    """A Jetson Orin with JetPack 6 and k3s."""
    machine = server.machine(f"127.0.0.{next(_ADDRESSES)}")
    (machine.root / "probe.json").write_text(json.dumps(PROBE))
    return machine


def x86(server: Sshd) -> Machine:
    """An x86 machine."""
    machine = server.machine(f"127.0.0.{next(_ADDRESSES)}")
    other = PROBE | {"architecture": "x86_64", "platform": PROBE["platform"] | {"kind": "x86", "model": None}}
    (machine.root / "probe.json").write_text(json.dumps(other))
    return machine


def content(root: Path) -> dict[str, str]:
    """Every file below a root with its mode and its content's hash."""
    return {
        str(path.relative_to(root)): f"{path.stat().st_mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


_SUDO = """#!/bin/sh
# A sudo whose login is no administrator until the right password is said.
[ "$1" = -n ] && {{ shift; [ -e {free} ] && exec env FAKE_UID=0 "$@"; echo "sudo: a password is required" >&2; exit 1; }}
[ "$1 $2" = "-S -p" ] || exit 64
shift 3
IFS= read -r said
[ "$said" = "{password}" ] || {{ echo "sudo: 1 incorrect password attempt" >&2; exit 1; }}
exec env FAKE_UID=0 "$@"
"""
_ID = """#!/bin/sh
[ "$1" = -u ] && { echo 1000; exit; }
exec /usr/bin/id "$@"
"""


def with_sudo(machine: Machine, password: str, *, free: bool = False) -> Machine:
    """Make the login an ordinary user who needs sudo, with or without its password.

    Args:
        machine: which.
        password: what sudo asks for.
        free: whether sudo lets this login through without one.
    """
    mark = machine.folder / "sudo-without-password"
    if free:
        mark.touch()
    machine.program("sudo", _SUDO.format(free=mark, password=password))
    machine.program("id", _ID)
    return machine


_HELD = """#!/bin/sh
# Waits where the test says so, then does its work.
if [ -e {mark} ]; then case "$*" in *" configure "*)
    touch {mark}.reached
    while [ -e {mark} ]; do sleep 0.1; done ;;
esac; fi
exec {timeout} "$@"
"""


def hold(machine: Machine, timeout: str) -> Path:
    """Make `configure` wait on a machine as long as a file is there; `FILE.reached` says that it waits."""
    mark = machine.folder / "hold"
    mark.touch()
    machine.program("timeout", _HELD.format(mark=mark, timeout=timeout))
    return mark
