"""Keeps one folder's processes running: reuse what lives, replace what died or would be started differently."""

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from simulator import processes, records
from simulator.errors import PortTakenError, SimulatorError
from simulator.layout import Layout
from simulator.programs import Command
from simulator.records import ProcessRecord, Records

PATIENCE_SECONDS = 120.0
"""Twenty times what a start takes on two cores: who waits longer waits for nothing."""

POLL_SECONDS = 0.05
_LOG_LINES = 12
_LAST_STACK = re.compile(r"\ngoroutine \d+ \[.*\]:\n(?:.+\n)*\Z")
"""Go's programs say why they panic before they print where they were."""
_PORT_TAKEN = "address already in use"
"""EADDRINUSE as Go's and Python's programs write it, on Linux and macOS."""
_RACE = "fatal error: concurrent map"
"""A race within a program, which then ends: kwok v0.8.0 does now and then where it starts beside objects that are there
already. Started again, it goes on. No report of it was found upstream."""

Report = Callable[[str], None]
"""Takes one line of progress."""


class Supervisor:
    """One command's view of the processes; the caller holds the folder's lock."""

    def __init__(self, layout: Layout, state: Records, report: Report) -> None:
        self._layout = layout
        self._state = state
        self._report = report
        self._commands: dict[str, Command] = {}
        self._started: set[str] = set()
        self._raced: set[str] = set()

    def stop(self, name: str) -> None:
        """Stop a process if it runs."""
        if recorded := self._state.processes.get(name):
            processes.stop(recorded.running)

    def stop_started(self) -> None:
        """Stop what this command has started, clients before servers; what it found running stays."""
        for name in [name for name in reversed(self._commands) if name in self._started]:
            self.stop(name)

    def ensure(self, command: Command) -> bool:
        """Have this command running; tells whether it had to be started.

        Raises:
            SimulatorError: the program can't be executed.
            OSError: the folder can't be written.
        """
        self._commands[command.name] = command
        recorded = self._state.processes.get(command.name)
        fingerprint = command.fingerprint()
        if recorded and recorded.fingerprint == fingerprint and processes.alive(recorded.running):
            return False
        if recorded:
            processes.stop(recorded.running)
        log = self._layout.log(command.name)
        with suppress(FileNotFoundError):
            log.replace(log.with_suffix(".previous.log"))
        try:
            running = processes.start(command.arguments, command.environment(self._layout), self._layout.sockets, log)
        except (FileNotFoundError, PermissionError) as error:
            if error.filename == str(log):
                raise
            raise SimulatorError(
                f"{command.arguments[0]} can't be executed: {error.strerror}. Make that file "
                "executable or remove it, then run the same command again: what is missing is obtained anew."
            ) from error
        self._state = self._state.with_process(
            command.name, ProcessRecord(pid=running.pid, started=running.started, fingerprint=fingerprint)
        )
        records.write(self._layout.records, self._state)
        self._started.add(command.name)
        return True

    def wait(self, name: str, ready: Callable[[], bool], what: str) -> None:
        """Wait until `ready` says so, and report `what` with the time that it took.

        Raises:
            PortTakenError: the process `name` died meanwhile, because another has its port.
            SimulatorError: it died otherwise, or did not get there in time; with the end of its log.
        """
        begin = time.monotonic()
        while not ready():
            self._revive(name)
            if time.monotonic() > begin + PATIENCE_SECONDS:
                raise SimulatorError(f"{what}: not reached in {PATIENCE_SECONDS:.0f} s. {self._end_of_log(name)}")
            time.sleep(POLL_SECONDS)
        self._report(f"{what} ({time.monotonic() - begin:.1f} s)")

    def verify(self) -> None:
        """Look at every process once more.

        Raises:
            SimulatorError: one has died since it was started.
        """
        for name in self._commands:
            self._revive(name)

    def _revive(self, name: str) -> None:
        """Start a process again that died while it was being reused: a killed one may take a moment to be gone.

        One that was started dies for a reason, and is started again, once, where that is a race within it.
        """
        if processes.alive(self._state.processes[name].running):
            return
        if name in self._started and name not in self._raced and _RACE in self._log(name):
            self._raced.add(name)
            self._report(f"{name} ended by a race within it: started again")
        elif name in self._started:
            end = self._end_of_log(name)
            failure = PortTakenError if _PORT_TAKEN in end else SimulatorError
            raise failure(f"{name} stopped right after its start. {end}")
        self.ensure(self._commands[name])

    def _log(self, name: str) -> str:
        log = self._layout.log(name)
        return log.read_text(errors="replace") if log.is_file() else ""

    def _end_of_log(self, name: str) -> str:
        lines = _LAST_STACK.sub("", self._log(name)).splitlines()[-_LOG_LINES:]
        shown = "".join(f"\n    {line[:300]}" for line in lines) or "\n    (nothing)"
        return (
            f"The end of its log {self._layout.log(name)}:{shown}\n"
            "What to do: read the lines above, then run the same command again. If it stays so, forget the "
            "simulator with `make reset`, then start anew."
        )


def stop_all(layout: Layout, state: Records | None, names: Sequence[str], report: Report) -> Records | None:
    """Stop the recorded processes, and unrecorded ones that work on this folder; returns what is left to record.

    Clients stop before servers: `names` is in the order of starting.
    """
    for name in reversed(names):
        recorded = state.processes.get(name) if state else None
        if recorded and processes.alive(recorded.running):
            processes.stop(recorded.running)
            report(f"{name} stopped")
    stop_leftovers(layout, None, names, report)
    return state.model_copy(update={"processes": {}}) if state else None


def stop_leftovers(layout: Layout, state: Records | None, names: Sequence[str], report: Report) -> None:
    """Stop processes on this folder that no record names: a start that was killed halfway leaves them."""
    pids = {record.pid for record in state.processes.values()} if state else set()
    for name in reversed(names):
        for leftover in processes.find(name, layout.folder):
            if leftover.pid not in pids:
                processes.stop(leftover)
                report(f"{name} (pid {leftover.pid}) stopped: an interrupted start had left it")
