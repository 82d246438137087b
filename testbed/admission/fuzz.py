"""Nonsense for the admission server, over real connections: each case gets an answer or a closed connection.

A third of the cases are good requests whose review has bytes changed, a third have values of the pod changed, and a
third are no good HTTP. The same seed gives the same cases.
"""

import asyncio
import json
import logging
import random
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from aiohttp.http_exceptions import HttpProcessingError
from typing_extensions import override

from agents.admission.certificates.tls import LiveTls
from agents.admission.listener import Limits, Listener
from agents.admission.observability import Metrics
from agents.admission.review import MAX_BODY_BYTES
from agents.admission.server import AdmissionServer
from testbed.admission.objects import body, reservation_pod, served

SEED = 20261122
_AT_ONCE = 64
_PATIENCE_SECONDS = 0.5
"""A request that is not whole has no answer: after this time the client says that nothing more comes."""
_END_SECONDS = 120.0
"""Whatever it was: by then the server has answered or closed."""
_LINE = b"POST /mutate/reservation HTTP/1.1"
_METHODS = (b"POST", b"GET", b"HEAD", b"PUT", b"OPTIONS", b"CONNECT", b"TRACE", b"post", b"P\x00ST", b"")
_PATHS = (
    *(b"/mutate/reservation", b"/mutate/gvirtus", b"/mutate/", b"/mutate/..%2f..", b"/mutate/%00", b"//", b"*", b"a:1"),
    *(b"http://b/mutate/reservation", b"/mutate/reservation?x=%zz", b"/mutate/reservation#y", b"/" + b"a" * 9_000, b""),
)
_VERSIONS = (b"HTTP/1.1", b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/9.9", b"http/1.1", b"", b"HTTP/1.1 ")
_LENGTHS = (b"0", b"1", b"-1", b"+5", b"5, 5", b"0x10", b"1e3", b"99999999999999999999", b"", b"\xb2", b"999999")
_HEADERS = (
    *(b"Content-Length: 3", b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", b"Content-Type: text/plain"),
    *(b"Content-Encoding: gzip", b"Content-Encoding: deflate", b"Content-Encoding: br", b"Content-Encoding: zstd"),
    *(b"Expect: 100-continue", b"Expect: tea", b"Connection: upgrade\r\nUpgrade: websocket", b"Connection: close"),
    *(b"Host: b", b": empty", b"no colon", b" folded: x", b"X-Zero: \x00", b"X-High: \xff\xfe", b"X-Cr: a\rb"),
    *(b"Content-Type: application/json; charset=none", b"Content-Type: ;;;", b"Cookie: =;=", b"Range: bytes=9-1"),
)
_TLS_HELLO = b"\x16\x03\x01\x02\x00\x01\x00"
_CHUNKS = (b"2\r\n{}\r\n", b"0\r\n\r\n", b"zz\r\n", b"-1\r\n", b"fffffffff\r\n", b"1;a=b\r\n{\r\n")
_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@dataclass
class Found:
    """What became of the cases.

    Attributes:
        counts: `answered` with a review, `client error`, `closed` without an answer.
        defects: what should not be, each with its case.
    """

    counts: Counter[str] = field(default_factory=Counter)
    defects: list[str] = field(default_factory=list)


def fuzz(cases: int, seed: int = SEED) -> Found:
    """Send that many cases to a server of our own without TLS; afterwards it still answers a good one."""
    return asyncio.run(_fuzz(cases, random.Random(seed)))  # noqa: S311 - repeatable on purpose


async def _fuzz(cases: int, chance: random.Random) -> Found:
    findings = Found()
    server = AdmissionServer(served(), LiveTls(), Metrics())
    listener = Listener(server.answer, Limits())
    port = await listener.start("127.0.0.1", 0)

    async def one(request: bytes) -> None:
        _judge(findings, request, await _answer(port, request))

    try:
        with _errors(findings):
            good = body(reservation_pod())
            tasks: set[asyncio.Task[None]] = set()
            for _ in range(cases):
                tasks.add(task := asyncio.create_task(one(_case(good, chance))))
                task.add_done_callback(tasks.discard)
                if len(tasks) >= _AT_ONCE:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(*tasks)
            last = Found()
            _judge(last, b"the last", await _answer(port, _request(good)))
            if last.counts != {"answered": 1}:
                findings.defects.append(f"a good request afterwards: {last}")
    finally:
        await listener.stop()
    return findings


async def _answer(port: int, request: bytes) -> bytes:
    """What comes back first: head and body of one response, or nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with suppress(ConnectionError):
            writer.write(request)
            await writer.drain()
        reading = asyncio.create_task(_response(reader))
        await asyncio.wait([reading], timeout=_PATIENCE_SECONDS)
        if not reading.done():
            with suppress(ConnectionError, OSError):
                writer.write_eof()
        return await asyncio.wait_for(reading, _END_SECONDS)
    finally:
        writer.close()


async def _response(reader: asyncio.StreamReader) -> bytes:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        while head.startswith(b"HTTP/1.1 100 "):
            head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)\r\n", head)
        return head + (await reader.readexactly(int(length[1])) if length else await reader.read())
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


def _judge(findings: Found, request: bytes, response: bytes) -> None:
    if not response:
        findings.counts["closed"] += 1
        return
    head, _, text = response.partition(b"\r\n\r\n")
    status = re.match(rb"HTTP/\d\.\d (\d{3}) ", head)
    if status is not None and status[1].startswith(b"4"):
        findings.counts["client error"] += 1
    elif status is not None and status[1] == b"200" and _is_sound(text):
        findings.counts["answered"] += 1
    else:
        findings.defects.append(f"{request[:2000]!r} got {response[:500]!r}")


def _is_sound(text: bytes) -> bool:
    """Whether a review answers the request, and tells of no defect of ours."""
    try:
        answer = json.loads(text)["response"]
    except (ValueError, KeyError):
        return False
    return bool(answer["uid"]) and (
        answer["allowed"] is True or answer["status"]["code"] != HTTPStatus.INTERNAL_SERVER_ERROR
    )


@contextmanager
def _errors(findings: Found) -> Iterator[None]:
    """What the server or aiohttp log as an error is a defect too, unless it says that the request was no HTTP."""

    class Handler(logging.Handler):
        @override
        def emit(self, record: logging.LogRecord) -> None:
            error = record.exc_info[1] if record.exc_info else None
            if not isinstance(error, HttpProcessingError):
                findings.defects.append(self.format(record))

    handler = Handler(logging.ERROR)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


def _request(review: bytes, *headers: bytes, line: bytes = _LINE, length: bytes | None = None) -> bytes:
    length = str(len(review)).encode() if length is None else length
    head = [line, b"Host: a", b"Content-Type: application/json", b"Content-Length: " + length, *headers]
    return b"\r\n".join(head) + b"\r\n\r\n" + review


def _case(good: bytes, chance: random.Random) -> bytes:
    match chance.randrange(3):
        case 0:
            return _request(_other_bytes(good, chance))
        case 1:
            return _request(body(_other_values(reservation_pod(), chance)))
        case _:
            return _no_good_http(good, chance)


def _no_good_http(good: bytes, chance: random.Random) -> bytes:  # noqa: PLR0911 - one kind of nonsense per line
    head, _, review = _request(good).partition(b"\r\n\r\n")
    match chance.randrange(10):
        case 0:
            return _other_bytes(head, chance) + b"\r\n\r\n" + review
        case 1:
            return _request(good, line=b" ".join(chance.choice(kinds) for kinds in (_METHODS, _PATHS, _VERSIONS)))
        case 2:
            return _request(good, length=chance.choice(_LENGTHS))
        case 3:
            return _request(good, *chance.choices(_HEADERS, k=chance.randint(1, 4)))
        case 4:
            return _request(good, b"X-Long: " + b"x" * chance.choice([8_000, 9_000, 100_000]))
        case 5:
            return _request(good, *(b"X-%d: y" % number for number in range(chance.choice([10, 1_000]))))
        case 6:
            head = head.replace(b"Content-Length: %d" % len(good), b"Transfer-Encoding: chunked")
            return head + b"\r\n\r\n" + b"".join(chance.choices(_CHUNKS, k=3))
        case 7:
            packed = zlib.compress(b" " * chance.choice([10, 100_000, 2 * MAX_BODY_BYTES]) + good)
            return _request(packed, b"Content-Encoding: deflate")
        case 8:
            return _request(good)[: chance.randrange(len(good))]
        case _:
            return chance.choice([chance.randbytes(chance.randint(1, 300)), _TLS_HELLO, _HTTP2, b"", b"\r\n" * 50])


def _other_bytes(whole: bytes, chance: random.Random) -> bytes:
    data = bytearray(whole)
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[place] = chance.randrange(256)
            case 1:
                del data[place : place + chance.randint(1, 20)]
            case 2:
                data[place:place] = chance.choice([b"null", b"{", b"[]", b'"', b"-1e9", b"\\u0000", b"true,"])
            case _:
                data[place:place] = data[place : place + chance.randint(1, 60)]
    return bytes(data)


def _other_values(value: Any, chance: random.Random) -> Any:  # noqa: ANN401 - JSON
    """The value with about one in thirty of its parts replaced."""
    if chance.random() < 1 / 30:
        return chance.choice(
            [None, True, -1, 1e300, "", "\x00", "dev-nvidia", [], [None], {}, {"name": 1}, [{"name": ""}]]
        )
    match value:
        case dict():
            return {key: _other_values(item, chance) for key, item in value.items()}
        case list():
            return [_other_values(item, chance) for item in value for _ in range(chance.choice([1, 1, 1, 1, 2]))]
        case _:
            return value
