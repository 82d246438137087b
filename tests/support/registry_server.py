"""A registry on loopback, with the tokens that public registries give, logins, and what can go wrong.

It speaks plain HTTP, which crane accepts from loopback.
"""

import base64
import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from testbed.http_server import Handler, serving

_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIGURATION = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@dataclass
class Registry:
    """What it holds, what goes wrong, and what it was asked.

    Attributes:
        host: its name and port.
        asked: paths, in order.
        private: repositories that are shown to nobody, or, with a login (`user:password`), to that one.
        status: answered to everything that is not a token, if not None.
        stalled: paths whose bodies stop after their first half.
        content: media types and bodies, by path.
    """

    host: str = ""
    asked: list[str] = field(default_factory=list)
    private: dict[str, str | None] = field(default_factory=dict)
    status: int | None = None
    stalled: set[str] = field(default_factory=set)
    content: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    closing: threading.Event = field(default_factory=threading.Event)

    def index(self, repository: str, tag: str, *architectures: str) -> str:
        """Add an image for several processors, without anything in it; gives its digest."""
        platforms = [
            {"platform": {"architecture": architecture, "os": "linux"}} for architecture in (*architectures, "unknown")
        ]
        return self._named(repository, tag, _INDEX, {"schemaVersion": 2, "manifests": platforms})

    def image(
        self,
        repository: str,
        tag: str,
        *layers: bytes,
        architecture: str = "amd64",
        container: Mapping[str, object] | None = None,
    ) -> str:
        """Add an image for one processor; gives its digest.

        Args:
            repository: its name here.
            tag: another name for its digest.
            layers: tar archives, the lowest first.
            architecture: its processor.
            container: what it says of its containers, such as `Entrypoint`.
        """
        configuration = {
            "architecture": architecture,
            "os": "linux",
            "config": container or {},
            "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in layers]},
        }
        packed = [self._blob(repository, _LAYER, gzip.compress(layer, mtime=0)) for layer in layers]
        described = self._blob(repository, _CONFIGURATION, json.dumps(configuration).encode())
        manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": described, "layers": packed}
        return self._named(repository, tag, _MANIFEST, manifest)

    def images(self, repository: str, tag: str, by_architecture: Mapping[str, str]) -> str:
        """Give images of several processors, by their digests, one name; gives the digest of that."""
        entries = [
            {
                "mediaType": _MANIFEST,
                "digest": manifest,
                "size": len(self.content[f"/v2/{repository}/manifests/{manifest}"][1]),
                "platform": {"os": "linux", "architecture": architecture},
            }
            for architecture, manifest in by_architecture.items()
        ]
        return self._named(repository, tag, _INDEX, {"schemaVersion": 2, "mediaType": _INDEX, "manifests": entries})

    def layer(self, repository: str, tag: str, number: int) -> str:
        """The path of an image's layer; the lowest is 0."""
        manifest = json.loads(self.content[f"/v2/{repository}/manifests/{tag}"][1])
        return f"/v2/{repository}/blobs/{manifest['layers'][number]['digest']}"

    def _blob(self, repository: str, kind: str, body: bytes) -> dict[str, Any]:
        self.content[f"/v2/{repository}/blobs/{digest(body)}"] = (kind, body)
        return {"mediaType": kind, "digest": digest(body), "size": len(body)}

    def _named(self, repository: str, tag: str, kind: str, manifest: dict[str, Any]) -> str:
        body = json.dumps(manifest).encode()
        for name in (tag, digest(body)):
            self.content[f"/v2/{repository}/manifests/{name}"] = (kind, body)
        return digest(body)


def digest(content: bytes) -> str:
    """How registries name content."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def archive(members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    """A tar archive with these members, taken as they are."""
    with io.BytesIO() as packed:
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for member, content in members:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        return packed.getvalue()


def file(name: str, content: bytes = b"", mode: int = 0o755) -> tuple[tarfile.TarInfo, bytes]:
    """A regular file of an archive."""
    member = tarfile.TarInfo(name)
    member.mode = mode
    return member, content


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    """A link of an archive, symbolic unless another kind is said."""
    member = tarfile.TarInfo(name)
    member.type = kind
    member.linkname = target
    return member, b""


class _Handler(Handler):
    registry: ClassVar[Registry]

    def do_GET(self) -> None:
        registry, parts = self.registry, urlsplit(self.path)
        registry.asked.append(parts.path)
        if parts.path == "/token":
            self._token(parse_qs(parts.query).get("scope", [""])[0])
            return
        repository = parts.path.removeprefix("/v2/").rpartition("/")[0].rpartition("/")[0]
        scope = f"repository:{repository}:pull"
        if parts.path == "/v2/" or self.headers.get("Authorization") != f"Bearer {scope}":
            challenge = f'Bearer realm="http://{registry.host}/token",service="{registry.host}",scope="{scope}"'
            self._answer(401, "application/json", b"{}", challenge)
        elif registry.status is not None:
            self._answer(registry.status, "text/plain", b"")
        elif parts.path not in registry.content:
            self._answer(404, "application/json", b"{}")
        else:
            kind, body = registry.content[parts.path]
            accepted = self.headers.get("Accept")
            self._answer(200 if accepted is None or kind in accepted else 406, kind, body)

    def _token(self, scope: str) -> None:
        repository = scope.split(":")[1] if scope else ""
        login = self.registry.private.get(repository, "")
        basic = self.headers.get("Authorization", "").removeprefix("Basic ")
        allowed = login == "" or (login is not None and base64.b64decode(basic).decode() == login)
        self._answer(200 if allowed else 403, "application/json", json.dumps({"token": scope}).encode())

    def _answer(self, status: int, kind: str, body: bytes, challenge: str | None = None) -> None:
        self.send_response(status)
        if challenge:
            self.send_header("WWW-Authenticate", challenge)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.path in self.registry.stalled:
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self.registry.closing.wait()
        else:
            self.wfile.write(body)


@contextmanager
def running() -> Iterator[Registry]:
    """A registry without any image yet."""
    registry = Registry()
    with serving(type("Handler", (_Handler,), {"registry": registry})) as port:
        registry.host = f"127.0.0.1:{port}"
        try:
            yield registry
        finally:
            registry.closing.set()
