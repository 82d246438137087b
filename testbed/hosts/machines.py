"""Machines behind an sshd, prepared as hosts: what the agent reads of them, and the one tool that it calls."""

import hashlib
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from testbed.hosts.sshd import Machine, Sshd

JETSON_MEMORY_MIB = 62841
"""MemTotal of the Jetson below."""
TOOLKIT_CONFIG = "/etc/nvidia-container-runtime/config.toml"

_ADDRESSES = (f"127.0.{third}.{fourth}" for third in range(1, 255) for fourth in range(1, 255))
_CSV = "/etc/nvidia-container-runtime/host-files-for-container.d"
_EVERY_HOST = {
    "/usr/bin/nvidia-container-runtime": "#!/bin/sh\n",
    TOOLKIT_CONFIG: '[nvidia-container-cli]\nload-kmods = true\n\n[nvidia-container-runtime]\nmode = "auto"\n',
    "/etc/systemd/system/k3s.service": "[Service]\n",
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml": (
        "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.'nvidia']\n"
        'runtime_type = "io.containerd.runc.v2"\n'
    ),
}
_JETSON = {
    "/proc/sys/kernel/arch": "aarch64\n",
    "/proc/meminfo": "MemTotal:       64349496 kB\n",
    "/proc/device-tree/compatible": "nvidia,p3737-0000\0nvidia,tegra234\0",
    "/proc/device-tree/model": "NVIDIA Jetson AGX Orin Developer Kit\0",
    "/etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 1, BOARD: generic\n",
    "/sys/devices/soc0/family": "Tegra\n",
    "/usr/lib/aarch64-linux-gnu/nvidia/libnvidia-ml.so.1": "\x7fELF",
    "/usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1": "\x7fELF",
    f"{_CSV}/devices.csv": "dev, /dev/nvmap\n",
    f"{_CSV}/drivers.csv": "lib, /usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1\n",
}
_X86 = {
    "/proc/sys/kernel/arch": "x86_64\n",
    "/proc/meminfo": "MemTotal:       65663656 kB\n",
    "/sys/class/dmi/id/product_name": "ProLiant DL380\n",
    "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15\n",
    "/proc/driver/nvidia/gpus/0000:01:00.0/information": (
        "Model: \t\t NVIDIA RTX A6000\nGPU UUID: \t GPU-11111111-2222-3333-4444-555555555555\n"
    ),
    "/sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
    "/sys/bus/pci/devices/0000:01:00.0/class": "0x030000\n",
}
_NVIDIA_CTK = """#!/bin/sh
# Changes the mode as nvidia-ctk 1.20.0 does: one line.
case "$1" in
    --version) echo "NVIDIA Container Toolkit CLI version 1.20.0" ;;
    config) sed -i "s/^mode = .*/mode = \\"${5##*=}\\"/" "$3" ;;
    *) exit 64 ;;
esac
"""


def jetson(server: Sshd) -> Machine:
    """A Jetson Orin with JetPack 6 and k3s, which has found the nvidia runtime."""
    return prepared(server.machine(next(_ADDRESSES)), _JETSON)


def jetson_at(server: Sshd, address: str) -> Machine:
    """The same at an address of the server's own network namespace."""
    return prepared(server.machine(address), _JETSON)


def local_jetson(folder: Path) -> Machine:
    """The same without a server."""
    return prepared(Machine.make(folder), _JETSON)


def x86(server: Sshd) -> Machine:
    """An x86 machine with one discrete GPU and k3s."""
    return prepared(server.machine(next(_ADDRESSES)), _X86)


def chatty(server: Sshd) -> Machine:
    """A Jetson whose login prints a greeting before everything else."""
    machine = jetson(server)
    launched = '#!/bin/sh\necho "Welcome to this machine"\nexec {timeout} "$@"\n'
    machine.program("timeout", launched.format(timeout=shutil.which("timeout")))
    return machine


def prepared(machine: Machine, board: Mapping[str, str]) -> Machine:
    """Fill a machine's root and give it nvidia-ctk."""
    for path, text in {**_EVERY_HOST, **board}.items():
        target = machine.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    machine.path("/run").mkdir()
    machine.program("nvidia-ctk", _NVIDIA_CTK)
    return machine


def content(root: Path) -> dict[str, str]:
    """Every file below a root with its mode and its content's hash, but /run, which no boot leaves."""
    return {
        str(path.relative_to(root)): f"{path.stat().st_mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.relative_to(root).parts[0] != "run"
    }


_SUDO = """#!/bin/sh
# A sudo whose login is no administrator until the right password is said; it remembers that for every session, as with
# timestamp_type=global, and reads no password then.
forget= quiet=
while :; do
    case "$1" in
        -k) forget=1 ;;
        -n) quiet=1 ;;
        -S) ;;
        -p) shift ;;
        --version) echo "Sudo version 1.9.15p5"; exit ;;
        *) break ;;
    esac
    shift
done
[ -e {free} ] && exec "$@"
[ -e {remembered} ] && [ -z "$forget" ] && exec "$@"
if [ -n "$quiet" ]; then
    echo "sudo: a password is required" >&2
    exit 1
fi
IFS= read -r answer
[ "$answer" = {password} ] || {{ echo "sudo: 1 incorrect password attempt" >&2; exit 1; }}
: > {remembered}
exec "$@"
"""


def sudo(folder: Path, password: str) -> str:
    """A stand-in of sudo as a shell script; with a file `sudo-without-password` in the folder, it asks nothing."""
    free, remembered = (shlex.quote(str(folder / name)) for name in ("sudo-without-password", "sudo-remembers"))
    return _SUDO.format(free=free, remembered=remembered, password=shlex.quote(password))


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
    if free:
        (machine.folder / "sudo-without-password").touch()
    machine.program("sudo", sudo(machine.folder, password))
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


def hold(machine: Machine) -> Path:
    """Make `configure` wait on a machine as long as a file is there; `FILE.reached` says that it waits."""
    mark = machine.folder / "hold"
    mark.touch()
    machine.program("timeout", _HELD.format(mark=mark, timeout=shutil.which("timeout")))
    return mark
