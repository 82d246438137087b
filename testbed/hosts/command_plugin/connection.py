"""Connections as the official plugin makes them: retried dials, a pinned key, one optional bastion."""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.hosts.command_plugin import KEEP_ALIVE, SESSIONS

Json = Mapping[str, Any]

_FIRST_PAUSE_SECONDS = 0.1
_PAUSE_FACTOR = 1.5
_LONGEST_PAUSE_SECONDS = 5.0
_NO_CONNECTION = 255
_KEEP_ALIVE_SECONDS = 15
_KEEP_ALIVE_PROBES = 9
"""As Go's net.Dialer has them, which the official plugin dials with."""


class CommandFailedError(Exception):
    """An operation failed; the text is the official plugin's."""


@dataclass(frozen=True)
class Done:
    """A finished process: status, both streams, and both in one."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class _Session:
    """Files of one connection: OpenSSH's configuration, and a mark that its command leaves once it is connected."""

    config: Path
    connected: Path


def run_ssh(
    connection: Json, command: str, *, stdin: str, environment: Mapping[str, str], deadline: float | None
) -> Done:
    """Dial and run one command in the login's shell.

    Args:
        connection: the resource's input of that name.
        command: as it stands.
        stdin: what the command reads.
        environment: sent to the server, which may drop it.
        deadline: on the monotonic clock, or None.

    Raises:
        CommandFailedError: if no connection comes up.
    """
    with _session(connection, environment) as session:
        arguments = ["ssh", "-F", str(session.config), "-T", "target", "--", command]
        return _dialled(arguments, session, connection, stdin, deadline)


def copy(connection: Json, source: Path, target: str, *, deadline: float | None) -> None:
    """Copy a file by SFTP; parent folders are made.

    Raises:
        CommandFailedError: if no connection comes up, or the file can't be written.
    """
    parents = [str(parent) for parent in reversed(Path(target).parents) if str(parent) not in {".", "/"}]
    batch = [f'-mkdir "{parent}"' for parent in parents] + [f'put "{source}" "{target}"']
    with _session(connection, {}) as session:
        arguments = ["sftp", "-F", str(session.config), "-b", "-", "target"]
        done = _dialled(arguments, session, connection, "\n".join(batch) + "\n", deadline)
    if done.code != 0:
        raise CommandFailedError(f"failed to copy {source} to {target}: {done.stderr}")


def _dialled(arguments: Sequence[str], session: _Session, connection: Json, stdin: str, deadline: float | None) -> Done:
    """Run an OpenSSH program until it connects, as often as the connection allows."""
    limit = int(connection.get("dialErrorLimit", 10))
    pause, tries = _FIRST_PAUSE_SECONDS, 0
    while True:
        done = run(arguments, stdin=stdin, environment=None, deadline=deadline)
        # sftp allows no local command, and ends with 255 where it has no connection.
        if session.connected.exists() or (arguments[0] == "sftp" and done.code != _NO_CONNECTION):
            return done
        tries += 1
        if -1 < limit < tries:
            reason = done.stderr.strip() or f"ssh ended with {done.code}"
            raise CommandFailedError(f"after {tries - 1} failed attempts: {reason}")
        if deadline is not None and time.monotonic() + pause > deadline:
            raise CommandFailedError("context deadline exceeded")
        time.sleep(pause)
        pause = min(pause * _PAUSE_FACTOR, _LONGEST_PAUSE_SECONDS)


def run(arguments: Sequence[str], *, stdin: str, environment: Mapping[str, str] | None, deadline: float | None) -> Done:
    """Run a process to its end.

    Raises:
        CommandFailedError: if the deadline comes first.
    """
    remaining = None if deadline is None else max(deadline - time.monotonic(), 0.1)
    try:
        done = subprocess.run(
            arguments,
            input=stdin.encode(),
            env=environment,
            check=False,
            capture_output=True,
            timeout=remaining,
        )
    except subprocess.TimeoutExpired:
        raise CommandFailedError("context deadline exceeded") from None
    return Done(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


@contextmanager
def _session(connection: Json, environment: Mapping[str, str]) -> Iterator[_Session]:
    with tempfile.TemporaryDirectory(prefix=SESSIONS) as scratch:
        folder = Path(scratch)
        connected = folder / "connected"
        proxy = connection.get("proxy")
        blocks = [_block("target", connection, folder)]
        target = ["  PermitLocalCommand yes", f"  LocalCommand touch {connected}"]
        if environment:
            target.append("  SetEnv " + " ".join(f'{name}="{value}"' for name, value in environment.items()))
        if proxy:
            target.append(f"  ProxyCommand ssh -F {folder / 'config'} -W [%h]:%p bastion")
            blocks.append(_block("bastion", proxy, folder))
        blocks[0] += target
        config = folder / "config"
        config.write_text("\n".join(line for block in blocks for line in block) + "\n", encoding="utf-8")
        yield _Session(config, connected)


def _block(alias: str, endpoint: Json, folder: Path) -> list[str]:
    key = endpoint.get("privateKey")
    if not key or endpoint.get("password") or endpoint.get("privateKeyPassword"):
        raise CommandFailedError("the stand-in plugin logs in with a plain private key alone")
    identity = folder / f"{alias}.key"
    identity.touch(mode=0o600)
    identity.write_text(f"{key.strip()}\n", encoding="utf-8")
    known_hosts = folder / f"{alias}.known_hosts"
    pinned = endpoint.get("hostKey")
    known_hosts.write_text(f"{alias} {pinned}\n" if pinned else "", encoding="utf-8")
    timeout = int(endpoint.get("perDialTimeout", 15))
    lines = [
        f"Host {alias}",
        f"  HostName {endpoint['host']}",
        f"  HostKeyAlias {alias}",
        f"  Port {int(endpoint.get('port', 22))}",
        f"  User {endpoint.get('user', 'root')}",
        f"  IdentityFile {identity}",
        "  IdentitiesOnly yes",
        "  IdentityAgent none",
        "  BatchMode yes",
        "  LogLevel ERROR",
        f"  UserKnownHostsFile {known_hosts}",
        "  GlobalKnownHostsFile /dev/null",
        f"  StrictHostKeyChecking {'yes' if pinned else 'no'}",
        "  UpdateHostKeys no",
        f"  ServerAliveInterval {os.environ.get(KEEP_ALIVE, _KEEP_ALIVE_SECONDS)}",
        f"  ServerAliveCountMax {_KEEP_ALIVE_PROBES}",
    ]
    if pinned:
        lines.append(f"  HostKeyAlgorithms {pinned.split()[0]}")
    if timeout:
        lines.append(f"  ConnectTimeout {timeout}")
    return lines
