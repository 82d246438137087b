"""Simulators that one module of tests has after the other."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import simulator
from cluster.access.binding import unbind
from simulator import processes, records
from simulator.layout import Layout
from testbed import store
from testbed.simulated import start
from testbed.store import Store

_LEASES, _EVENTS, _NODES = b"/registry/leases/", b"/registry/events/", b"/registry/minions/"
"""What a cluster writes at any time: who runs, what happened, the nodes' heartbeats."""
_LOOK_AGAIN_SECONDS = 0.3
_QUIET_LOOKS = 5
"""So many looks without a change, and a cluster counts as settled: on a busy machine controllers take a second."""
_LOOKS = 60

Content = Mapping[bytes, bytes]
"""Values by etcd's keys."""


@dataclass(frozen=True)
class _Simulator:
    """A running simulator as it was after its start."""

    plane: simulator.ControlPlane
    kubeconfig: bytes
    processes: Mapping[str, records.ProcessRecord]
    content: Content
    running: ExitStack

    def undo(self) -> bool:
        """Undo what was done since its start; tells whether that can be."""
        if _processes(self.plane) != self.processes or self.plane.kubeconfig.read_bytes() != self.kubeconfig:
            return False
        unbind(self.plane.kubeconfig)
        with _etcd(self.plane) as etcd:
            return _undo(etcd, self.content)


class ReusedSimulators:
    """Lends a simulator again and again, each time as it was after its start.

    A start costs as much processor time as to install a stack. What was done meanwhile is undone below the API server,
    whatever finalizers and webhooks there are; the server and the controllers see each object go, or be what it was.
    """

    def __init__(self, make_folder: Callable[[], Path]) -> None:
        """`make_folder` gives a new folder for each simulator."""
        self._make_folder = make_folder
        self._free: list[_Simulator] = []
        self._lent = 0

    @contextmanager
    def lent(self) -> Iterator[simulator.ControlPlane]:
        """The simulator; another one where it is lent already, or was left with another process than it began with."""
        made = self._free.pop() if self._free else self._start()
        self._lent += 1
        try:
            yield made.plane
        finally:
            self._lent -= 1
            # One is enough to keep, the last that is given back: each costs something while nobody uses it.
            if not self._lent and made.undo():
                self._free.append(made)
            else:
                made.running.close()

    def stop(self) -> None:
        """Stop the simulator that is kept, and delete its data."""
        while self._free:
            self._free.pop().running.close()

    def _start(self) -> _Simulator:
        with ExitStack() as running:
            plane = running.enter_context(start(self._make_folder() / "simulator"))
            with _etcd(plane) as etcd:
                content = _settled(etcd)
            return _Simulator(plane, plane.kubeconfig.read_bytes(), _processes(plane), content, running.pop_all())


def _etcd(plane: simulator.ControlPlane) -> AbstractContextManager[Store]:
    return store.opened(Layout.of(plane.folder).etcd_socket)


def _processes(plane: simulator.ControlPlane) -> Mapping[str, records.ProcessRecord]:
    """Those that are alive."""
    state = records.read(Layout.of(plane.folder).records)
    recorded = state.processes if state else {}
    return {name: record for name, record in recorded.items() if processes.alive(record.running)}


def _settled(etcd: Store) -> Content:
    """What the cluster has once it writes no more, or at the last look."""
    now, quiet = etcd.all(), 0
    for _ in range(_LOOKS):
        time.sleep(_LOOK_AGAIN_SECONDS)
        before, now = now, etcd.all()
        quiet = quiet + 1 if _of_rest(before) == _of_rest(now) else 0
        if quiet == _QUIET_LOOKS:
            break
    return now


def _undo(etcd: Store, content: Content) -> bool:
    """Write what is wanted again and again until nobody writes anything else; tells whether it came to that.

    Nodes come last: whoever gives them labels because of what is there would give them again. And they are looked at
    again: that a device plugin is gone may be noted after they were written.
    """
    quiet = 0
    for _ in range(_LOOKS):
        now = etcd.all()
        changed = _write(etcd, _of_rest(now), _of_rest(content)) or _write(
            etcd, _without_leases(now), _without_leases(content)
        )
        quiet = 0 if changed else quiet + 1
        if quiet == _QUIET_LOOKS:
            return True
        time.sleep(_LOOK_AGAIN_SECONDS)
    return False


def _write(etcd: Store, now: Content, content: Content) -> bool:
    """Make one the other; tells whether they differed."""
    for key in now.keys() - content.keys():
        etcd.delete(key)
    changed = [key for key, value in content.items() if now.get(key) != value]
    for key in changed:
        etcd.put(key, content[key])
    return bool(changed) or now.keys() != content.keys()


def _of_rest(content: Content) -> Content:
    return {key: value for key, value in content.items() if not key.startswith((_LEASES, _EVENTS, _NODES))}


def _without_leases(content: Content) -> Content:
    return {key: value for key, value in content.items() if not key.startswith(_LEASES)}
