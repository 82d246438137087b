"""A registry on loopback behind TLS, with the token that everybody is given, as the public registries have."""

import hashlib
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from typing_extensions import override

from tests.support.api_server import certificate

_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@dataclass
class Registry:
    """What it holds, and what it was asked.

    Attributes:
        host: its name and port.
        client: a client that trusts it.
        asked: paths, in order.
        private: repositories for which nobody is given a token.
        status: answered to everything that is not a token, if not None.
    """

    host: str = ""
    client: httpx2.Client = field(default_factory=httpx2.Client)
    asked: list[str] = field(default_factory=list)
    private: set[str] = field(default_factory=set)
    status: int | None = None
    content: dict[str, tuple[str, bytes]] = field(default_factory=dict)

    def index(self, repository: str, tag: str, *architectures: str) -> str:
        """Add an image for several processors; gives its digest."""
        platforms = [{"platform": {"architecture": each, "os": "linux"}} for each in (*architectures, "unknown")]
        return self._add(repository, tag, _INDEX, {"schemaVersion": 2, "manifests": platforms})

    def single(self, repository: str, tag: str, architecture: str) -> str:
        """Add an image for one processor; gives its digest."""
        config = json.dumps({"architecture": architecture}).encode()
        digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
        self.content[f"/v2/{repository}/blobs/{digest}"] = ("application/json", config)
        return self._add(repository, tag, _MANIFEST, {"schemaVersion": 2, "config": {"digest": digest}})

    def _add(self, repository: str, tag: str, kind: str, manifest: dict[str, Any]) -> str:
        body = json.dumps(manifest).encode()
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        for name in (tag, digest):
            self.content[f"/v2/{repository}/manifests/{name}"] = (kind, body)
        return digest


@contextmanager
def running() -> Iterator[Registry]:
    """A registry without any image yet."""
    context, authority = certificate()
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            registry.asked.append(parts.path)
            if parts.path == "/token":
                [scope] = parse_qs(parts.query)["scope"]
                allowed = scope.split(":")[1] not in registry.private
                self._answer(200 if allowed else 403, "application/json", json.dumps({"token": scope}).encode())
                return
            repository = parts.path.removeprefix("/v2/").rpartition("/")[0].rpartition("/")[0]
            scope = f"repository:{repository}:pull"
            if registry.status is not None:
                self._answer(registry.status, "text/plain", b"")
            elif self.headers.get("Authorization") != f"Bearer {scope}":
                challenge = f'Bearer realm="https://{registry.host}/token",service="{registry.host}",scope="{scope}"'
                self._answer(401, "application/json", b"{}", challenge)
            elif parts.path not in registry.content:
                self._answer(404, "application/json", b"{}")
            else:
                kind, body = registry.content[parts.path]
                accepted = self.headers["Accept"]
                self._answer(200 if accepted == "*/*" or kind in accepted else 406, kind, body)

        def _answer(self, status: int, kind: str, body: bytes, challenge: str | None = None) -> None:
            self.send_response(status)
            if challenge:
                self.send_header("WWW-Authenticate", challenge)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, format: str, *args: object) -> None:
            """Keep the tests' output clean."""

    class Server(ThreadingHTTPServer):
        @override
        def handle_error(self, request: object, client_address: object) -> None:
            """A client that does not trust us is what a test asks for."""

    with Server(("127.0.0.1", 0), Handler) as http:
        http.socket = context.wrap_socket(http.socket, server_side=True)
        registry.host = f"127.0.0.1:{http.server_port}"
        trusted = ssl.create_default_context(cadata=authority.decode())
        registry.client = httpx2.Client(verify=trusted, follow_redirects=True)
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield registry
        finally:
            registry.client.close()
            http.shutdown()
            thread.join()
