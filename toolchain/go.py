"""Runs the `go` command: its environment, its version, and its output line by line."""

import os
import re
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from toolchain.cache import LOCATION_VARIABLE
from toolchain.errors import ToolchainError

_LAST_LINES = 20
_GRACE_SECONDS = 10.0
_ENVIRONMENT = {
    # Unless a recipe asks for it, no C compiler is needed, and the result is the same with and without one.
    "CGO_ENABLED": "0",
    # A go.work file above this checkout must not change the pinned modules.
    "GOWORK": "off",
    # What somebody has exported for other work: to build for another machine, or without modules.
    "GO111MODULE": "on",
    "GOOS": "",
    "GOARCH": "",
}
_RARE_COLLECTIONS = {"GOGC": "off", "GOMEMLIMIT": "1000MiB"}
"""Compilers and linkers end before they need 1 GB, but for few: a quarter less processor time, where none looks for
garbage before it has taken that much. The linker takes more than that in any case (pulumi's 1.4 GB, with them 1.6)."""


class GoEnvironment(BaseModel, extra="forbid", frozen=True, strict=True):
    """The answer of `go env -json` to the asked variables."""

    version: str = Field(alias="GOVERSION")
    build_cache: Path = Field(alias="GOCACHE")


class _DownloadedModule(BaseModel, extra="ignore", frozen=True, strict=True):
    # `go mod download -json` tells more than this, and newer versions may tell more again.

    folder: Path = Field(alias="Dir")


def check_go(folder: Path, what: str) -> GoEnvironment:
    """The environment of a `go` that is new enough for the module in a folder.

    Raises:
        ToolchainError: There is no `go` on PATH, or it is too old.
    """
    needed = _needed_version(folder)
    if shutil.which("go") is None:
        raise ToolchainError(
            f"{what} can't be built.",
            why="there is no `go` on PATH",
            remedy=f"install Go {needed} or newer (https://go.dev/dl/), or put the program itself on PATH",
        )
    try:
        answer = _ask(["env", "-json", "GOVERSION", "GOCACHE"], folder)
    except OSError as error:
        raise _unfit(what, needed, f"`go` on PATH can't be run: {error.strerror}") from error
    # A `go` that may not switch to a newer one of itself (GOTOOLCHAIN=local) refuses the folder with a reason.
    if answer.returncode:
        raise _unfit(what, needed, answer.stderr.strip())
    try:
        environment = GoEnvironment.model_validate_json(answer.stdout)
    except ValidationError as error:
        raise _unfit(what, needed, f"`go env -json` answered with {answer.stdout!r}") from error
    if _numbers(environment.version) < _numbers(needed):
        raise _unfit(what, needed, f"`go` on PATH is {environment.version}")
    return environment


def module_folder(module: str, folder: Path, what: str) -> Path:
    """The read-only folder of a module at the version that the go.mod in `folder` selects; fetched if missing."""
    arguments = ["mod", "download", "-json", module]
    answer = _ask(arguments, folder)
    if answer.returncode:
        raise _failure(arguments, answer.returncode, answer.stdout + answer.stderr, what)
    return _DownloadedModule.model_validate_json(answer.stdout).folder


def run_go(
    arguments: Sequence[str], folder: Path, what: str, take: Callable[[str], bool], *, cgo: bool = False
) -> None:
    """Run `go` and hand it each line of its output, stderr included.

    Args:
        arguments: What follows `go`.
        folder: The folder with go.mod.
        what: What is being built, for a person.
        take: Tells whether it knows the line; the last unknown ones explain a failure.
        cgo: Whether the packages need a C compiler.

    Raises:
        ToolchainError: `go` failed.
    """
    tail: deque[str] = deque(maxlen=_LAST_LINES)
    said = {"GOGC", "GOMEMLIMIT"} & os.environ.keys()
    memory = {} if said else _RARE_COLLECTIONS
    with subprocess.Popen(
        ["go", *arguments],
        cwd=folder,
        env=os.environ | _ENVIRONMENT | memory | ({"CGO_ENABLED": "1"} if cgo else {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            for line in process.stdout or ():
                if not take(line.rstrip("\n")):
                    tail.append(line.rstrip("\n"))
        except BaseException:
            # `go` ends its compilers at an interrupt, and leaves them behind when it is killed.
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
    if process.returncode:
        raise _failure(arguments, process.returncode, "\n".join(tail), what)


def _ask(arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["go", *arguments], cwd=folder, env=os.environ | _ENVIRONMENT, capture_output=True, text=True, check=False
    )


def _failure(arguments: Sequence[str], code: int, output: str, what: str) -> ToolchainError:
    why = f"`go {arguments[0]}` exited with {code}; its last lines:\n{output}"
    if re.search("no space left on device|disk quota exceeded", output, re.IGNORECASE):
        return ToolchainError(
            f"There is not enough disk space to build {what}.",
            why=why,
            remedy="free some space where Go's cache, its temporary files and our cache are, or choose others with "
            f"GOCACHE, GOTMPDIR and {LOCATION_VARIABLE}",
        )
    return ToolchainError(
        f"{what} can't be built.",
        why=why,
        remedy="where modules can't be fetched, point GOPROXY to a Go module proxy that this machine reaches; "
        "else put the program itself on PATH",
    )


def _unfit(what: str, needed: str, why: str) -> ToolchainError:
    return ToolchainError(
        f"{what} can't be built with this Go.",
        why=why,
        remedy=f"install Go {needed} or newer (https://go.dev/dl/)",
    )


def _needed_version(folder: Path) -> str:
    match = re.search(r"^go (\S+)$", (folder / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
    if match is None:
        raise AssertionError(f"{folder}/go.mod has no go line")
    return match[1]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))
