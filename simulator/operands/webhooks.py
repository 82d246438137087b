"""KAI's admission webhooks, really served: the API server calls them on loopback, with TLS, while their pods run.

A pod here is only a record, so nothing listens behind a Service; a webhook configuration that names one would block
whatever it is about. KAI's name this server's address instead. What they decide in a real cluster is not emulated:
everything is allowed.
"""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import trustme
from typing_extensions import override

_LONGEST_REVIEW = 8 * 1024 * 1024
"""Bytes. The API server takes objects of up to 3 MiB, and sends the old one beside the new one."""


@dataclass
class Webhooks:
    """The running server.

    Attributes:
        url: its address; the webhooks of a service lie below `/<service>/`.
        authority: the certificate to trust, as PEM.
        answering: services whose pods run; the others' webhooks fail, as where a Service has no endpoint.
    """

    url: str
    authority: str
    answering: frozenset[str] = field(default=frozenset())


@contextmanager
def serving() -> Iterator[Webhooks]:
    """Listen on a free loopback port with a certificate of this process's own, for no service yet."""
    authority = trustme.CA(organization_name="kai-anywhere-simulator")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            if length > _LONGEST_REVIEW:
                self.send_error(413)
                return
            sent = self.rfile.read(length)
            if self.path.split("/")[1] not in webhooks.answering:
                self.send_error(503, "no endpoints available for service")
                return
            review = json.loads(sent)
            response = {"uid": review["request"]["uid"], "allowed": True}
            body = json.dumps(
                {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
            ).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, format: str, *args: object) -> None:
            """Keep the process's log for what changes in the cluster."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        # The handshake belongs to the connection's own thread: a client that is slow there holds up nobody.
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        webhooks = Webhooks(f"https://127.0.0.1:{server.server_port}", authority.cert_pem.bytes().decode())
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield webhooks
        finally:
            server.shutdown()
            thread.join()
