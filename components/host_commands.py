"""The shell text that runs a host's agent: pure, without a secret, the same for the same agent and host.

The text runs in whatever shell the login has, so it is one `sh -c`. Secrets and the desired state come by stdin: the
sudo password as the first line where there is one, then the document in one line. The agent's hash is a part of the
text: another agent is another input, and a file that is not the one that was copied is never run.
"""

import shlex
from dataclasses import dataclass

from config.hosts import HostSettings

REMOTE_AGENT = ".kai-anywhere/kai-host.pyz"
"""Below the login's home."""

_GRACE_SECONDS = 15
"""Between the agent's own limit, after which it rolls back, and the end of its process."""


@dataclass(frozen=True)
class HostAgent:
    """The agent as a file.

    Attributes:
        path: on this machine.
        sha256: of its content, in hex.
    """

    path: str
    sha256: str


@dataclass(frozen=True)
class HostCommands:
    """The commands of one host.

    Attributes:
        node: the host's name, for messages.
        agent: what runs there.
        host: its settings.
    """

    node: str
    agent: HostAgent
    host: HostSettings

    @property
    def probe(self) -> str:
        """Asks the host what it is; runs as the login, without sudo."""
        seconds = self.host.timeouts.probe_seconds
        return self._shell(
            self._trusted_agent(), f"exec {self._run('probe', seconds)}", f": revision {self.host.revision}"
        )

    @property
    def configure(self) -> str:
        """Puts the document into force and asks whether it is; prints the agent's answer about what changed."""
        not_in_force = f"host {self.node}: configured, but not in force; the answer above says what differs"
        return self._shell(
            self._read_stdin(),
            self._trusted_agent(),
            self._as_root(),
            'printf "%s\\n" "$desired" | as_root '
            + self._run("configure", self.host.timeouts.configure_seconds)
            + " || exit $?",
            'found=$(printf "%s\\n" "$desired" | as_root ' + self._run("check", self.host.timeouts.probe_seconds) + ")"
            f' || {{ printf "%s\\n" "$found"; fail {shlex.quote(not_in_force)}; }}',
            f": revision {self.host.revision}",
        )

    def check(self, nonce: str) -> str:
        """Asks whether everything is still in force; the nonce makes it another input."""
        drift = f"host {self.node}: not everything is in force any more; raise hosts.{self.node}.revision to repair it"
        return self._shell(
            self._read_stdin(),
            self._trusted_agent(),
            self._as_root(),
            'printf "%s\\n" "$desired" | as_root '
            + self._run("check", self.host.timeouts.probe_seconds)
            + f" || fail {shlex.quote(drift)}",
            f": {nonce}",
        )

    @property
    def restore(self) -> str:
        """Gives the host its original files back, and removes the agent that was copied."""
        missing = (
            f"host {self.node}: its agent is not at {self.path} any more, so nothing can be restored. Run pulumi up "
            f"once more, or set hosts.{self.node}.gone: true if this is another machine"
        )
        lines = [
            self._read_stdin(),
            f"[ -e {shlex.quote(self.path)} ] || fail {shlex.quote(missing)}",
            self._as_root(),
            "as_root " + self._run("restore", self.host.timeouts.configure_seconds) + " </dev/null || exit $?",
        ]
        if not self.host.local:
            folder = REMOTE_AGENT.partition("/")[0]
            lines.append(f"rm -f {REMOTE_AGENT}; rmdir {folder} 2>/dev/null; true")
        return self._shell(*lines)

    @property
    def path(self) -> str:
        """Where the agent lies on the host."""
        return self.agent.path if self.host.local else REMOTE_AGENT

    def _run(self, command: str, seconds: int) -> str:
        # `timeout` bounds Python itself; inside sudo, since a login can't end a process of root.
        return (
            f"timeout -k 10 {seconds + _GRACE_SECONDS} python3 -I {shlex.quote(self.path)} {command} "
            f"--timeout {seconds}"
        )

    def _read_stdin(self) -> str:
        password = "IFS= read -r password; " if self.host.sudo_password_secret is not None else ""
        return password + "IFS= read -r desired"

    def _as_root(self) -> str:
        """Defines `as_root`; a password is handed to sudo only where sudo asks for one."""
        if self.host.sudo_password_secret is not None:
            otherwise = """as_root() { { printf "%s\\n" "$password"; cat; } | sudo -S -p "" "$@"; }"""
        else:
            refused = (
                f"host {self.node}: sudo refuses without a password. Store the password with pulumi config set "
                f"--secret NAME and say hosts.{self.node}.sudo_password_secret: NAME, or allow this login sudo"
            )
            otherwise = f"fail {shlex.quote(refused)}"
        return (
            """if [ "$(id -u)" = 0 ]; then as_root() { "$@"; }; """
            """elif sudo -n true 2>/dev/null; then as_root() { sudo -n "$@"; }; """
            f"else {otherwise}; fi"
        )

    def _trusted_agent(self) -> str:
        missing = f"host {self.node}: python3 is missing; install it (3.8 or later) and run pulumi up again"
        other = f"host {self.node}: {self.path} is not the agent that was copied there; run pulumi up again"
        return (
            f"command -v python3 >/dev/null || fail {shlex.quote(missing)}\n"
            f'printf "%s  %s\\n" {self.agent.sha256} {shlex.quote(self.path)} | sha256sum -c --status '
            f"|| fail {shlex.quote(other)}"
        )

    def _shell(self, *lines: str) -> str:
        text = "\n".join(['fail() { printf "%s\\n" "$1" >&2; exit 1; }', "export LC_ALL=C", *lines])
        return f"exec sh -c {shlex.quote(text)}"
