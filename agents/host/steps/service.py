"""Restarting a container runtime, and knowing that it answers again."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agents.host.commands import Deadline
from agents.host.desired import DISTRIBUTIONS
from agents.host.errors import HostError
from agents.host.look import distribution, units
from agents.host.look.distribution import Mechanism

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agents.host.commands import Tools

_DOCKER_SOCKET = "/run/docker.sock"
_PAUSE_SECONDS = 0.5
_SECONDS = 10.0


@dataclass(frozen=True)
class Service:
    """A runtime that can be restarted; `name` is its unit, which the journal keeps."""

    name: str
    restart: tuple[str, ...]
    socket: str
    distribution: str | None

    def bring_up(self, tools: Tools, seconds: float) -> None:
        """Restart it and wait until it answers.

        Raises:
            HostError: The restart failed, or it does not answer in time; the message says what was seen last.
        """
        deadline = Deadline(tools.deadline.left(seconds))
        program = tools.need(self.restart[0], f"{self.name} is restarted with it; run the agent on the host itself.")
        remedy = f"Look at `journalctl -u {self.name} -n 50`."
        tools.check([program, *self.restart[1:]], remedy, seconds=deadline.left())
        while (trouble := self._trouble(tools, deadline)) is not None:
            if deadline.passed or tools.deadline.passed:
                raise HostError(f"{self.name} does not come up within {deadline.seconds:.0f} s: {trouble}.", remedy)
            time.sleep(_PAUSE_SECONDS)

    def _trouble(self, tools: Tools, deadline: Deadline) -> str | None:
        if not _answers(str(tools.root.path(self.socket))):
            return f"nobody answers on {self.socket}"
        if self.distribution is None:
            return None
        layout = distribution.layout(tools.root, self.distribution)
        ctr = layout.program(tools, "ctr")
        if ctr is None:
            return None
        # containerd itself runs on when its Kubernetes plugin can't load its configuration.
        address = str(tools.root.path(self.socket))
        try:
            listing = tools.run([ctr, "--address", address, "plugins", "ls"], seconds=deadline.left(_SECONDS))
        except HostError as error:
            return error.message.rstrip(".")
        if listing.code:
            return f"`ctr plugins ls` fails: {listing.trouble}"
        states = [line.split()[-1] for line in listing.output.splitlines() if line.split()[1:2] == ["cri"]]
        return None if "ok" in states else "its Kubernetes plugin (cri) has not loaded"


def for_layout(layout: distribution.Layout) -> Service:
    """The service behind a distribution's containerd."""
    return Service(layout.unit, layout.restart, layout.socket, layout.name)


def docker() -> Service:
    """Docker's service."""
    return Service("docker", ("systemctl", "restart", "docker"), _DOCKER_SOCKET, None)


def has_docker(tools: Tools) -> bool:
    """Whether there is a service to restart; a `docker` alone may be Docker's snap or Podman's stand-in."""
    return units.is_there(tools.root, "docker")


def by_name(tools: Tools, name: str) -> Service:
    """The service that the journal names.

    Raises:
        HostError: There is none of that name on this host any more.
    """
    if name == "docker":
        return docker()
    for kind in DISTRIBUTIONS:
        layout = distribution.layout(tools.root, kind)
        if layout.unit == name:
            return for_layout(layout)
        # The unit of k3s and RKE2 may have become an agent's, or a server's, since.
        if layout.mechanism is Mechanism.OWN and name.startswith(kind):
            return Service(name, ("systemctl", "restart", name), layout.socket, kind)
    raise HostError(f"The journal names the service {name!r}, which is not known.", "Restart the runtime by hand.")


def is_gone(tools: Tools, name: str) -> bool:
    """Whether what is behind a service was removed or masked since, or never was there: there is nothing to restart."""
    if name == "docker":
        return not has_docker(tools)
    service = by_name(tools, name)
    layout = distribution.layout(tools.root, service.distribution or "kubeadm")
    if service.restart[0] == "systemctl" and not units.is_there(tools.root, name):
        return True
    return layout.mechanism is not Mechanism.OWN and layout.program(tools, "containerd") is None


def runs_without(tools: Tools, socket_path: str, files: Iterable[str]) -> bool:
    """Whether a runtime was started before one of its files was written, so that it does not know yet what is in there.

    By their ages: a board without a clock of its own starts in another year. False where nobody can tell.
    """
    process = _listener(str(tools.root.path(socket_path)))
    started = _age(process) if process else None
    return started is not None and any(_written(tools.root.path(file)) < started for file in files)


def _age(process: int) -> float | None:
    """Since when a process runs, in seconds; None where it can't be told (proc(5): starttime)."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        uptime = Path("/proc/uptime").read_text(encoding="utf-8").split()[0]
        return float(uptime) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def _written(path: Path) -> float:
    """Since when a file is as it is, in seconds; without end where there is none, or where nobody can tell.

    A file of tomorrow is one of a clock that was ahead, or this clock is behind: a board without a clock of its own and
    without network time. By its age, a runtime would never have been started since.
    """
    try:
        age = time.time() - path.stat().st_mtime
    except OSError:
        return math.inf
    return age if age >= 0 else math.inf


def _answers(path: str) -> bool:
    return _listener(path) is not None


def _listener(path: str) -> int | None:
    """The process that listens on a socket, 0 where the kernel does not tell which; None where nobody answers."""
    # A socket's path may be longer than an address holds: go through its open folder.
    folder, _, name = path.rpartition("/")
    with contextlib.ExitStack() as stack:
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.settimeout(_SECONDS)
            client.connect(f"/proc/self/fd/{descriptor}/{name}")
            peer = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            return None
    return int(struct.unpack("3i", peer)[0])
