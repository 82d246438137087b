"""Installs the Python environment: pip's work as one line on a terminal, as a first and a last line elsewhere.

A script for the new environment's own Python, which has nothing but the standard library yet:
`.venv/bin/python toolchain/python_environment.py requirements-dev.txt`.
"""

import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import BinaryIO

_INTERRUPTED = 130
_ENDED = "Interrupted. The same command goes on."
_PIN = re.compile(r"(?m)^[A-Za-z0-9][\w.-]*(\[[^\]]*\])?==")
_DRAW_SECONDS = 0.5
_SECONDS_PER_MINUTE = 60


class _Shown:
    """What a person sees on stderr: `doing`, and since when."""

    def __init__(self) -> None:
        self.doing = "starting pip"
        self._begin = time.monotonic()
        self._over = threading.Event()
        # As toolchain.progress decides it.
        stands_still = os.environ.get("TERM", "dumb") in {"dumb", "unknown"} or bool(os.environ.get("CI"))
        drawn = sys.stderr.isatty() and not stands_still
        self._drawer = threading.Thread(target=self._draw, daemon=True) if drawn else None
        if self._drawer:
            self._drawer.start()

    @property
    def duration(self) -> str:
        """`45 s` or `1 min 20 s`."""
        minutes, seconds = divmod(int(time.monotonic() - self._begin), _SECONDS_PER_MINUTE)
        return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"

    def end(self) -> None:
        """Leave the line empty."""
        self._over.set()
        if self._drawer:
            self._drawer.join()
            self._write("\r\x1b[2K")

    def _draw(self) -> None:
        while not self._over.wait(_DRAW_SECONDS):
            line = f"{self.duration}, {self.doing}"
            self._write(f"\r\x1b[2K{line[: os.get_terminal_size(sys.stderr.fileno()).columns - 1]}")

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def main() -> int:
    """The exit status of pip, or 130 after Ctrl-C."""
    requirements = Path(sys.argv[1])
    with requirements.open("rb") as held:
        try:
            _wait_for_others(held)
        except KeyboardInterrupt:
            _say(_ENDED)
            return _INTERRUPTED
        return _install(requirements)


def _wait_for_others(held: BinaryIO) -> None:
    """Let one pip at a time change the environment: several leave it without packages that each takes for installed."""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _say("Another command installs the Python environment. Waiting for it.")
        fcntl.flock(held, fcntl.LOCK_EX)
    except OSError:
        # NFS locks no file that is open for reading alone.
        pass


def _install(requirements: Path) -> int:
    total = len(_PIN.findall(requirements.read_text(encoding="utf-8")))
    _say(f"Installing the Python environment into {sys.prefix}: about {total} packages, which takes a minute or two.")
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off", "--no-color"]
    shown = _Shown()
    process = subprocess.Popen(
        [*pip, "--require-hashes", "--requirement", str(requirements)],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    fetched = 0
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _interrupt_once)
    try:
        for line in process.stdout or ():
            if line.startswith("Collecting "):
                fetched += 1
                shown.doing = f"fetching {fetched} of {total}: {line.split()[1].partition('==')[0]}"
            elif line.startswith("Installing collected packages"):
                shown.doing = f"unpacking {fetched} packages"
        status = process.wait()
    except KeyboardInterrupt:
        # The terminal has told pip too, which says so in its own words; also when it is told again.
        process.wait()
        status = _INTERRUPTED
    shown.end()
    if status == _INTERRUPTED:
        _say(_ENDED)
    elif status:
        _say(f"pip failed after {shown.duration}, for the reason above. Mend it, and run the same command again.")
    else:
        _say(f"Installed in {shown.duration}.")
    return status


def _interrupt_once(*_: object) -> None:
    """Interrupt this process at the first Ctrl-C; the second may come before the first is dealt with."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
