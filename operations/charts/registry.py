"""Asks registries what an image's tag stands for now: its digest, and the processors that it is for."""

import hashlib
from dataclasses import dataclass, field

from pydantic import BaseModel, Field, ValidationError

from toolchain.registry import Crane, RegistryError, UnreachableRegistryError, host


@dataclass(frozen=True)
class Content:
    """What an image's name stands for.

    Attributes:
        digest: of the index, or of the one manifest; None if it can't be had.
        architectures: `amd64`, `arm64` and so on, sorted; empty if they can't be had.
        problem: why not, or None.
    """

    digest: str | None = None
    architectures: tuple[str, ...] = ()
    problem: str | None = None


class _Platform(BaseModel, extra="ignore", frozen=True, strict=True):
    # What registries answer says more than this.

    # `unknown` are attestations, no images.
    architecture: str = "unknown"


class _Entry(BaseModel, extra="ignore", frozen=True, strict=True):
    platform: _Platform = Field(default=_Platform())


class _Manifest(BaseModel, extra="ignore", frozen=True, strict=True):
    manifests: list[_Entry] | None = None


@dataclass
class Registries:
    """Registries, each not asked again once it could not be reached.

    Attributes:
        crane: asks them.
    """

    crane: Crane
    _unreachable: dict[str, str] = field(default_factory=dict)

    def content(self, image: str) -> Content:
        """What an image's name stands for; a problem is told, never raised."""
        registry = host(image)
        digest = image.partition("@")[2] or None
        if registry in self._unreachable:
            return Content(digest, problem=self._unreachable[registry])
        try:
            manifest = self.crane.manifest(image)
            entries = _Manifest.model_validate_json(manifest).manifests
            digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
            return Content(digest, self._architectures(image, entries))
        except UnreachableRegistryError as error:
            self._unreachable[registry] = str(error)
            return Content(digest, problem=str(error))
        except RegistryError as error:
            return Content(digest, problem=str(error))
        except ValidationError:
            return Content(digest, problem=f"{registry} answers with something that is no manifest")

    def _architectures(self, image: str, entries: list[_Entry] | None) -> tuple[str, ...]:
        if entries is None:
            platforms = [_Platform.model_validate_json(self.crane.config(image))]
        else:
            platforms = [entry.platform for entry in entries]
        return tuple(sorted({platform.architecture for platform in platforms} - {"unknown"}))
