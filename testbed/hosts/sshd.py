"""A real sshd: own keys, an unprivileged port, and one prepared machine per address.

Everybody who logs in is the user of the test, but sees a machine of its own: a home, a PATH that begins with the
machine's own programs, and a `python3` that hands the machine's root folder to the agent. So the program under test
runs as it is. Several machines share one sshd: each has its own address, of 127.0.0.0/8 on loopback, or one of the
sshd's own network namespace.
"""

import getpass
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from simulator.ports import free_ports
from testbed.waiting import eventually

_SFTP_SERVERS = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server")

_SESSION = """#!/bin/sh
# What every login runs: the machine of the address that it came in by.
set -- $SSH_CONNECTION
machine={machines}/$3
cd "$machine/home" || exit 1
export HOME="$machine/home" PATH="$machine/bin:$PATH"
case "$SSH_ORIGINAL_COMMAND" in
    internal-sftp|{sftp}) exec {sftp} -d "$machine/home" ;;
    *) exec sh -c "$SSH_ORIGINAL_COMMAND" ;;
esac
"""

_PYTHON = """#!/bin/sh
# The machine's root is a folder: the agent is told, every other program is not.
for argument in "$@"; do
    case "$argument" in *.pyz) exec {python} "$@" --root {root} ;; esac
done
exec {python} "$@"
"""


_CONNECT = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), timeout=5)"


def find_sshd() -> Path | None:
    """The server's program, which distributions keep out of a user's PATH."""
    path = shutil.which("sshd", path=os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/usr/local/sbin", "/sbin"]))
    return None if path is None else Path(path)


needs_sshd = pytest.mark.skipif(
    find_sshd() is None or shutil.which("ssh") is None or not any(map(os.path.exists, _SFTP_SERVERS)),
    reason="needs OpenSSH's server and client: apt-get install openssh-server",
)


@dataclass(frozen=True)
class Machine:
    """One machine of an sshd.

    Attributes:
        address: where it is reached.
        folder: holds `home`, `bin` and `root`.
    """

    address: str
    folder: Path

    @property
    def home(self) -> Path:
        """The login's home."""
        return self.folder / "home"

    @property
    def root(self) -> Path:
        """What the agent takes for `/`."""
        return self.folder / "root"

    def path(self, path: str) -> Path:
        """Where one of the machine's own paths lies."""
        return self.root / path.lstrip("/")

    def program(self, name: str, text: str) -> None:
        """Put a program first on the login's PATH."""
        path = self.folder / "bin" / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    @classmethod
    def make(cls, folder: Path, address: str = "127.0.0.1") -> "Machine":
        """Make an empty machine with Python."""
        machine = cls(address, folder)
        for name in ("home", "bin", "root"):
            (folder / name).mkdir(parents=True)
        machine.python()
        return machine

    def python(self, interpreter: str = sys.executable) -> None:
        """Put a python3 there that hands the machine's root to the agent."""
        self.program("python3", _PYTHON.format(python=shlex.quote(interpreter), root=shlex.quote(str(self.root))))


@dataclass
class Sshd:
    """A server; `stop` and `start` are its machines' reboot.

    Attributes:
        folder: everything of it.
        port: on every address of 127.0.0.0/8, or of its network namespace.
        host_key: its public key, as a stack pins it.
        private_key: what a login needs.
        user: whom everybody logs in as.
        enter: what starts a program where the server is: in its network namespace, or nothing.
    """

    folder: Path
    port: int
    host_key: str
    private_key: str
    user: str = field(default_factory=getpass.getuser)
    enter: Sequence[str] = ()
    _process: subprocess.Popen[bytes] | None = None

    def machine(self, address: str) -> Machine:
        """Add a machine."""
        return Machine.make(self.folder / "machines" / address, address)

    def start(self) -> None:
        """Serve; returns once connections are accepted."""
        sshd = find_sshd()
        assert sshd is not None
        if os.geteuid() == 0:
            # Where no service manager did it: sshd's own empty folder, without which it does not start as root.
            Path("/run/sshd").mkdir(mode=0o755, parents=True, exist_ok=True)
        # In the foreground, in a session of its own.
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self.enter, sshd, "-D", "-e", "-f", str(self.folder / "sshd_config")],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        eventually(self._accepts_or_ended, within_seconds=60)
        assert self._process.poll() is None, self.log

    def stop(self) -> None:
        """Stop serving and cut every connection."""
        process, self._process = self._process, None
        if process is None:
            return
        sessions = self.sessions(process.pid)
        for pid in [process.pid, *sessions]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        eventually(lambda: not self._accepts(), within_seconds=60)

    def cut(self) -> None:
        """Cut every connection; the server goes on."""
        assert self._process is not None
        for pid in self.sessions(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @staticmethod
    def sessions(server: int) -> list[int]:
        """The server's processes for connections."""
        try:
            return [session.pid for session in psutil.Process(server).children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def processor_seconds(self) -> float:
        """Processor time of the logins that have ended since the server's start."""
        assert self._process is not None
        times = psutil.Process(self._process.pid).cpu_times()
        return times.children_user + times.children_system

    @property
    def log(self) -> str:
        """What the server said."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def _accepts_or_ended(self) -> bool:
        return self._accepts() or (self._process is not None and self._process.poll() is not None)

    def _accepts(self) -> bool:
        if self.enter:
            command = [*self.enter, sys.executable, "-c", _CONNECT, str(self.port)]
            return subprocess.run(command, check=False, capture_output=True).returncode == 0
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5):
            return True
        return False


@contextmanager
def serving(folder: Path, enter: Sequence[str] = ()) -> Iterator[Sshd]:
    """A server, and its end.

    Args:
        folder: made for everything of it.
        enter: what starts a program in the network namespace where it shall serve.
    """
    server = _prepare(folder, enter)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _prepare(folder: Path, enter: Sequence[str]) -> Sshd:
    folder.mkdir(parents=True)
    machines = folder / "machines"
    machines.mkdir()
    for key in ("host", "login"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / key)],
            check=True,
            stdin=subprocess.DEVNULL,
        )
    sftp = next(path for path in _SFTP_SERVERS if Path(path).exists())
    session = folder / "session"
    session.write_text(_SESSION.format(machines=shlex.quote(str(machines)), sftp=sftp), encoding="utf-8")
    session.chmod(0o755)
    [port] = free_ports(1)
    config = [
        f"Port {port}",
        # An sshd listens on at most 16 addresses one by one.
        "ListenAddress 0.0.0.0",
        f"AllowUsers {getpass.getuser()}" + ("" if enter else "@127.0.0.0/8"),
        f"HostKey {folder / 'host'}",
        f"AuthorizedKeysFile {folder / 'login.pub'}",
        f"PidFile {folder / 'pid'}",
        f"ForceCommand {session}",
        # A bash that sshd starts reads the login's own ~/.bashrc, which may print and may start a hundred programs. One
        # that another shell started does not.
        "SetEnv SHLVL=1",
        f"Subsystem sftp {sftp}",
        "PermitRootLogin yes",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "StrictModes no",
        "UsePAM no",
        "AllowTcpForwarding yes",
        "MaxStartups 1000",
        "MaxSessions 1000",
    ]
    (folder / "sshd_config").write_text("\n".join(config) + "\n", encoding="utf-8")
    host_key = " ".join((folder / "host.pub").read_text(encoding="utf-8").split()[:2])
    return Sshd(folder, port, host_key, (folder / "login").read_text(encoding="utf-8"), enter=enter)
