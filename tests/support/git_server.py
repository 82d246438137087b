"""A Git server at https://git.example.com: git's own HTTP backend behind TLS, reached through a proxy on loopback.

A package's folder is named by its address, and Python makes no environment in a folder with a colon: so the server
needs an address without a port. The proxy (HTTPS_PROXY) leads that one name here, and every other host to itself.
"""

import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import certifi
import trustme

from testbed.http_server import Handler, serving

HOST = "git.example.com"


@dataclass(frozen=True)
class GitServer:
    """A server that runs.

    Attributes:
        folder: what it serves: `ORG/REPOSITORY.git`.
        variables: with these, Go programs trust it and find it; everything else stays as it is.
        asked: hosts that were connected to, in their order.
    """

    folder: Path
    variables: dict[str, str]
    asked: list[str]


@contextmanager
def git_server(folder: Path) -> Iterator[GitServer]:
    """Serve bare repositories below `folder`/repositories until the block ends."""
    repositories = folder / "repositories"
    repositories.mkdir(parents=True)
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST).configure_cert(context)
    trusted = folder / "trusted.pem"
    others = Path(os.environ.get("SSL_CERT_FILE", certifi.where()))
    trusted.write_bytes(others.read_bytes() + authority.cert_pem.bytes())
    asked: list[str] = []
    with (
        serving(partial(_GitBackend, repositories), context) as server,
        serving(partial(_Proxy, server, asked)) as proxy,
    ):
        yield GitServer(repositories, _variables(trusted, proxy), asked)


def _variables(trusted: Path, proxy: int) -> dict[str, str]:
    address = f"http://127.0.0.1:{proxy}"
    local = "127.0.0.1,localhost"
    variables = {"SSL_CERT_FILE": str(trusted)}
    variables |= dict.fromkeys(("HTTPS_PROXY", "https_proxy"), address)
    variables |= dict.fromkeys(("NO_PROXY", "no_proxy"), local)
    # pip goes where it went before.
    if ours := os.environ.get("HTTPS_PROXY", os.environ.get("https_proxy")):
        variables["PIP_PROXY"] = ours
    return variables


class _GitBackend(Handler):
    protocol_version = "HTTP/1.1"

    def __init__(self, repositories: Path, *arguments: object) -> None:
        self._repositories = repositories
        super().__init__(*arguments)  # type: ignore[arg-type]

    def _answer(self) -> None:
        path, _, query = self.path.partition("?")
        body = self.body()
        variables = {
            "GIT_PROJECT_ROOT": str(self._repositories),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_ADDR": "127.0.0.1",
        }
        answer = subprocess.run(
            ["git", "http-backend"], input=body, env=os.environ | variables, check=True, capture_output=True
        ).stdout
        head, _, content = answer.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.answer(int(headers.pop("Status", "200").split()[0]), content, headers)

    do_GET = do_POST = _answer


class _Proxy(Handler):
    def __init__(self, port: int, asked: list[str], *arguments: object) -> None:
        self._port, self._asked = port, asked
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_CONNECT(self) -> None:
        host, _, port = self.path.rpartition(":")
        self._asked.append(host)
        try:
            there = socket.create_connection(("127.0.0.1", self._port) if host == HOST else (host, int(port)), 30)
        except OSError as error:
            self.send_error(502, str(error))
            return
        there.settimeout(None)
        self.send_response(200)
        self.end_headers()
        with there:
            back = threading.Thread(target=_pass_on, args=(there, self.connection), daemon=True)
            back.start()
            _pass_on(self.connection, there)
            back.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
