"""A command at a terminal of its own, as a person has it: what is typed, what is shown, and what is left at its end."""

import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
CTRL_C = "\x03"
_PATIENCE_SECONDS = 120.0
_DYING_SECONDS = 5.0
# Makes the terminal that of the session, so that Ctrl-C reaches every process in front; who started the tests in the
# background of a shell had it ignored.
_TAKE = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.login_tty(0); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


class Terminal:
    """The terminal of one command.

    Attributes:
        process: the command.
        shown: all that came, with its control characters.
    """

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self._master = master
        self.process = process
        self.shown = ""

    @property
    def lines(self) -> list[str]:
        """What was shown, line by line, each line as it was drawn at last, without control characters."""
        drawn = (line.rstrip("\r").rpartition("\r")[2] for line in self.shown.split("\n"))
        return [_CONTROL.sub("", line) for line in drawn]

    def until(self, text: str) -> None:
        """Wait until a text is shown."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while text not in self.shown:
            assert self._read(deadline), f"ended, or said nothing, without {text!r}:\n{self.shown}"

    def asked(self, question: str) -> None:
        """Wait until a question is shown and the command sleeps until it is answered.

        Between the two Python has looked for signals for the last time and does not read yet: a Ctrl-C right then is
        taken only with the next key. A person presses it again.
        """
        self.until(question)
        command = psutil.Process(self.process.pid)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while command.status() != psutil.STATUS_SLEEPING:
            assert time.monotonic() < deadline, f"never waited for an answer:\n{self.shown}"

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._master, keys.encode())

    def status(self) -> int:
        """Wait for the command's end, and give its exit status; that of a signal is 128 and its number."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self._read(deadline):
            pass
        code = self.process.wait(_PATIENCE_SECONDS)
        return 128 - code if code < 0 else code

    def left(self) -> list[str]:
        """Processes of this terminal that still run and don't end by themselves soon, as command lines."""
        deadline = time.monotonic() + _DYING_SECONDS
        while (there := self._processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return there

    def _processes(self) -> list[str]:
        lines = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                if os.getsid(process.pid) == self.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    lines.append(" ".join(process.cmdline()))
        return lines

    def _read(self, deadline: float) -> bool:
        """Take what comes next; false where nothing can come any more."""
        while not select.select([self._master], [], [], 0.1)[0]:
            if time.monotonic() > deadline:
                return False
        try:
            some = os.read(self._master, 1 << 16)
        except OSError:
            # Linux says so once nobody has the terminal open.
            return False
        self.shown += some.decode(errors="replace")
        return bool(some)


@contextmanager
def terminal(
    command: Sequence[str | Path],
    environment: Mapping[str, str],
    *,
    folder: Path,
    columns: int = 100,
) -> Iterator[Terminal]:
    """Run a command at a terminal; whatever of it still runs at the block's end is killed.

    Args:
        command: its words.
        environment: all of its variables; TERM is xterm-256color unless they say it.
        folder: where it runs.
        columns: how wide the terminal is.
    """
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, columns))
    process = subprocess.Popen(
        [sys.executable, "-c", _TAKE, *map(str, command)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=folder,
        env={"TERM": "xterm-256color", **environment},
    )
    os.close(slave)
    try:
        yield Terminal(master, process)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()
        os.close(master)
