"""What anybody can make the server hold or wait for has an end, and nobody can shut the others out."""

import asyncio
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from agents.admission.errors import RefusalError
from agents.admission.health import Health
from agents.admission.listener import Connection, Limits, Listener
from agents.admission.observability import Metrics
from agents.admission.pods import MAX_CONTAINERS, MAX_ENTRIES
from agents.admission.shares import Shares
from testbed.admission.objects import ENDPOINTS, gvirtus_pod, mutations, request, reservation_pod, served
from testbed.stacks import Json

US, OTHERS = "127.0.0.1", "127.0.0.2"
_GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@dataclass(eq=False)
class Holder:
    """Somebody who holds memory."""

    peer: str
    busy: bool = False
    evicted: bool = field(default=False)

    def evict(self) -> None:
        assert not self.evicted, "once is enough"
        self.evicted = True


class TestShares:
    """Who gets memory, and at whose cost."""

    def test_a_newcomer_gets_it_from_who_holds_most_and_from_there_the_one_that_is_idle_for_longest(self) -> None:
        shares = Shares(4)
        ours = Holder("a")
        idle = [Holder("b") for _ in range(3)]
        for holder in (ours, *idle):
            assert shares.take(holder, 1)
        assert shares.take(idle[0], 0), "it is active again"
        assert shares.take(Holder("c"), 1)
        assert [holder.evicted for holder in (ours, *idle)] == [False, False, True, False]
        assert shares.total == 4

    def test_those_that_are_served_go_last_and_never_for_one_of_their_own(self) -> None:
        shares = Shares(2)
        busy = [Holder("b", busy=True), Holder("b", busy=True)]
        for holder in busy:
            assert shares.take(holder, 1)
        assert not shares.take(Holder("b"), 1)
        assert not any(holder.evicted for holder in busy)
        assert shares.total == 2
        assert shares.take(Holder("a"), 1)
        assert [holder.evicted for holder in busy] == [True, False]

    def test_what_does_not_fit_at_all_takes_nothing(self) -> None:
        shares = Shares(2)
        assert not shares.take(Holder("a"), 3)
        assert shares.total == 0

    def test_who_was_evicted_has_nothing_to_give_back(self) -> None:
        shares = Shares(2)
        first = Holder("a")
        assert shares.take(first, 2)
        assert shares.take(Holder("a"), 2)
        shares.give(first, 2)
        shares.leave(first)
        assert shares.total == 2

    @given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5), st.booleans()), max_size=30))
    def test_there_is_never_more_than_the_limit_and_a_small_peer_always_gets_its_part(
        self, others: list[tuple[str, int, bool]]
    ) -> None:
        shares = Shares(12)
        for peer, size, busy in others:
            shares.take(Holder(peer, busy=busy), size)
            assert 0 <= shares.total <= 12
        assert shares.take(Holder("small"), 3), "a quarter, of four peers"


class Served:
    """A listener whose handler waits until it is told."""

    def __init__(self, limits: Limits, tls: ssl.SSLContext | None) -> None:
        self.closed: list[str] = []
        self.waiting: list[str] = []
        self.go = asyncio.Event()
        self.listener = Listener(self._answer, limits, tls=tls, closed=self.closed.append)

    async def _answer(self, _: web.BaseRequest, connection: Connection) -> web.StreamResponse:
        self.waiting.append(connection.peer)
        await self.go.wait()
        return web.Response(text="ok")


Connected = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def serve(
    limits: Limits,
    ask: Callable[[Served, Callable[[str], Awaitable[Connected]]], Awaitable[None]],
    tls: ssl.SSLContext | None = None,
) -> Served:
    """Serve while `ask` runs; it gets a way to connect from an address."""

    async def run() -> Served:
        made = Served(limits, tls)
        port = await made.listener.start("127.0.0.1", 0)
        writers: list[asyncio.StreamWriter] = []

        async def connect(peer: str) -> Connected:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(peer, 0))
            writers.append(writer)
            return reader, writer

        try:
            async with asyncio.timeout(60):
                await ask(made, connect)
        finally:
            made.go.set()
            for writer in writers:
                writer.transport.abort()
            await made.listener.stop()
        return made

    return asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is looked at knows no events
        await asyncio.sleep(0.01)


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the server ends the connection without a word."""
    with suppress(ConnectionError):
        return await reader.read() == b""
    return True


ROOM_FOR_FOUR = Limits(total_bytes=4, connection_bytes=1)


def test_of_too_many_connections_the_one_that_is_idle_for_longest_goes() -> None:
    async def ask(made: Served, connect: Callable[[str], Awaitable[Connected]]) -> None:
        first, *_ = [await connect(OTHERS) for _ in range(4)]
        await until(lambda: made.listener.shares.total == 4)
        made.go.set()
        _, writer = await connect(US)
        writer.write(_GET)
        assert await ended(first[0])
        await until(lambda: made.waiting == [US])

    assert serve(ROOM_FOR_FOUR, ask).closed == ["evicted"]


def test_a_peer_whose_connections_are_all_served_gets_no_more_and_another_one_does() -> None:
    async def ask(made: Served, connect: Callable[[str], Awaitable[Connected]]) -> None:
        for _ in range(4):
            _, writer = await connect(OTHERS)
            writer.write(_GET)
        await until(lambda: len(made.waiting) == 4)
        reader, _ = await connect(OTHERS)
        assert await ended(reader)
        assert made.closed == ["full"]
        _, writer = await connect(US)
        writer.write(_GET)
        await until(lambda: US in made.waiting)
        assert made.listener.shares.total == 4

    assert serve(ROOM_FOR_FOUR, ask).closed[:2] == ["full", "evicted"]


def test_what_ends_holds_nothing_any_more() -> None:
    async def ask(made: Served, connect: Callable[[str], Awaitable[Connected]]) -> None:
        made.go.set()
        for _ in range(9):
            reader, writer = await connect(US)
            writer.write(_GET)
            assert await reader.readuntil(b"ok")
            writer.close()
        await until(lambda: made.listener.shares.total == 0)

    assert serve(ROOM_FOR_FOUR, ask).closed == []


@pytest.mark.parametrize("sends", [b"", b"GET / HT", _GET[:-2]], ids=["nothing", "half a line", "half a head"])
def test_a_head_that_does_not_come_in_time_ends_the_connection(sends: bytes) -> None:
    async def ask(_: Served, connect: Callable[[str], Awaitable[Connected]]) -> None:
        reader, writer = await connect(US)
        writer.write(sends)
        assert await ended(reader)

    assert serve(Limits(head_seconds=0.2), ask).closed == ["late"]


def test_the_time_limit_of_a_head_holds_for_each_request_and_not_for_the_pause_between() -> None:
    async def ask(made: Served, connect: Callable[[str], Awaitable[Connected]]) -> None:
        made.go.set()
        reader, writer = await connect(US)
        for _ in range(2):
            writer.write(_GET)
            await reader.readuntil(b"ok")
            await asyncio.sleep(0.6)
        assert made.closed == []
        writer.write(b"GET")
        assert await ended(reader)

    assert serve(Limits(head_seconds=0.3), ask).closed == ["late"]


def test_one_peer_has_a_few_turns_at_a_time_and_keeps_nobody_else_waiting() -> None:
    async def ask(made: Served, connect: Callable[[str], Awaitable[Connected]]) -> None:
        for _ in range(5):
            _, writer = await connect(OTHERS)
            writer.write(_GET)
        await until(lambda: len(made.waiting) == 2)
        _, writer = await connect(US)
        writer.write(_GET)
        await until(lambda: US in made.waiting)
        assert made.waiting == [OTHERS, OTHERS, US]
        made.go.set()
        await until(lambda: len(made.waiting) == 6)

    serve(Limits(turns=2), ask)


def test_a_request_that_gets_no_turn_in_time_is_told_to_come_again() -> None:
    async def ask(made: Served, connect: Callable[[str], Awaitable[Connected]]) -> None:
        (_, first), (reader, second) = await connect(US), await connect(US)
        first.write(_GET)
        await until(lambda: len(made.waiting) == 1)
        second.write(_GET)
        assert b" 503 " in await reader.readline()

    assert "late" in serve(Limits(turns=1, answer_seconds=0.3), ask).closed


def test_requests_that_do_not_wait_for_answers_end_their_connection_and_keep_nobody_waiting() -> None:
    async def ask(made: Served, connect: Callable[[str], Awaitable[Connected]]) -> None:
        made.go.set()
        reader, writer = await connect(OTHERS)
        writer.write(_GET * 50)
        answers = await reader.read()
        assert answers.count(b" 200 ") == 1
        assert answers.count(b" 400 ") == 1
        assert answers.endswith(b"send a request once the last one is answered\n")
        assert made.waiting == [OTHERS], "the others were answered by nobody"

    assert serve(Limits(), ask).closed == ["pipelined"]


def test_a_request_that_comes_while_the_last_one_is_answered_ends_the_connection() -> None:
    async def ask(made: Served, connect: Callable[[str], Awaitable[Connected]]) -> None:
        reader, writer = await connect(US)
        writer.write(_GET)
        await until(lambda: made.waiting == [US])
        writer.write(_GET)
        await asyncio.sleep(0.05)
        made.go.set()
        answers = await reader.read()
        assert (answers.count(b" 200 "), answers.count(b" 400 ")) == (1, 1)

    assert serve(Limits(), ask).closed == ["pipelined"]


def test_a_body_that_comes_after_its_head_is_no_second_request() -> None:
    async def ask(made: Served, connect: Callable[[str], Awaitable[Connected]]) -> None:
        reader, writer = await connect(US)
        for number in range(1, 4):
            made.go.clear()
            writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n")
            await until(lambda expected=number: len(made.waiting) == expected)  # type: ignore[misc]  # the default binds
            writer.write(b"body")
            await asyncio.sleep(0.05)
            made.go.set()
            await reader.readuntil(b"ok")

    assert serve(Limits(), ask).closed == []


@pytest.mark.parametrize("line", [b"CONNECT  HTTP/1.1", b"CONNECT * HTTP/1.1", b"CONNECT / HTTP/1.1"])
def test_a_connect_without_a_proxy_is_answered_and_leaves_others_alone(
    line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def ask(made: Served, connect: Callable[[str], Awaitable[Connected]]) -> None:
        made.go.set()
        reader, writer = await connect(US)
        writer.write(line + b"\r\nHost: a\r\nConnection: close\r\n\r\n")
        await reader.read()
        reader, writer = await connect(US)
        writer.write(_GET)
        await reader.readuntil(b"ok")

    serve(Limits(head_seconds=5), ask)
    assert "asyncio" not in {record.name for record in caplog.records}


def _ask(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_health_is_told_while_the_webhooks_are_at_work_and_no_more_when_they_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    health = Health(lambda: ["not yet"], Metrics())
    with health.thread("127.0.0.1", 0) as port:
        # Nobody's event loop runs in this thread.
        assert _ask(port, "/healthz") == (200, "ok\n")
        assert _ask(port, "/readyz") == (503, "not yet\n")
        assert _ask(port, "/else")[0] == 404
        monkeypatch.setattr("agents.admission.health._STUCK_SECONDS", 0.05)
        time.sleep(0.1)
        assert _ask(port, "/healthz")[0] == 503
    with pytest.raises(urllib.error.URLError):
        _ask(port, "/healthz")


def test_a_port_of_health_that_is_taken_is_told_to_who_starts_it() -> None:
    health = Health(list, Metrics())
    with (
        health.thread("127.0.0.1", 0) as port,
        pytest.raises(OSError, match="Address already in use"),
        health.thread("127.0.0.1", port),
    ):
        pass


def _entries(count: int, key: str = "name") -> list[Json]:
    return [{"name": f"n{number}", key: f"/n{number}"} for number in range(count)]


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"containers": _entries(MAX_CONTAINERS + 1)}, "spec.containers"),
        ({"initContainers": _entries(MAX_CONTAINERS + 1)}, "spec.initContainers"),
        ({"volumes": _entries(MAX_ENTRIES + 1)}, "spec.volumes"),
        ({"containers": [{"name": "a", "env": _entries(MAX_ENTRIES + 1)}]}, "spec.containers[0].env"),
        (
            {"initContainers": [{"name": "a", "volumeMounts": _entries(MAX_ENTRIES + 1, "mountPath")}]},
            "spec.initContainers[0].volumeMounts",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_pod_with_lists_too_long_is_refused_before_work_and_told_which(changes: Json, place: str) -> None:
    remote, reserving = gvirtus_pod(), reservation_pod()
    for pod in (remote, reserving):
        pod["spec"] |= changes
    for name, pod in (("gvirtus", remote), ("reservation", reserving)):
        with pytest.raises(RefusalError) as caught:
            mutations()[name].apply(pod, ENDPOINTS)
        assert str(caught.value).startswith(f"{place} has ")
        assert "make the pod smaller" in str(caught.value)


def test_a_pod_that_asks_for_nothing_may_have_lists_of_any_length() -> None:
    pod = gvirtus_pod(*_entries(MAX_CONTAINERS + 1))
    pod["metadata"]["labels"] = {}
    for name in ("gvirtus", "reservation"):
        answer = served().answer(name, request(pod, namespace="default"))
        assert answer.allowed
        assert answer.patch is None


def test_a_handshake_that_is_pushed_out_is_ended_and_holds_nothing() -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    async def ask(made: Served, connect: Callable[[str], Awaitable[Connected]]) -> None:
        silent = [await connect(OTHERS) for _ in range(4)]
        await until(lambda: made.listener.shares.total == 4)
        _, mine = await connect(US)
        assert await ended(silent[0][0])
        mine.close()
        for _, writer in silent:
            writer.close()
        await until(lambda: made.listener.shares.total == 0)

    assert serve(ROOM_FOR_FOUR, ask, tls).closed == ["evicted"]
