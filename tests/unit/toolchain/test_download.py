"""Official downloads from a real HTTP server: verified, unpacked, or refused."""

import hashlib
import io
import os
import socket
import tarfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.toolchain.conftest import Site
from toolchain import ToolchainError
from toolchain.download import OFFLINE_VARIABLE, DownloadUnavailableError, downloaded, reachable
from toolchain.official import Asset, ChecksumFile, Download, PinnedChecksum

pytestmark = pytest.mark.usefixtures("cache_root")


def _tar(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("release/linked")
        link.type = tarfile.SYMTYPE
        link.linkname = "/etc/passwd"
        tar.addfile(link)
    return packed.getvalue()


def _zip(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:
        for name, content in files.items():
            zipped.writestr(name, content)
    return packed.getvalue()


def _sums(body: bytes, name: str) -> bytes:
    return f"{'0' * 64}  other-{name}\n{hashlib.sha256(body).hexdigest()}  {name}\n".encode()


def _download(site: Site, name: str, *files: str) -> Download:
    return Download("tool", "1.0.0", (Asset(f"{site.address}/{name}", ChecksumFile(f"{site.address}/SUMS"), files),))


def _leftovers(cache_root: Path) -> list[str]:
    return [path.name for path in cache_root.iterdir() if path.suffix != ".lock"]


@pytest.mark.parametrize("pack", [_tar, _zip])
def test_the_named_files_of_a_verified_archive_are_taken_out_and_nothing_else(site: Site, pack: object) -> None:
    assert callable(pack)
    body = pack(
        {"release/tool": b"tool!", "release/bin/helper": b"helper!", "../../escaped": b"evil", "release/doc": b""}
    )
    name = "tool.zip" if pack is _zip else "tool.tar.gz"
    site.bodies = {f"/{name}": body, "/SUMS": _sums(body, name)}
    folder = downloaded(_download(site, name, "tool", "helper"))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"tool": b"tool!", "helper": b"helper!"}
    assert all(os.access(path, os.X_OK) for path in folder.iterdir())


def test_a_bare_executable_with_its_own_checksum_file_is_stored_under_the_programs_name(site: Site) -> None:
    site.bodies = {"/tool-linux": b"binary", "/SUMS": hashlib.sha256(b"binary").hexdigest().encode()}
    folder = downloaded(_download(site, "tool-linux", "tool"))
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [("tool", b"binary")]


def test_a_second_call_asks_the_host_nothing(site: Site) -> None:
    site.bodies = {"/tool-linux": b"binary", "/SUMS": hashlib.sha256(b"binary").hexdigest().encode()}
    first = downloaded(_download(site, "tool-linux", "tool"))
    site.asked.clear()
    assert downloaded(_download(site, "tool-linux", "tool")) == first
    assert site.asked == []


def test_a_wrong_checksum_names_both_sums_and_leaves_no_file(site: Site, cache_root: Path) -> None:
    site.bodies = {"/tool-linux": b"other bytes", "/SUMS": hashlib.sha256(b"binary").hexdigest().encode()}
    with pytest.raises(ToolchainError) as caught:
        downloaded(_download(site, "tool-linux", "tool"))
    assert hashlib.sha256(b"other bytes").hexdigest() in str(caught.value)
    assert hashlib.sha256(b"binary").hexdigest() in str(caught.value)
    assert _leftovers(cache_root) == []


def test_a_wrong_pinned_checksum_is_refused_too(site: Site, cache_root: Path) -> None:
    site.bodies = {"/tool": b"binary"}
    asset = Asset(f"{site.address}/tool", PinnedChecksum("0" * 64), ("tool",))
    with pytest.raises(ToolchainError, match=r"0{64}"):
        downloaded(Download("tool", "1.0.0", (asset,)))
    assert _leftovers(cache_root) == []


@pytest.mark.parametrize("status", [429, 502])
def test_a_busy_host_is_asked_again_before_anything_else_is_tried(
    site: Site, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    site.bodies = {"/tool-linux": b"binary", "/SUMS": hashlib.sha256(b"binary").hexdigest().encode()}
    site.busy = [status] * 3
    assert [path.name for path in downloaded(_download(site, "tool-linux", "tool")).iterdir()] == ["tool"]
    assert site.asked == ["/SUMS"] * 4 + ["/tool-linux"]
    assert (
        capsys.readouterr().err.count(f"/SUMS: HTTPStatusError: {'Client' if status == 429 else 'Server'} error") == 3
    )


def test_a_host_that_stays_busy_or_has_no_such_file_makes_the_download_unavailable(site: Site) -> None:
    site.busy = [429] * 9
    with pytest.raises(DownloadUnavailableError, match="429"):
        downloaded(_download(site, "tool-linux", "tool"))
    assert len(site.asked) == 4
    site.busy = [404]
    with pytest.raises(DownloadUnavailableError, match="404"):
        downloaded(_download(site, "tool-linux", "tool"))
    assert len(site.asked) == 5


def test_a_cut_connection_leaves_no_file(site: Site, cache_root: Path) -> None:
    site.bodies = {"/tool-linux": b"binary" * 100_000, "/SUMS": b"0" * 64}
    site.cut = {"/tool-linux"}
    with pytest.raises(DownloadUnavailableError, match="tool-linux"):
        downloaded(_download(site, "tool-linux", "tool"))
    assert _leftovers(cache_root) == []


@pytest.mark.parametrize(
    ("bodies", "reason"),
    [
        ({"/SUMS": b"0" * 64}, "404"),
        ({"/tool-linux": b"binary"}, "SUMS: HTTPStatusError: Client error '404"),
        ({"/tool-linux": b"binary", "/SUMS": b"<html>not found</html>"}, "lists no SHA-256 of tool-linux"),
    ],
)
def test_a_missing_file_or_checksum_makes_the_download_unavailable(
    site: Site, cache_root: Path, bodies: dict[str, bytes], reason: str
) -> None:
    site.bodies = bodies
    with pytest.raises(DownloadUnavailableError, match=reason):
        downloaded(_download(site, "tool-linux", "tool"))
    assert _leftovers(cache_root) == []


def test_nothing_is_downloaded_whose_checksum_is_not_known_first(site: Site) -> None:
    site.bodies = {"/tool-linux": b"binary"}
    with pytest.raises(DownloadUnavailableError):
        downloaded(_download(site, "tool-linux", "tool"))
    assert "/tool-linux" not in site.asked


def test_an_archive_without_the_program_makes_the_download_unavailable(site: Site, cache_root: Path) -> None:
    body = _tar({"release/other": b""})
    site.bodies = {"/tool.tar.gz": body, "/SUMS": _sums(body, "tool.tar.gz")}
    with pytest.raises(DownloadUnavailableError, match=r"holds no tool and no linked"):
        downloaded(_download(site, "tool.tar.gz", "tool", "linked"))
    assert _leftovers(cache_root) == []


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port whose listener takes connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_host_that_never_answers_is_found_out_within_seconds_and_asked_once(
    silent_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    started = time.monotonic()
    assert not reachable(f"https://127.0.0.1:{silent_port}/tool")
    assert time.monotonic() - started < 5
    started = time.monotonic()
    assert not reachable(f"https://127.0.0.1:{silent_port}/another")
    assert time.monotonic() - started < 0.5
    said = capsys.readouterr().err
    assert said.count("cannot reach 127.0.0.1") == 1
    assert "building" not in said, "a chart that cannot be reached is not built"


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("HTTPS_PROXY", "socks5://127.0.0.1:9", "Using SOCKS proxy"),
        ("HTTPS_PROXY", "http://[::1", "Invalid port"),
        ("SSL_CERT_FILE", "/nowhere/ca.pem", "No such file"),
    ],
)
def test_an_environment_that_no_connection_can_use_is_told_in_one_line(
    variable: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for other in ("NO_PROXY", "no_proxy", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(variable, value)
    assert not reachable(f"https://{variable}.{len(value)}.example.invalid/tool".lower())
    [line] = capsys.readouterr().err.splitlines()
    assert "HTTPS_PROXY, ALL_PROXY or SSL_CERT_FILE can't be used" in line
    assert says in line


def test_a_host_that_answers_is_reachable_and_a_closed_port_is_not(site: Site, silent_port: int) -> None:
    assert reachable(f"{site.address}/tool")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    assert port != silent_port
    assert not reachable(f"http://127.0.0.1:{port}/tool")


def test_offline_asks_no_host(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OFFLINE_VARIABLE, "1")
    assert not reachable(f"{site.address}/tool")
    monkeypatch.setenv(OFFLINE_VARIABLE, "0")
    assert reachable(f"{site.address}/tool")
