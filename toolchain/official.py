"""What upstream projects publish: files with checksums, by platform."""

import functools
import platform
from dataclasses import asdict, dataclass

from typing_extensions import override

from toolchain.cache import entry_name


@dataclass(frozen=True, slots=True)
class ChecksumFile:
    """A published file: `<sha256>` alone, or lines of `<sha256>  <file name>`."""

    url: str


@dataclass(frozen=True, slots=True)
class PinnedChecksum:
    """A SHA-256 written down here, in hex, because upstream publishes none."""

    sha256: str


@dataclass(frozen=True, slots=True)
class Asset:
    """One published file: an archive with the named executables in it, or (without an archive suffix) an executable."""

    url: str
    checksum: ChecksumFile | PinnedChecksum
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Download:
    """Assets that are had together or not at all."""

    name: str
    version: str
    assets: tuple[Asset, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the executables in the result."""
        return tuple(file for asset in self.assets for file in asset.files)

    @property
    def entry(self) -> str:
        """The cache entry's name: it changes with every address and pinned checksum."""
        return entry_name(self.name, self.version, asdict(self))


@dataclass(frozen=True, slots=True)
class Platform:
    """An operating system (`linux`, `darwin`) and a processor (`amd64`, `arm64`), as Go names them."""

    system: str
    processor: str

    @override
    def __str__(self) -> str:
        return f"{self.system}/{self.processor}"


@functools.cache
def this_platform() -> Platform:
    """What this machine is."""
    processor = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return Platform(platform.system().lower(), processor)


PLATFORMS = frozenset(Platform(system, processor) for system in ("linux", "darwin") for processor in ("amd64", "arm64"))
"""For which programs are published."""
