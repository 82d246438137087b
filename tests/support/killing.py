"""Runs the host agent and kills it, as a power cut would, right before its Nth act on the prepared root.

An act is whatever changes the disk there, and each restart: opening for writing, write, fsync, rename, unlink, mkdir,
rmdir. The real functions of `os` and `subprocess` are wrapped in this process alone; the agent knows nothing of it.
`python -m tests.support.killing N ROOT ACTS -- ARGUMENTS`: ACTS gets a line for each act, also when N is not reached.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents.host.cli import main as agent


class _Acts:
    """Counts the acts below a root, notes each, and kills before the one of a number."""

    def __init__(self, number: int, root: str, log: str) -> None:
        self._number, self._root, self._done = number, root, 0
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._write = os.write

    def act(self, what: str, where: str) -> None:
        """Note an act that is about to happen; the one of the number does not."""
        if not where.startswith(self._root):
            return
        self._done += 1
        if self._done == self._number:
            os.kill(os.getpid(), signal.SIGKILL)
        self._write(self._log, f"{what} {where.removeprefix(self._root)}\n".encode())

    def wrap(self, name: str, place: Callable[..., str | None]) -> None:
        """Wrap a function of `os`; `place` gives the path it changes, None where it changes nothing."""
        real = getattr(os, name)

        def wrapped(*values: Any, **named: Any) -> Any:  # noqa: ANN401 - stands for any function of os
            where = place(*values)
            if where is not None:
                self.act(name, where)
            return real(*values, **named)

        setattr(os, name, wrapped)


def main() -> None:
    """Wrap, then run the agent."""
    number, root, log, _, *arguments = sys.argv[1:]
    acts = _Acts(int(number), root, log)
    acts.wrap("open", lambda path, flags, *_: os.fspath(path) if flags & (os.O_WRONLY | os.O_RDWR) else None)
    for name in ("write", "fsync"):
        acts.wrap(name, lambda descriptor, *_: str(Path(f"/proc/self/fd/{descriptor}").readlink()))
    for name in ("unlink", "mkdir", "rmdir", "rename"):
        acts.wrap(name, lambda path, *_: os.fspath(path))
    acts.wrap("replace", lambda _, path: os.fspath(path))

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **named: Any) -> None:  # noqa: ANN401 - likewise
            if "restart" in command:
                acts.act("restart", f"{root}{command[-1]}")
            super().__init__(command, **named)

    subprocess.Popen = Popen  # type: ignore[misc, assignment]
    sys.exit(agent(arguments))


if __name__ == "__main__":
    main()
