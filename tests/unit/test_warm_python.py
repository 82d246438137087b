"""Copies of a Python that has imported the program: each is as if it had been started itself."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from testbed import made_once, warm_python
from testbed.waiting import eventually

_TELLS = f"""
import json, os, signal, sys
json.dump({{
    "words": sys.argv, "path": sys.path[0], "folder": os.getcwd(), "variable": os.environ.get("OWN"),
    "server": os.environ.get("{warm_python.ADDRESS}"), "name": __name__, "read": sys.stdin.read(),
    "imported": "components.program" in sys.modules,
}}, sys.stdout)
print("to stderr", file=sys.stderr)
sys.exit(3)
"""
_WAITS = """
import pathlib, sys, time
pathlib.Path(sys.argv[1]).write_text(str(__import__("os").getpid()))
try:
    time.sleep(60)
except KeyboardInterrupt:
    sys.exit(7)
"""


@pytest.fixture(scope="module")
def address() -> str:
    """The socket of one that serves."""
    made = warm_python.address()
    eventually(Path(made).exists)
    return made


class Client:
    """What a language host starts."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.file = folder / "client.py"
        self.file.write_text(warm_python.CLIENT, encoding="utf-8")
        self.environment = os.environ | {warm_python.ADDRESS: address, "OWN": "ü"}

    def starts(self, program: str, *words: str) -> "subprocess.Popen[str]":
        """Have a program run."""
        own = self.folder / "program" / "main.py"
        own.parent.mkdir(exist_ok=True)
        own.write_text(program, encoding="utf-8")
        command = [sys.executable, "-IS", str(self.file), sys.executable, str(own), *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )

    def waits(self) -> "tuple[subprocess.Popen[str], psutil.Process]":
        """Have one run that waits, until it does; gives the client and the program."""
        note = self.folder / "pid"
        client = self.starts(_WAITS, str(note))
        eventually(lambda: note.exists() and note.read_text())
        return client, psutil.Process(int(note.read_text()))


@pytest.fixture
def client(tmp_path: Path, address: str) -> Client:
    return Client(tmp_path, address)


def _answer_of(client: Client) -> dict[str, object]:
    with client.starts(_TELLS, "one", "two words") as process:
        out, err = process.communicate("given")
    assert process.returncode == 3
    assert err == "to stderr\n"
    answer: dict[str, object] = json.loads(out)
    return answer


def test_a_program_has_the_words_the_folder_the_variables_and_the_streams_of_its_client(client: Client) -> None:
    own = client.folder / "program"
    assert _answer_of(client) == {
        "words": [str(own / "main.py"), "one", "two words"],
        "path": str(own),
        "folder": str(client.folder),
        "variable": "ü",
        "server": None,
        "name": "__main__",
        "imported": True,
        "read": "given",
    }


def test_where_nobody_serves_python_itself_runs_it(tmp_path: Path) -> None:
    answer = _answer_of(Client(tmp_path, str(tmp_path / "nobody")))
    assert answer["imported"] is False
    assert answer["words"] == [str(tmp_path / "program" / "main.py"), "one", "two words"]
    assert answer["variable"] == "ü"


def test_a_signal_to_the_client_reaches_the_program_and_its_status_the_client(client: Client) -> None:
    process, program = client.waits()
    assert program.pid != process.pid
    with process:
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 7
    assert not program.is_running()


def test_a_program_that_a_signal_ends_ends_its_client_so(client: Client) -> None:
    process, program = client.waits()
    with process:
        program.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL


def test_a_killed_client_takes_its_program_along(client: Client) -> None:
    process, program = client.waits()
    with process:
        process.kill()
        process.communicate()
    eventually(lambda: not program.is_running() or program.status() == psutil.STATUS_ZOMBIE)


def test_it_serves_as_long_as_who_has_started_it(tmp_path: Path) -> None:
    starts = "from testbed import warm_python; print(warm_python.address())"
    done = subprocess.run(
        [sys.executable, "-c", starts],
        env=os.environ | {made_once.FOLDER: str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    address = Path(done.stdout.strip())
    eventually(address.exists)

    def is_refused() -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(str(address)) == errno.ECONNREFUSED

    eventually(is_refused)
