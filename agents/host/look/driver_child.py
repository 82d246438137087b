"""Asking a library of the NVIDIA driver in a process of its own, since it may crash or hang."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.host.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.host.commands import Finished, Tools

_START = "import sys; sys.path.insert(0, sys.argv[1]); from agents.host.look.{reader} import main; main()"


@dataclass(frozen=True)
class Library:
    """A library, and what reads it.

    Attributes:
        name: For reasons a person reads.
        reader: The module of this package whose `main` asks it.
        seconds: How long that may take.
    """

    name: str
    reader: str
    seconds: float


def ask(tools: Tools, library: Library, folder: str | None, *arguments: str) -> dict[str, Any]:
    """What the reader answered, or `{"ok": false, "reason": str, "hangs": bool}`; never fails.

    Args:
        tools: The host's programs.
        library: What to ask.
        folder: Host path of a folder for the loader to look in first: it does not know Tegra's.
        arguments: For the reader.
    """
    folders = [str(tools.root.path(folder))] if folder else []
    inherited = os.environ.get("LD_LIBRARY_PATH")
    variables = {"LD_LIBRARY_PATH": os.pathsep.join([*folders, *([inherited] if inherited else [])])}
    # The zipapp, or the folder that holds the package `agents`.
    home = Path(__file__).parents[3]
    command = [sys.executable, "-I", "-c", _START.format(reader=library.reader), str(home), *arguments]
    try:
        finished = tools.run(command, seconds=library.seconds, environment=variables)
    except HostError:
        return _no(f"{library.name}'s library does not answer: it hangs", hangs=True)
    return _heard(library, finished)


def answer(read: Callable[[list[str]], dict[str, Any]]) -> None:
    """Print what a reader found; what the library itself prints goes to stderr.

    Args:
        read: Gives `{"ok": true, ...}` or `{"ok": false, "reason": str}` from the reader's arguments.
    """
    stdout = os.dup(1)
    os.dup2(2, 1)
    os.write(stdout, json.dumps(read(sys.argv[2:])).encode())


def _heard(library: Library, finished: Finished) -> dict[str, Any]:
    if finished.code < 0:
        return _no(f"{library.name}'s library crashed with {signal.Signals(-finished.code).name}")
    try:
        data = json.loads(finished.output)
    except ValueError:
        return _no(f"{library.name}'s library can't be used: {finished.trouble.splitlines()[-1]}")
    return data if isinstance(data, dict) else _no(f"{library.name}'s library can't be used: it answers nonsense")


def _no(reason: str, *, hangs: bool = False) -> dict[str, Any]:
    return {"ok": False, "reason": reason, "hangs": hangs}
