"""HTTP servers on loopback, each for as long as a block lasts."""

import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType

from typing_extensions import override


class Handler(BaseHTTPRequestHandler):
    """Reads and answers whole bodies, and logs nothing."""

    def body(self) -> bytes:
        """What was sent, in one piece or in chunks."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(chunks)

    def answer(self, status: int, body: bytes = b"", headers: Mapping[str, str] = MappingProxyType({})) -> None:
        """Answer; the length is said of the body, unless the headers say one."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the output is of those who ask."""


class _Server(ThreadingHTTPServer):
    # Those who ask in parallel fill the usual queue of five on a busy machine, and wait for seconds then.
    request_queue_size = 128

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away, or refuses a certificate, is what a test asks for."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextmanager
def serving(
    handler: Callable[..., BaseHTTPRequestHandler],
    tls: ssl.SSLContext | None = None,
    *,
    look_again_seconds: float = 0.01,
) -> Iterator[int]:
    """Answer on a free port of loopback, which the block gets; it ends as soon as the server looks whether it may."""
    with _Server(("127.0.0.1", 0), handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(look_again_seconds,), daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
