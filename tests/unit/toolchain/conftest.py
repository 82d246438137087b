"""Fixtures of the toolchain's tests: a private cache, programs that are small scripts, an HTTP server on loopback."""

import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from testbed import http_server
from toolchain import cache, download, path_lookup

Lay = Callable[..., Path]


def next_process() -> None:
    """Forget what a process remembers of the programs on PATH."""
    path_lookup._ask.cache_clear()


@pytest.fixture
def cache_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The toolchain's cache folder of one test; nothing is in it."""
    monkeypatch.setenv(cache.LOCATION_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "toolchain"


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_root: Path) -> Lay:
    """Lay scripts into a folder that is all of PATH: `on_path("etcd", "etcd Version: 3.6.5")` prints that line."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "pulumi-home"))
    # The interpreter's folder is searched first; a test must not find what this machine has there.
    interpreter = tmp_path / "interpreter" / "python"
    monkeypatch.setattr(sys, "executable", str(interpreter))
    assert not cache_root.exists()

    def lay(name: str, prints: str = "", *, script: str | None = None, into: Path = folder) -> Path:
        into.mkdir(parents=True, exist_ok=True)
        program = into / name
        program.write_text(f"#!/bin/sh\n{script if script is not None else f'echo {shlex.quote(prints)}'}\n")
        program.chmod(0o755)
        next_process()
        return program

    return lay


@dataclass
class Site:
    """What the server answers: bodies by path; `cut` paths break off after half of their body.

    First come the statuses of `busy`, for whatever path.
    """

    address: str
    bodies: dict[str, bytes] = field(default_factory=dict)
    cut: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    busy: list[int] = field(default_factory=list)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A real HTTP server on a free loopback port, which is asked again without a pause."""
    monkeypatch.setattr(download, "_PAUSES", (0, 0, 0))
    held: list[Site] = []

    class Handler(http_server.Handler):
        def do_HEAD(self) -> None:
            self.answer(200)

        def do_GET(self) -> None:
            held[0].asked.append(self.path)
            body = held[0].bodies.get(self.path)
            if held[0].busy:
                self.send_error(held[0].busy.pop(0))
                return
            if body is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if self.path in held[0].cut else body)

    with http_server.serving(Handler) as port:
        held.append(Site(f"http://127.0.0.1:{port}"))
        yield held[0]
