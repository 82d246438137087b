"""Fetches official downloads: is the host there at all, then stream, verify, unpack."""

import functools
import hashlib
import os
import re
import shutil
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast
from urllib.parse import urlsplit

from toolchain import cache
from toolchain.errors import ToolchainError
from toolchain.official import Asset, ChecksumFile, Download, PinnedChecksum
from toolchain.progress import mebibytes, progress, say

if TYPE_CHECKING:
    import httpx2

OFFLINE_VARIABLE = "KAI_ANYWHERE_OFFLINE"
_CONNECT_SECONDS = 3.0
_READ_SECONDS = 30.0
_PROBE_SECONDS = 4.0
_CHUNK_BYTES = 1 << 18
_PAUSES: tuple[float, ...] = (2, 10, 30)
"""How long to wait before a file is asked for again, each time: what else there is, a build, takes many minutes."""
_TOO_MANY_REQUESTS = 429
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


class DownloadUnavailableError(Exception):
    """The download can't be had just now; the message is the reason, as part of a sentence."""


def downloaded(download: Download) -> Path:
    """The cache entry with the download's verified executables; fetches it if it is missing.

    Raises:
        DownloadUnavailableError: A file is not there, or the connection broke.
        ToolchainError: A file's checksum is not the published one, or the cache can't be written.
    """

    def fill(into: Path) -> None:
        for asset in download.assets:
            _fetch(asset, into)

    return cache.obtain(download.entry, download.files, what=f"{download.name} {download.version}", fill=fill)


def reachable(url: str) -> bool:
    """Tell within seconds whether the host of an address answers; asks each host once per process."""
    if os.environ.get(OFFLINE_VARIABLE, "0") not in ("", "0"):
        _say_offline()
        return False
    parts = urlsplit(url)
    return _host_answers(f"{parts.scheme}://{parts.netloc}/")


@functools.cache
def _say_offline() -> None:
    say(f"{OFFLINE_VARIABLE} is set: nothing is downloaded")


@functools.cache
def _host_answers(address: str) -> bool:
    outcome: list[str] = []

    def ask() -> None:
        import httpx2  # noqa: PLC0415 - a cached toolchain needs no HTTP client, and it takes 0.2 s to import

        try:
            httpx2.head(address, timeout=_CONNECT_SECONDS)
        except httpx2.HTTPError as error:
            outcome.append(_reason(error))
        # A proxy or a file of certificates that the environment names may be none, which are errors of many kinds.
        except Exception as error:  # noqa: BLE001
            outcome.append(f"HTTPS_PROXY, ALL_PROXY or SSL_CERT_FILE can't be used: {error}")
        else:
            outcome.append("")

    # A thread, because no timeout of the client covers the name's resolution, nor all of a host's addresses together.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_PROBE_SECONDS)
    problem = outcome[0] if outcome else f"no answer within {_PROBE_SECONDS:.0f} s"
    if problem:
        say(f"cannot reach {urlsplit(address).hostname} ({problem})")
    return not problem


def _reason(error: "httpx2.HTTPError") -> str:
    """The innermost cause in a few words: the outer ones repeat addresses and object names."""
    inner: BaseException = error
    while inner.__cause__ or inner.__context__:
        inner = cast("BaseException", inner.__cause__ or inner.__context__)
    first_line = str(inner).partition("\n")[0]
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__


def _fetch(asset: Asset, into: Path) -> None:
    name = asset.url.rpartition("/")[2]
    published = _published_sha256(asset, name)
    archive = into / f"{name}.download"
    digest = _stream(asset.url, archive, name)
    if digest != published:
        archive.unlink()
        raise ToolchainError(
            f"The download {asset.url} is not the published file; it was deleted.",
            why=f"its SHA-256 is {digest}, the published one is {published}",
            remedy=f"try again; if it stays, something between here and there changes downloads: "
            f"export {OFFLINE_VARIABLE}=1 builds from Go modules instead",
        )
    _unpack(archive, name, asset.files, into)
    archive.unlink(missing_ok=True)


def _published_sha256(asset: Asset, name: str) -> str:
    match asset.checksum:
        case PinnedChecksum(sha256):
            return sha256
        case ChecksumFile(url):
            if not reachable(url):
                raise DownloadUnavailableError(f"cannot reach its checksums at {url}")
            return _listed_sha256(_text(url), name, url)


def _listed_sha256(text: str, name: str, url: str) -> str:
    for line in text.splitlines():
        match line.split():
            case [sha256] if _SHA256.fullmatch(sha256):
                return sha256.lower()
            case [sha256, listed] if _SHA256.fullmatch(sha256) and listed.removeprefix("*") == name:
                return sha256.lower()
            case _:
                continue
    raise DownloadUnavailableError(f"{url} lists no SHA-256 of {name}")


def _text(url: str) -> str:
    import httpx2  # noqa: PLC0415 - see above

    timeout = httpx2.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS)
    return _insisted(url, lambda: httpx2.get(url, timeout=timeout, follow_redirects=True).raise_for_status().text)


def _stream(url: str, target: Path, title: str) -> str:
    """Write an address's body to a file and give its SHA-256."""
    import httpx2  # noqa: PLC0415 - see above

    timeout = httpx2.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS)

    def once() -> str:
        digest = hashlib.sha256()
        with httpx2.stream("GET", url, timeout=timeout, follow_redirects=True) as response:
            response.raise_for_status()
            total = int(response.headers.get("Content-Length", "0"))
            with target.open("wb") as file, progress(f"downloading {title}", total, mebibytes) as advance:
                for chunk in response.iter_bytes(_CHUNK_BYTES):
                    file.write(chunk)
                    digest.update(chunk)
                    advance(len(chunk))
        return digest.hexdigest()

    return _insisted(url, once)


def _insisted(url: str, ask: Callable[[], str]) -> str:
    """What comes of asking, again and again while the host is busy or the connection breaks."""
    import httpx2  # noqa: PLC0415 - see above

    pauses = iter(_PAUSES)
    while True:
        try:
            return ask()
        except httpx2.HTTPError as error:
            pause = next(pauses, None) if _may_pass(error) else None
            if pause is None:
                raise DownloadUnavailableError(f"{url}: {_reason(error)}") from error
            say(f"{url}: {_reason(error)}: asking again in {pause:g} s")
            time.sleep(pause)


def _may_pass(error: "httpx2.HTTPError") -> bool:
    import httpx2  # noqa: PLC0415 - see above

    if isinstance(error, httpx2.HTTPStatusError):
        return error.response.is_server_error or error.response.status_code == _TOO_MANY_REQUESTS
    return isinstance(error, httpx2.TransportError)


def _unpack(archive: Path, name: str, files: tuple[str, ...], into: Path) -> None:
    """Take the named files out, wherever in the archive they lie.

    Each is copied to its own name, and nothing else is unpacked: no path, link or mode of the archive is ever used.
    (`tarfile`'s extraction filters are missing in Python 3.11.0 to 3.11.3, which Debian 12 has.)
    """
    if name.endswith(".tar.gz"):
        with tarfile.open(archive) as tar:
            for member in tar:
                file = member.name.rpartition("/")[2]
                if member.isreg() and file in files and (content := tar.extractfile(member)):
                    with content:
                        _write(cast("BinaryIO", content), into / file)
    elif name.endswith(".zip"):
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                file = info.filename.rpartition("/")[2]
                if file in files:
                    with zipped.open(info) as content:
                        _write(cast("BinaryIO", content), into / file)
    else:
        archive.rename(into / files[0])
    if missing := [file for file in files if not (into / file).exists()]:
        raise DownloadUnavailableError(f"{name} holds no {' and no '.join(missing)}")
    for file in files:
        (into / file).chmod(0o755)


def _write(content: BinaryIO, target: Path) -> None:
    with target.open("wb") as file:
        shutil.copyfileobj(content, file)
