"""A Python that has imported the program already, and of which each Pulumi program of the tests is a copy.

Imports are half of the processor time that a program takes, and tests run hundreds. Programs of documented commands, of
packages and of teams' repositories still import everything by themselves, as a user's do.

    python -m testbed.warm_python SOCKET    # serves until its standard input ends
"""

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NoReturn

from testbed.made_once import FOLDER
from testbed.stacks import ROOT

ADDRESS = "KAI_ANYWHERE_WARM_PYTHON"
"""The variable that names the socket."""
IMPORTED = ("components.program", "grpc._channel", "h2.connection", "httpcore2", "pulumi_command", "pulumi_kubernetes")
"""What every program of a stack imports, at once or for its first request."""
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MOST = 1 << 20
_STATUS_BYTES = 4

CLIENT = f"""import os, socket, sys
connection = socket.socket(socket.AF_UNIX)
python, *words = sys.argv[1:]
try:
    connection.connect(os.environ.pop("{ADDRESS}"))
except OSError:
    os.execv(python, [python, *words])
import json, signal
forwarded = {tuple(map(int, _FORWARDED))}
for number in forwarded:
    signal.signal(number, lambda number, _: connection.send(bytes([number])))
asked = json.dumps([words, os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(connection, [len(asked).to_bytes(4, "big")], [0, 1, 2])
connection.sendall(asked)
answer = connection.recv({_STATUS_BYTES}, socket.MSG_WAITALL)
status = int.from_bytes(answer, "big", signed=True) if len(answer) == {_STATUS_BYTES} else 70
if -status in forwarded:
    signal.signal(-status, signal.SIG_DFL)
if status < 0:
    os.kill(os.getpid(), -status)
os._exit(status)
"""
"""A program that hands over its words, folder, environment and streams, and ends as the copy ends.

Its arguments are the real Python and the words, which that one runs where nobody serves.
"""


@cache
def address() -> str:
    """The socket of one that serves as long as this process runs, and may still be importing."""
    socket_path = Path(os.environ[FOLDER]) / f"warm-python-{os.getpid()}"
    # Its other end is closed with this process.
    end, _ = os.pipe()
    command = [sys.executable, "-m", "testbed.warm_python", str(socket_path)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=end, start_new_session=True)
    os.close(end)
    process.returncode = 0  # nobody waits for it
    return str(socket_path)


def serve(address: Path) -> list[str]:
    """Answer until standard input ends; comes back in each copy, with the words of its program."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as server:
        unfinished = address.with_suffix(".unfinished")
        server.bind(str(unfinished))
        server.listen(64)
        unfinished.rename(address)
        while True:
            ready, _, _ = select.select([server.fileno(), sys.stdin.fileno()], [], [])
            if sys.stdin.fileno() in ready:
                os._exit(0)
            connection, _ = server.accept()
            if os.fork() == 0:
                break
            connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return _become(connection)


def _become(connection: socket.socket) -> list[str]:
    """Take over what a client hands over, in a process of its own that this one waits for."""
    length, descriptors, _, _ = socket.recv_fds(connection, 4, 3)
    asked = connection.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
    words, folder, environment = json.loads(asked)
    # The program has its one end open until it ends.
    ended, running = os.pipe()
    program = os.fork()
    if program:
        for descriptor in (running, *descriptors):
            os.close(descriptor)
        _wait(connection, program, ended)
    os.close(ended)
    connection.close()
    for descriptor, standard in zip(descriptors, range(3), strict=True):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    return list(words)


def _wait(connection: socket.socket, program: int, ended: int) -> NoReturn:
    """Tell the client how the program ends; hand its signals on, and end the program where the client is gone."""
    while True:
        ready, _, _ = select.select([connection.fileno(), ended], [], [])
        if ended in ready:
            _, status = os.waitpid(program, 0)
            code = os.waitstatus_to_exitcode(status)
            with suppress(OSError):
                connection.sendall(code.to_bytes(_STATUS_BYTES, "big", signed=True))
            os._exit(0)
        numbers = connection.recv(_MOST)
        for number in numbers or [signal.SIGKILL]:
            os.kill(program, number)
        if not numbers:
            os._exit(0)


if __name__ == "__main__":
    sys.argv = serve(Path(sys.argv[1]))
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
