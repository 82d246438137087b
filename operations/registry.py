"""Asks registries what an image's tag stands for now: its digest, and the processors that it is for.

OCI Distribution Specification 1.1, with the token flow of Docker's registry. Nobody's login is used: what a registry
shows to everybody is enough for public images.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx2

_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
_TIMEOUT_SECONDS = 15.0
_MOST_BYTES = 4 * 1024 * 1024
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _OK = 401, 403, 404, 200
_REFERENCE = re.compile(r"(?P<name>[^@]+?)(?::(?P<tag>[\w][\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?")
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')


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


@dataclass(frozen=True)
class Reference:
    """An image's name in parts.

    Attributes:
        host: the registry, with its port.
        repository: the path there.
        tag: None where only a digest is said.
        digest: None where only a tag is said.
    """

    host: str
    repository: str
    tag: str | None
    digest: str | None

    @classmethod
    def parse(cls, image: str) -> "Reference":
        """Take a name apart, as containerd does: without a registry it is Docker Hub's.

        Raises:
            ValueError: it is no image's name.
        """
        match = _REFERENCE.fullmatch(image)
        if match is None:
            raise ValueError(f"{image!r} is no image reference")
        first, _, rest = match["name"].partition("/")
        if rest and ("." in first or ":" in first or first == "localhost"):
            host, repository = first, rest
        else:
            host, repository = "docker.io", match["name"] if rest else f"library/{match['name']}"
        tag = match["tag"] or (None if match["digest"] else "latest")
        return cls(host, repository, tag, match["digest"])

    @property
    def address(self) -> str:
        """Where the registry answers."""
        return f"https://{'registry-1.docker.io' if self.host == 'docker.io' else self.host}/v2/{self.repository}"


class _NotToldError(Exception):
    """The reason, as part of a sentence."""


@dataclass
class Registries:
    """Registries, each asked for a token once per repository, and not again once it could not be reached.

    Attributes:
        client: follows redirects; trusts what the system trusts.
    """

    client: httpx2.Client = field(
        default_factory=lambda: httpx2.Client(follow_redirects=True, timeout=_TIMEOUT_SECONDS)
    )
    _tokens: dict[str, str] = field(default_factory=dict)
    _silent: dict[str, str] = field(default_factory=dict)

    def content(self, image: str) -> Content:
        """What an image's name stands for; a problem is told, never raised."""
        reference = Reference.parse(image)
        if reference.host in self._silent:
            return Content(reference.digest, problem=self._silent[reference.host])
        try:
            manifest, digest = self._manifest(reference)
            return Content(digest, self._architectures(reference, manifest))
        except _NotToldError as error:
            return Content(reference.digest, problem=str(error))
        except httpx2.HTTPError as error:
            self._silent[reference.host] = f"{reference.host} can't be asked: {error}"
            return Content(reference.digest, problem=self._silent[reference.host])

    def _manifest(self, reference: Reference) -> tuple[Mapping[str, Any], str]:
        name = reference.digest or reference.tag
        body = self._get(reference, f"manifests/{name}", accept=", ".join((*_INDEXES, *_MANIFESTS)))
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        if reference.digest not in (None, digest):
            raise _NotToldError(f"{reference.host} answers with another content, {digest}")
        return _json(reference, body), digest

    def _architectures(self, reference: Reference, manifest: Mapping[str, Any]) -> tuple[str, ...]:
        if "manifests" in manifest:
            platforms = [each.get("platform", {}).get("architecture") for each in manifest["manifests"]]
            # `unknown` are attestations, no images.
            return tuple(sorted({each for each in platforms if each and each != "unknown"}))
        config = _json(reference, self._get(reference, f"blobs/{manifest['config']['digest']}", accept="*/*"))
        return (config["architecture"],) if "architecture" in config else ()

    def _get(self, reference: Reference, path: str, *, accept: str) -> bytes:
        url = f"{reference.address}/{path}"
        answer = self.client.get(url, headers={"Accept": accept, **self._authorization(reference)})
        if answer.status_code == _UNAUTHORIZED and reference.address not in self._tokens:
            self._tokens[reference.address] = self._token(reference, answer.headers.get("WWW-Authenticate", ""))
            answer = self.client.get(url, headers={"Accept": accept, **self._authorization(reference)})
        match answer.status_code:
            case code if code == _OK:
                pass
            case code if code in (_UNAUTHORIZED, _FORBIDDEN):
                raise _NotToldError(f"{reference.host} shows it only to those who log in")
            case code if code == _NOT_FOUND:
                raise _NotToldError(f"{reference.host} has no such image")
            case code:
                raise _NotToldError(f"{reference.host} answers with status {code}")
        if len(answer.content) > _MOST_BYTES:
            raise _NotToldError(f"{reference.host} answers with more than {_MOST_BYTES} bytes")
        return answer.content

    def _authorization(self, reference: Reference) -> dict[str, str]:
        token = self._tokens.get(reference.address)
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _token(self, reference: Reference, challenge: str) -> str:
        scheme, _, rest = challenge.partition(" ")
        said = dict(_PARAMETER.findall(rest))
        realm = said.pop("realm", "")
        if scheme.lower() != "bearer" or urlsplit(realm).scheme != "https":
            raise _NotToldError(f"{reference.host} shows it only to those who log in")
        asked = {"scope": f"repository:{reference.repository}:pull"} | said
        answer = self.client.get(realm, params=asked)
        if answer.status_code != _OK:
            raise _NotToldError(f"{reference.host} shows it only to those who log in")
        found = _json(reference, answer.content)
        token = found.get("token") or found.get("access_token")
        if not isinstance(token, str):
            raise _NotToldError(f"{reference.host} gives no token to those who do not log in")
        return token


def _json(reference: Reference, body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except ValueError as error:
        raise _NotToldError(f"{reference.host} answers with something that is no JSON") from error
    if not isinstance(found, dict):
        raise _NotToldError(f"{reference.host} answers with something that is no manifest")
    return found
