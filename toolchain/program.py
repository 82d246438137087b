"""A program: its name, and each way in which it is had."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from typing_extensions import override

from toolchain.official import PLATFORMS, Download, Platform
from toolchain.recipe import Recipe

Version = tuple[int, int, int]
_VERSION = re.compile(r"(?<![\w.])v?(\d+)\.(\d+)\.(\d+)")


def parse_version(text: str) -> Version | None:
    """The first `1.2.3` or `v1.2.3` of a text; what follows the patch number is not looked at."""
    match = _VERSION.search(text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def show_version(version: Version) -> str:
    """`1.2.3`."""
    return ".".join(map(str, version))


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Versions from `minimum` on, up to but not including `below`."""

    minimum: Version
    below: Version | None = None

    def __contains__(self, version: Version) -> bool:
        return self.minimum <= version and (self.below is None or version < self.below)

    @property
    def text(self) -> str:
        """The range in words."""
        upper = f", below {show_version(self.below)}" if self.below else ""
        return f"{show_version(self.minimum)} or newer{upper}"


@dataclass(frozen=True, slots=True)
class VersionCheck:
    """How a program found on PATH is asked for its version, and what is accepted."""

    arguments: tuple[str, ...]
    accepted: VersionRange


Publication = Callable[[Platform], Download | str]
"""What upstream publishes for a platform, or the reason why it can't be used."""


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A program that the toolchain yields.

    Attributes:
        name: of its executable.
        recipe: how it is built; every program can be.
        check: how one on PATH is asked; None where it can't tell its version.
        publication: where it is published.
    """

    name: str
    recipe: Recipe
    check: VersionCheck | None
    publication: Publication

    @override
    def __str__(self) -> str:
        return self.name

    def download(self, platform: Platform) -> Download | str:
        """What upstream publishes for the platform, or the reason why it can't be used."""
        return self.publication(platform) if platform in PLATFORMS else f"nothing is published for {platform}"


def unpublished(reason: str) -> Publication:
    """Nothing that can be used, on any platform."""
    return lambda _: reason
