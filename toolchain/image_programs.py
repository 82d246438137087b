"""Programs out of container images, without a container engine: KAI publishes its programs as images only.

An image's program is fetched once and kept by digest. What a tag stood for is noted, so that a program that is there is
found without asking a registry. A folder of programs (`KAI_PROGRAMS`) takes the registry's place.
"""

import hashlib
import os
import posixpath
import shutil
import tarfile
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolchain import cache
from toolchain.errors import ToolchainError
from toolchain.executable import problem
from toolchain.official import this_platform
from toolchain.progress import say
from toolchain.registry import Crane, LoginRegistryError, RegistryError, host

FOLDER_VARIABLE = "KAI_PROGRAMS"
IMAGES = "images"
"""Of KAI_PROGRAMS: each image gives its program itself."""
_CONFIGURATION = "configuration.json"
_MOST_LINKS = 40
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class ImageProgram:
    """The program that a container of an image runs.

    Attributes:
        path: the executable on this machine.
        arguments: those of the image's entry point; a container has them unless it says a `command`.
        default_arguments: those that a container has unless it says `args`.
        environment: the image's variables.
        working_directory: the image's; None where it says none. The folder is in the image, not on this machine.
        source: where the program comes from, for a person: the image with its digest, or the file.
    """

    path: Path
    arguments: tuple[str, ...]
    default_arguments: tuple[str, ...]
    environment: Mapping[str, str]
    working_directory: str | None
    source: str


class _Model(BaseModel):
    # An image's configuration says more than this.
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class _Container(_Model):
    entry_point: list[str] | None = Field(default=None, alias="Entrypoint")
    command: list[str] | None = Field(default=None, alias="Cmd")
    environment: list[str] | None = Field(default=None, alias="Env")
    working_directory: str | None = Field(default=None, alias="WorkingDir")

    @property
    def variables(self) -> dict[str, str]:
        return {name: value for name, _, value in (variable.partition("=") for variable in self.environment or ())}

    @property
    def words(self) -> tuple[list[str], list[str]]:
        """The program with its own arguments, and the default ones: an image may say only a command."""
        return (self.entry_point, self.command or []) if self.entry_point else (self.command or [], [])


class _Configuration(_Model):
    system: str = Field(default="", alias="os")
    processor: str = Field(default="", alias="architecture")
    container: _Container = Field(default=_Container(), alias="config")


class _Noted(BaseModel):
    """What a name stood for when the registry was asked."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    image: str
    platform: str
    pinned: str


class _NoProgramError(Exception):
    """Why an image gives no program; the message is part of a sentence."""


def name_of(image: str) -> str:
    """The last part of an image's name, which its program has: `binder` of `registry:5000/kai/binder:v1`."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def program_of(image: str, programs: str) -> ImageProgram:
    """The program of an image, from a folder or from the image itself.

    Args:
        image: Its name as a pod says it.
        programs: What KAI_PROGRAMS says: a folder, or `images`.

    Raises:
        ToolchainError: It can't be had, or this machine can't run it.
    """
    return (
        from_image(image) if programs == IMAGES else from_folder(image, Path(os.path.expanduser(programs)).absolute())
    )


def from_folder(image: str, folder: Path) -> ImageProgram:
    """The file of a folder that is named as the image is, without registry and tag: `binder`.

    Raises:
        ToolchainError: There is no such program, or this machine can't run it.
    """
    name = name_of(image)
    file = folder / name
    if not folder.is_dir():
        raise _unusable_folder(f"{folder} is no folder")
    if not file.is_file():
        programs = ", ".join(sorted(path.name for path in folder.iterdir() if path.is_file())) or "nothing"
        raise _unusable_folder(f"{folder} has no program {name}, for {image}; it has {programs}")
    if not os.access(file, os.X_OK):
        raise _unusable_folder(f"{file} is not executable")
    if why := problem(file, alone=False):
        raise _unusable_folder(f"{file} can't run here: {why}")
    return ImageProgram(file, (), (), {}, None, str(file))


def from_image(image: str, *, anew: bool = False) -> ImageProgram:
    """The program of an image for this machine's processor; fetches it if it is missing.

    Args:
        image: Its name as a pod says it. A digest is verified; a tag is asked for once.
        anew: Whether a tag is asked for again.

    Raises:
        ToolchainError: The registry does not give it, or this machine can't run it.
    """
    if (system := this_platform().system) != "linux":
        raise _not_had(image, f"images hold programs for Linux, and this machine runs {system}")
    try:
        pinned = (None if anew else _noted(image)) or _ask(image)
        folder = _kept(image, pinned)
        configuration = _configuration((folder / _CONFIGURATION).read_bytes())
    except LoginRegistryError as error:
        login = (
            f"`docker login {host(image)}`, or, where there is no ~/.docker/config.json, `podman login {host(image)}`; "
            "then again; or "
        )
        raise _not_had(image, str(error), login) from error
    except (RegistryError, _NoProgramError) as error:
        raise _not_had(image, str(error)) from error
    file = folder / name_of(image)
    if why := problem(file, alone=True):
        raise _not_had(image, f"this machine can't run {file}: {why}")
    container = configuration.container
    (_, *arguments), default = container.words
    return ImageProgram(
        file, tuple(arguments), tuple(default), container.variables, container.working_directory or None, pinned
    )


def _kept(image: str, pinned: str) -> Path:
    """The cache entry with the program and the configuration of an image."""
    name = name_of(image)

    def fill(into: Path) -> None:
        crane = Crane.installed()
        content = crane.config(pinned)
        configuration = _configuration(content)
        (into / _CONFIGURATION).write_bytes(content)
        # As everything that the cache looks for.
        (into / _CONFIGURATION).chmod(0o755)
        files = into / "files.tar"
        crane.export(pinned, files)
        try:
            with tarfile.open(files, "r:") as tar:
                _take_program(tar, configuration.container, into / name)
        except tarfile.TarError as error:
            raise _NoProgramError(f"what it holds are no files: {error}") from error
        files.unlink()

    return cache.obtain(f"image-{name}-{pinned.rpartition(':')[2]}", (name, _CONFIGURATION), what=image, fill=fill)


def _configuration(content: bytes) -> _Configuration:
    machine = this_platform()
    try:
        configuration = _Configuration.model_validate_json(content)
    except ValidationError as error:
        raise _NoProgramError(f"its configuration is none of an image: {error}") from error
    # crane compares platforms where an image has several, and takes the only one of others.
    if (configuration.system, configuration.processor) != (machine.system, machine.processor):
        target = f"{configuration.system}/{configuration.processor}"
        raise _NoProgramError(f"the image is for {target}, and this machine is {machine}")
    if not configuration.container.words[0]:
        raise _NoProgramError("the image does not say which program its containers run")
    return configuration


def _take_program(tar: tarfile.TarFile, container: _Container, target: Path) -> None:
    """Copy the content of one file; no path, owner or mode of the archive is ever used."""
    # Not `//app`, which is a path of its own.
    members = {posixpath.normpath(f"/{member.name.lstrip('/')}"): member for member in tar}
    for path in _places(container):
        member = _follow(members, path)
        content = tar.extractfile(member) if member else None
        if content:
            with content, target.open("wb") as file:
                shutil.copyfileobj(content, file)
            target.chmod(0o755)
            return
    raise _NoProgramError(f"the image has no file {container.words[0][0]}, which its containers run")


def _places(container: _Container) -> Iterator[str]:
    """Where a container looks for its program."""
    program = container.words[0][0]
    if "/" in program:
        yield posixpath.join("/", container.working_directory or "", program)
        return
    for folder in container.variables.get("PATH", _DEFAULT_PATH).split(":"):
        yield posixpath.join("/", folder, program)


def _follow(members: Mapping[str, tarfile.TarInfo], path: str) -> tarfile.TarInfo | None:
    """Find a file through links as a container would: their `/` is the image's, and none leads above it."""
    place, steps, links = "/", deque(path.split("/")), 0
    while steps:
        step = steps.popleft()
        if step == "..":
            place = posixpath.dirname(place)
        if step in ("", ".", ".."):
            continue
        member = members.get(posixpath.join(place, step))
        if member is None or not (member.issym() or member.islnk()):
            place = posixpath.join(place, step)
            continue
        links += 1
        if links > _MOST_LINKS:
            return None
        # A hard link names its file from the root.
        if member.islnk() or member.linkname.startswith("/"):
            place = "/"
        steps.extendleft(reversed(member.linkname.split("/")))
    return members.get(place)


def _note(image: str) -> Path:
    digest = hashlib.sha256(f"{image} {this_platform()}".encode()).hexdigest()
    return cache.root() / "images" / f"{digest[:24]}.json"


def _noted(image: str) -> str | None:
    with suppress(OSError, ValidationError):
        noted = _Noted.model_validate_json(_note(image).read_bytes())
        if (noted.image, noted.platform) == (image, str(this_platform())):
            return noted.pinned
    return None


def _ask(image: str) -> str:
    crane = Crane.installed()
    say(f"asking {host(image)} for the digest of {image}")
    pinned = crane.pinned(image, this_platform())
    note = _note(image)
    noted = _Noted(image=image, platform=str(this_platform()), pinned=pinned)
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=note.parent, delete=False) as file:
            file.write(noted.model_dump_json())
        # Who else may use the folder may read it, as all that is there.
        Path(file.name).chmod(0o644)
        Path(file.name).replace(note)
    except OSError as error:
        raise cache.unusable(error, image) from error
    return pinned


def _not_had(image: str, why: str, remedy: str = "") -> ToolchainError:
    return ToolchainError(
        f"The program of the image {image} can't be had.",
        why=why,
        remedy=f"{remedy}give a folder with programs, each named as its image is ({name_of(image)}): "
        f"export {FOLDER_VARIABLE}=/a/folder",
    )


def _unusable_folder(why: str) -> ToolchainError:
    return ToolchainError(
        f"{FOLDER_VARIABLE} does not give the program.",
        why=why,
        remedy=f"lay an executable for {this_platform()} there, named as the image is without registry and tag; or "
        f"let it come from the image: {FOLDER_VARIABLE}={IMAGES}",
    )
