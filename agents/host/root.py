"""The host's file tree, or a prepared folder that stands for one (`--root`)."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from agents.host.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROGRAM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/snap/bin")
_MOST_BYTES = 8 * 1024 * 1024
_MOST_LINKS = 40
"""As many as Linux follows for one path."""


class Root:
    """Maps the paths that the host knows (`/etc/...`) to where they lie on this machine.

    All names in answers are the host's; only this class knows the folder.
    """

    def __init__(self, folder: str = "/") -> None:
        self._folder = Path(folder).absolute()

    @property
    def is_machine(self) -> bool:
        """Whether this is the machine's own tree."""
        return self._folder == Path("/")

    def path(self, host_path: str) -> Path:
        """Where a host path lies."""
        return self._folder / host_path.lstrip("/")

    def host_path(self, path: Path) -> str:
        """The host's name of a path in the tree."""
        return "/" + str(path.relative_to(self._folder)).lstrip("/") if path != self._folder else "/"

    def target(self, host_path: str) -> Path:
        """The file to replace: a link's target, so that a link stays one.

        Raises:
            HostError: The link leads out of the tree, or what is there is no file but a device, a folder or the like.
        """
        target = Path(os.path.realpath(str(self.path(host_path))))
        folder = Path(os.path.realpath(str(self._folder)))
        if folder != Path("/") and folder not in target.parents:
            raise HostError(f"{host_path} is a link that leads out of {self._folder}.", "Replace the link by a file.")
        if target.exists() and not target.is_file():
            raise HostError(f"{host_path} leads to {target}, which is no file.", "Put a file there, or remove it.")
        return target

    def real(self, host_path: str) -> str | None:
        """A path without links, as the host itself would: an absolute link stays in the tree.

        What is there, if anything, is not asked. None where links lead in a circle.
        """
        todo = host_path.split("/")[::-1]
        done: list[str] = []
        links = 0
        while todo:
            step = todo.pop()
            if step in ("", "."):
                continue
            if step == "..":
                done = done[:-1]
                continue
            try:
                target = os.readlink(str(self.path("/".join((*done, step)))))
            except OSError:
                done.append(step)
                continue
            links += 1
            if links > _MOST_LINKS:
                return None
            if target.startswith("/"):
                done = []
            todo += target.split("/")[::-1]
        return "/" + "/".join(done)

    def exists(self, host_path: str) -> bool:
        """Whether something is there; what can't be looked at is not."""
        try:
            return self.path(host_path).exists()
        except OSError:
            return False

    def is_file(self, host_path: str) -> bool:
        """Whether a file is there, or a link to one; what can't be looked at is not."""
        try:
            return self.path(host_path).is_file()
        except OSError:
            return False

    def read_bytes(self, host_path: str) -> bytes | None:
        """A file's bytes, None where there is no file.

        Raises:
            HostError: The file is there but can't be read, or is larger than any configuration.
        """
        try:
            with self.path(host_path).open("rb") as file:
                content = file.read(_MOST_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise HostError(
                f"{host_path} can't be read: {error.strerror}.", "Run the agent as root, and check the file system."
            ) from error
        if len(content) > _MOST_BYTES:
            raise HostError(f"{host_path} is larger than {_MOST_BYTES} bytes.", "Check what the file is.")
        return content

    def read_text(self, host_path: str) -> str | None:
        """A file as text, None where there is none or it can't be read: what `probe` may look at."""
        try:
            content = self.read_bytes(host_path)
        except HostError:
            return None
        # Device-tree strings end in NUL.
        return None if content is None else content.decode("utf-8", "replace").rstrip("\0")

    def glob(self, host_pattern: str) -> list[str]:
        """The host paths that match, sorted; `**` is `*`, as where the programs of a host read patterns (Go, glibc)."""
        pattern = re.sub(r"\*{2,}", "*", host_pattern).lstrip("/")
        try:
            return sorted(self.host_path(path) for path in self._folder.glob(pattern)) if pattern else ["/"]
        except OSError:
            return []

    def program_folders(self) -> Iterator[str]:
        """Where programs are looked for: PATH, then the usual folders, which a bare SSH session may lack."""
        yield from (folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder)
        for folder in _PROGRAM_FOLDERS:
            yield str(self.path(folder))
