"""The shell text that starts a host's agent: pure, without a secret, the same for the same agent and host.

The agent's hash is a part of the text: another agent is another input, and a file that is not the one that was copied
is never run. Everything that is long stands in the file itself (launcher.sh), since the provider's errors quote
the whole command.
"""

import shlex
from dataclasses import dataclass

from agents.host.change import journal
from config.hosts import HostSettings

_FOLDER = ".kai-anywhere"
"""Below the login's home, which several hosts may share."""
_HASH_CHARACTERS = 16
_ANOTHER_STACKS = 4
"""Exit status of the agent's `restore` (agents/host/cli.py)."""


@dataclass(frozen=True)
class HostAgent:
    """The agent with its launcher, as one file.

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
        stack: whose it is, as project/stack: a host that another one has configured since is not restored.
        agent: what runs there.
        host: its settings.
        library_folders: where the stack says that the driver's libraries are: the probe looks there too.
    """

    node: str
    stack: str
    agent: HostAgent
    host: HostSettings
    library_folders: tuple[str, ...] = ()

    @property
    def probe(self) -> str:
        """Ask the host what it is; runs as the login, without sudo and without stdin."""
        folders = "".join(f" {shlex.quote(folder)}" for folder in self.library_folders)
        return self._checked(self._launch("probe", self.host.timeouts.probe_seconds) + folders, self._revision)

    @property
    def configure(self) -> str:
        """Put the document into force and ask whether it is; prints what changed."""
        return self._checked(self._launch("configure", self.host.timeouts.configure_seconds), self._revision)

    def check(self, nonce: str) -> str:
        """Ask whether everything is still in force; the nonce makes it another input."""
        return self._checked(self._launch("check", self.host.timeouts.probe_seconds), nonce)

    @property
    def restore(self) -> str:
        """Give the host its original files back, and remove the agent that was copied.

        The files stay as they are where another stack has configured the host since. Where neither the agent nor its
        journal is there, all of that was done, by a run that was killed before it could note it.
        """
        gone = (
            f"host {self.node}: its agent is not at {self._path} any more. Raise hosts.{self.node}.revision and run "
            f"pulumi up, or set hosts.{self.node}.gone: true."
        )
        lines = [
            f"[ -e {shlex.quote(self._path)} ] || [ -e {journal.HOME} ] || exit 0",
            f"[ -e {shlex.quote(self._path)} ] || {{ echo {shlex.quote(gone)} >&2; exit 1; }}",
            self._verified,
            self._launch("restore", self.host.timeouts.configure_seconds)
            + f" || {{ status=$?; [ $status = {_ANOTHER_STACKS} ] || exit $status; }}",
        ]
        if self.host.ssh is not None:
            stack, folders = self._folder, [self._folder]
            while folders[-1] != _FOLDER:
                folders.append(folders[-1].rpartition("/")[0])
            # With what earlier versions of the program copied.
            lines.append(f"rm -f {stack}/*/kai-host.pyz; rmdir {stack}/* {' '.join(folders)} 2>/dev/null || true")
        return in_any_shell("\n".join(lines))

    @property
    def remote_agent(self) -> str:
        """Where the agent is copied to, below the login's home.

        Each node has its own, since hosts may share a home, and each stack: one that leaves the host takes only its own
        away. Each version has its own, so that what is in the state can still be undone by the version that did it
        while a newer one is copied.
        """
        return f"{self._folder}/{self.agent.sha256[:_HASH_CHARACTERS]}/kai-host.pyz"

    @property
    def _folder(self) -> str:
        return f"{_FOLDER}/{self.node}/{self.stack}"

    @property
    def _path(self) -> str:
        return self.remote_agent if self.host.ssh is not None else self.agent.path

    @property
    def _verified(self) -> str:
        """End the text unless the file is the one that was copied."""
        expected = shlex.quote(f"{self.agent.sha256}  {self._path}")
        # Not every sha256sum can be quiet by itself.
        return f'checked=$(echo {expected} | sha256sum -c) || {{ echo "$checked"; exit 1; }}'

    @property
    def _revision(self) -> str:
        return f"revision {self.host.revision}"

    def _launch(self, command: str, seconds: int) -> str:
        secret = "none" if self.host.sudo_password_secret is None else "password"
        return f"sh {shlex.quote(self._path)} {command} {self.node} {seconds} {secret} {shlex.quote(self.stack)}"

    def _checked(self, launch: str, mark: str) -> str:
        """Run the launcher if it is the file that was copied; the mark is a comment that makes another input."""
        return in_any_shell(f"{self._verified}\nexec {launch} # {mark}")


def in_any_shell(text: str) -> str:
    """The text for a login whose own shell may be any.

    csh runs each line of a quoted text by itself, and takes what follows `!` out of its history; fish reads some
    backslashes there. So none of these stands in the words that they read: `printf` makes them.
    """
    written = text.replace("\\", "\\0134").replace("\n", "\\n").replace("!", "\\0041")
    return f'exec sh -c \'eval "$(printf %b "$1")"\' sh {shlex.quote(written)}'
