"""Asks image registries with `crane`: what a name stands for, and what is in an image.

crane speaks the registries' protocol, compares all content with its digest, and tries again what failed for a moment.
It uses the logins that `docker login` or `crane auth login` left on this machine, and where there is no file of these,
those of `podman login`; no others. With a registry that is named by a loopback or private address and does not speak
TLS, it speaks plain HTTP.
"""

import errno
import os
import re
import subprocess
import tempfile
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

from toolchain import download
from toolchain.install import install
from toolchain.official import Platform
from toolchain.programs import CRANE
from toolchain.progress import mebibytes, progress

_ASK_SECONDS = 60.0
_SILENT_SECONDS = 60.0
_POLL_SECONDS = 0.1
_MOST_LETTERS = 300
# What crane writes of a registry's answer, and of one that it could not ask.
_ANSWER = re.compile(r"\b(?:GET|HEAD) \S+: (.*)", re.DOTALL)
_NO_ANSWER = re.compile(r'\b(?:Get|Head) "[^"]*": (.*)', re.DOTALL)
_NOT_THERE = re.compile(r"NAME_UNKNOWN|MANIFEST_UNKNOWN|NOT_FOUND|404 Not Found")
_LOGIN = re.compile(r"UNAUTHORIZED|DENIED|401 Unauthorized|403 Forbidden")


class RegistryError(Exception):
    """What a registry does not give; the message is a sentence without its full stop."""


class LoginRegistryError(RegistryError):
    """A registry that shows an image only to others than this machine's user."""


class UnreachableRegistryError(RegistryError):
    """A registry that does not answer at all."""


@dataclass(frozen=True)
class Crane:
    """The program.

    Attributes:
        program: its path.
    """

    program: Path

    @classmethod
    def installed(cls) -> "Crane":
        """The toolchain's own.

        Raises:
            ToolchainError: It can't be had.
        """
        return cls(install((CRANE,))[CRANE])

    def manifest(self, image: str) -> bytes:
        """What a name stands for, byte for byte: an index of several platforms, or one platform's manifest.

        Raises:
            RegistryError: It can't be had.
        """
        return self._ask(["manifest"], image)

    def config(self, image: str) -> bytes:
        """The configuration of an image of one platform, as JSON.

        Raises:
            RegistryError: It can't be had.
        """
        return self._ask(["config"], image)

    def pinned(self, image: str, platform: Platform) -> str:
        """A platform's image by its digest: `registry/repository@sha256:...`.

        Raises:
            RegistryError: It can't be had, or is not there for the platform.
        """
        return self._ask(["digest", "--full-ref", "--platform", str(platform)], image).decode().strip()

    def export(self, image: str, target: Path) -> None:
        """Write all files of an image, its layers on one another, into a new tar archive.

        Raises:
            RegistryError: They can't be had, are damaged, or stopped coming.
        """
        command = [str(self.program), "export", "--", image, str(target)]
        with (
            tempfile.TemporaryFile("w+", errors="replace") as errors,
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors) as process,
        ):
            try:
                _watch(process, image, target)
            except BaseException:
                process.kill()
                raise
            errors.seek(0)
            output = errors.read()
        if process.returncode:
            raise _explained(image, output)

    def _ask(self, arguments: list[str], image: str) -> bytes:
        # `--`: what a stack names must not become one of crane's options.
        command = [str(self.program), *arguments, "--", image]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise UnreachableRegistryError(f"{host(image)} did not answer within {_ASK_SECONDS:.0f} s") from error
        if done.returncode:
            raise _explained(image, done.stderr.decode(errors="replace"))
        return done.stdout


def host(image: str) -> str:
    """The registry of an image's name, with its port: Docker Hub where the name says none."""
    first, _, rest = image.partition("/")
    return first if rest and ("." in first or ":" in first or first == "localhost") else "docker.io"


def reachable(image: str) -> bool:
    """Tell within seconds whether the registry of an image answers; by plain HTTP too, as crane asks private ones."""
    return any(download.reachable(f"{scheme}://{host(image)}/") for scheme in ("https", "http"))


def _watch(process: "subprocess.Popen[bytes]", image: str, target: Path) -> None:
    """Show how a file grows while a process runs; one that stops growing is the registry's silence."""
    with progress(f"fetching {image.partition('@')[0]}", 0, mebibytes) as advance:
        have, changed = 0, time.monotonic()
        while process.poll() is None:
            time.sleep(_POLL_SECONDS)
            size = target.stat().st_size if target.exists() else 0
            if size != have:
                advance(size - have)
                have, changed = size, time.monotonic()
            elif time.monotonic() - changed > _SILENT_SECONDS:
                raise UnreachableRegistryError(f"{host(image)} sent nothing for {_SILENT_SECONDS:.0f} s")


def _explained(image: str, output: str) -> Exception:
    """The last words of crane, which are long, in those of a person."""
    error = re.search(r"^Error: (.*)", output, re.MULTILINE | re.DOTALL)
    last = error[1] if error else output
    if "no space left on device" in last:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if answer := _ANSWER.search(last):
        if _NOT_THERE.search(answer[1]):
            return RegistryError(f"{host(image)} has no such image")
        if _LOGIN.search(answer[1]):
            return LoginRegistryError(f"{host(image)} shows it only to those who log in")
        return RegistryError(f"{host(image)} answers: {_in_a_line(answer[1])}")
    if failure := _NO_ANSWER.search(last):
        return UnreachableRegistryError(f"{host(image)} can't be asked: {_in_a_line(failure[1])}")
    return RegistryError(_in_a_line(last) or "crane failed without a word")


def _in_a_line(text: str) -> str:
    """What a registry wrote, which may be a whole page, or meant for a terminal."""
    return textwrap.shorten("".join(letter if letter.isprintable() else " " for letter in text), _MOST_LETTERS)
