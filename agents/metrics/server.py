"""The HTTP server: /metrics, /healthz and /readyz, without TLS."""

from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6, IPPROTO_IPV6, IPV6_V6ONLY, SHUT_RDWR, has_dualstack_ipv6
from socketserver import BaseServer
from threading import BoundedSemaphore
from typing import Any

from prometheus_client.exposition import choose_encoder
from typing_extensions import override

from agents.metrics.reader import Reader

_IDLE_SECONDS = 10
_MOST_CONNECTIONS = 32
_ROOM_SECONDS = 1
"""A thread that works on an answer is waited for so long."""
_TEXT = "text/plain; charset=utf-8"


class Server(ThreadingHTTPServer):
    """A thread per connection, of which there are only so many: what comes beyond takes the place of the oldest.

    Everybody in the cluster reaches the port. A request is answered within a second, so the oldest connection is one of
    a client that sends or reads slowly; closing new ones instead would shut out Prometheus and the kubelet.
    """

    daemon_threads = True
    request_queue_size = 128
    """Connections that wait to be taken. Of a burst beyond the default of 5, the kernel drops some for a second."""

    def __init__(self, host: str | None, port: int, reader: Reader) -> None:
        self._both = host is None and has_dualstack_ipv6()
        self.address_family = AF_INET6 if self._both or ":" in (host or "") else AF_INET
        super().__init__((host or "", port), _Handler)
        self.reader = reader
        self._free = BoundedSemaphore(_MOST_CONNECTIONS)
        self._open: dict[Any, None] = {}

    @override
    def server_bind(self) -> None:
        """Take the address: a pod's may be IPv4, IPv6, or both."""
        if self._both:
            self.socket.setsockopt(IPPROTO_IPV6, IPV6_V6ONLY, 0)
        super().server_bind()

    @override
    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            for oldest in list(self._open)[:1]:
                # Its thread sees the end of the connection.
                with suppress(OSError):
                    oldest.shutdown(SHUT_RDWR)
            if not self._free.acquire(timeout=_ROOM_SECONDS):
                self.shutdown_request(request)
                return
        self._open[request] = None
        super().process_request(request, client_address)

    @override
    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.pop(request, None)
            self._free.release()

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is none of ours."""


class _Handler(BaseHTTPRequestHandler):
    server_version = "kai-anywhere-metrics"
    sys_version = ""
    timeout = _IDLE_SECONDS

    def do_GET(self) -> None:
        reader = _reader(self.server)
        match self.path.partition("?")[0]:
            case "/metrics":
                encode, kind = choose_encoder(self.headers.get("Accept", ""))
                self._answer(HTTPStatus.OK, kind, encode(reader.registry))
            case "/healthz":
                if reader.stuck:
                    self._answer(HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, b"a read does not end\n")
                else:
                    self._answer(HTTPStatus.OK, _TEXT, b"ok\n")
            case "/readyz":
                if reader.status is None:
                    self._answer(HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, b"the cluster was not read\n")
                else:
                    self._answer(HTTPStatus.OK, _TEXT, b"ok\n")
            case _:
                self._answer(HTTPStatus.NOT_FOUND, _TEXT, b"there are /metrics, /healthz and /readyz\n")

    def _answer(self, code: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Requests are not worth a line."""


def _reader(server: BaseServer) -> Reader:
    assert isinstance(server, Server)  # noqa: S101 - what this module starts it with
    return server.reader
