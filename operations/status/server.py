"""`status --serve`: the page on loopback, for this machine alone."""

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from typing_extensions import override

from cluster.errors import ClusterError
from operations.status.page import page, policy
from sharing_map.report import Status

ADDRESS = "127.0.0.1"
REFRESH_SECONDS = 5
"""A page asks for a new one as often; the cluster is read at most as often, however many ask."""
_IDLE_SECONDS = 30
"""A client that says nothing for so long is left."""


@dataclass
class Latest:
    """What was read last, read anew when it is older than `REFRESH_SECONDS`.

    Attributes:
        read: reads the cluster.
        clock: seconds, of any start.
        status: what was read last; None where nothing was yet.
        away: why the cluster could not be read after that; empty where it could.
    """

    read: Callable[[], Status]
    clock: Callable[[], float] = time.monotonic
    status: Status | None = None
    away: str = ""
    _tried: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self) -> tuple[Status | None, str]:
        """The newest status there is, and why it is an old one, if it is."""
        with self._lock:
            now = self.clock()
            if self._tried is None or now - self._tried >= REFRESH_SECONDS:
                try:
                    self.status, self.away = self.read(), ""
                except ClusterError as error:
                    self.away = str(error).splitlines()[0]
                self._tried = self.clock()
            return self.status, self.away


class Server(ThreadingHTTPServer):
    """Serves the page at `/`, and the same as JSON at `/status.json`.

    A thread per connection, since a browser opens connections that it does not use; one at a time reads the cluster.
    """

    daemon_threads = True

    def __init__(self, latest: Latest, port: int) -> None:
        super().__init__((ADDRESS, port), _Handler)
        self.latest = latest

    @property
    def address(self) -> str:
        """Where it is."""
        return f"http://{ADDRESS}:{self.server_port}/"

    @property
    def names(self) -> frozenset[str]:
        """What a request's Host may say: anything else is a page of somebody else's whose name leads here."""
        return frozenset({f"{ADDRESS}:{self.server_port}", f"localhost:{self.server_port}"})

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is none of ours; everything else is a line, not a traceback."""
        error = sys.exception()
        if not isinstance(error, OSError):
            sys.stderr.write(f"A request could not be answered: {error!r}\n")


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version = "kai-anywhere"
    sys_version = ""
    timeout = _IDLE_SECONDS

    def do_GET(self) -> None:
        if self.headers.get("Host") not in self.server.names:
            allowed = " or ".join(sorted(self.server.names))
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", f"The Host of this server is {allowed}.\n")
            return
        path = self.path.partition("?")[0]
        if path not in {"/", "/status.json"}:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "There are / and /status.json here.\n")
            return
        status, away = self.server.latest.get()
        if status is None or (away and path != "/"):
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"{away}\n")
        elif path == "/":
            self._answer(HTTPStatus.OK, "text/html", page(status, refresh_seconds=REFRESH_SECONDS, away=away))
        else:
            self._answer(HTTPStatus.OK, "application/json", status.model_dump_json())

    def do_HEAD(self) -> None:
        self.do_GET()

    def _answer(self, code: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(code)
        for name, value in (
            ("Content-Type", f"{kind}; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Content-Security-Policy", f"{policy(refreshed=True)}; frame-ancestors 'none'"),
            ("Cache-Control", "no-store"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("X-Content-Type-Options", "nosniff"),
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Requests are not worth a line."""
