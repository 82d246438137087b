"""Connections, bounded: how many there are, what they hold, and how long each step of them may take.

Everybody in the cluster reaches the server's ports, and nothing tells an API server from anybody else: so memory is
shared out by peer (`shares`), and no peer has more than a few handshakes and requests under way at a time.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import cast
from weakref import WeakValueDictionary

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from typing_extensions import override
from yarl import URL

from agents.admission.shares import Shares

_LOG = logging.getLogger(__name__)
Handler = Callable[[web.BaseRequest, "Connection"], Awaitable[web.StreamResponse]]
_MIB = 1024 * 1024
_ACCEPTS = 16
"""Connections that are accepted before others get their turn."""


@dataclass(frozen=True)
class Limits:
    """What connections may take.

    Attributes:
        total_bytes: held by all of them together.
        connection_bytes: held by each, TLS and buffers; measured by `make bench-admission`.
        turns: handshakes and requests of one peer at a time; others of it wait.
        head_seconds: for the handshake and the first request's head, and for each further head from its first byte.
        answer_seconds: for a request, from its head to its answer. No webhook's timeout is longer.
        idle_seconds: between requests. Longer than an API server keeps an idle connection (90 s): we never close one
            that it is about to use.
    """

    total_bytes: int = 96 * _MIB
    connection_bytes: int = 384 * 1024
    turns: int = 8
    head_seconds: float = 10
    answer_seconds: float = 10
    idle_seconds: float = 300


class Connection(web.RequestHandler):
    """One connection: aiohttp's HTTP/1.1 protocol, and what it holds.

    Attributes:
        peer: the address that it comes from.
        busy: whether a request is being answered.
        turn: of its peer.
    """

    __slots__ = ("_deadline", "_listener", "_reading", "_received", "busy", "peer", "task", "turn")

    def __init__(self, listener: "Listener", manager: web.Server, peer: str, turn: asyncio.Semaphore) -> None:
        super().__init__(
            manager,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # aiohttp's own way to say that there is none
            # A body's size is then what Content-Length says; the handler refuses encodings.
            auto_decompress=False,
            keepalive_timeout=listener.limits.idle_seconds,
            lingering_time=1,
            read_bufsize=16 * 1024,
            # An API server sends some ten short fields.
            max_line_size=1024,
            max_field_size=2048,
            max_headers=64,
        )
        self.peer = peer
        self.turn = turn
        self.busy = False
        self.task: asyncio.Task[None] | None = None
        self._listener = listener
        self._reading = False
        self._received = False
        self._deadline: asyncio.TimerHandle | None = None

    def hold(self, size: int) -> bool:
        """Take memory for a request, in bytes; False where there is none."""
        return self._listener.shares.take(self, size)

    def give(self, size: int) -> None:
        """Give it back."""
        self._listener.shares.give(self, size)

    def expect_head(self) -> None:
        """From now on a request's head has to come in time."""
        self._reading = True
        self._end_within(self._listener.limits.head_seconds)

    def begin(self) -> bool:
        """A request's head has come; whether the last request was answered before."""
        alone, self._received = self._received, False
        self.busy = True
        self._reading = False
        self._end_within(None)
        return alone

    def end(self) -> None:
        """It is answered."""
        self.busy = False

    def evict(self) -> None:
        """Close it for somebody else's sake."""
        self._abort("evicted")

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Whoever does not read answers must not make us keep them.
        cast("asyncio.Transport", transport).set_write_buffer_limits(high=64 * 1024)
        super().connection_made(transport)

    @override
    def data_received(self, data: bytes) -> None:
        self._received = not self.busy
        if data and not self.busy and not self._reading:
            self.expect_head()
        super().data_received(data)

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        self.over()
        super().connection_lost(exc)

    def over(self) -> None:
        """It has ended, or was never opened."""
        self._end_within(None)
        self._listener.shares.leave(self)

    def _end_within(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self._loop.call_later(seconds, self._abort, "late")

    def _abort(self, why: str) -> None:
        self._listener.closed(why)
        if self.transport is not None:
            self.transport.abort()
        elif self.task is not None:
            self.task.cancel()


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    """The request of a head that has come.

    aiohttp (3.14.5, the newest; not reported) makes a head without a target (`CONNECT  `, with two spaces) one without
    a URL, of which it can't make a request: the connection hangs until it is late, and the log gets a traceback that
    anybody could fill the disk with. The handler refuses `/`, as every other path that is not there.
    """
    if message.url is None:
        message = message._replace(path="/", url=URL("/"))
    return web.BaseRequest(message, payload, protocol, writer, task, asyncio.get_running_loop())


class Listener:
    """A listening port whose connections are bounded.

    Attributes:
        limits: what they may take.
        shares: what they hold.
    """

    def __init__(
        self,
        handler: Handler,
        limits: Limits,
        *,
        tls: ssl.SSLContext | None = None,
        closed: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Make one that does not listen yet.

        Args:
            handler: answers requests; it gets a turn of the peer for that.
            limits: what connections may take.
            tls: for TLS.
            closed: told why, whenever a connection is closed before its time: `full`, `evicted`, `late` or
                `pipelined`.
        """
        self.limits = limits
        self.shares = Shares(limits.total_bytes)
        self.closed = closed
        self._handler = handler
        self._tls = tls
        self._manager = web.Server(self._handle, request_factory=_request)
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()
        self._socket: socket.socket | None = None

    async def start(self, host: str | None, port: int) -> int:
        """Listen.

        Args:
            host: address to listen on; None for all, IPv4 and IPv6, as far as the kernel has both.
            port: 0 for any.

        Returns:
            The port.

        Raises:
            OSError: it is taken.
        """
        both = host is None and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both or ":" in (host or "") else socket.AF_INET
        self._socket = socket.create_server((host or "", port), family=family, backlog=1024, dualstack_ipv6=both)
        self._socket.setblocking(False)
        self._accepting = self._start(self._accept(self._socket))
        return int(self._socket.getsockname()[1])

    async def stop(self) -> None:
        """Listen no more, end idle connections, and give requests 5 s to be answered."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()
        self._manager.pre_shutdown()
        await self._manager.shutdown(5)

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        accepted = 0
        while True:
            try:
                accepting, address = await loop.sock_accept(listening)
            except OSError as error:
                _LOG.warning("a connection can't be accepted", extra={"error": str(error)})
                await asyncio.sleep(0.1)
                continue
            self._admit(accepting, address[0])
            accepted += 1
            if accepted % _ACCEPTS == 0:
                await asyncio.sleep(0)

    def _admit(self, accepted: socket.socket, peer: str) -> None:
        turn = self._turns.get(peer)
        if turn is None:
            turn = self._turns[peer] = asyncio.Semaphore(self.limits.turns)
        connection = Connection(self, self._manager, peer, turn)
        if not self.shares.take(connection, self.limits.connection_bytes):
            self.closed("full")
            accepted.close()
            return
        connection.expect_head()
        connection.task = self._start(self._open(connection, accepted))

    async def _open(self, connection: Connection, accepted: socket.socket) -> None:
        """Make the handshake; afterwards the connection lives by its own events."""
        seconds = self.limits.head_seconds if self._tls else None
        handed = opened = False
        try:
            async with connection.turn:
                handed = True
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: connection, accepted, ssl=self._tls, ssl_handshake_timeout=seconds
                )
            opened = True
        except (OSError, ssl.SSLError):
            # No TLS, or gone before it: nothing that a log could say of our server.
            pass
        finally:
            connection.task = None
            if not handed:
                accepted.close()
            elif not opened and connection.transport is not None:
                # The end came in the moment in which the handshake was done. The socket is the transport's by now:
                # closed here, its number could be another connection's already.
                connection.transport.abort()
            if not opened:
                connection.over()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = cast("Connection", request.protocol)
        alone = connection.begin()
        try:
            if not alone:
                return self._refuse_pipelined()
            async with asyncio.timeout(self.limits.answer_seconds), connection.turn:
                return await self._handler(request, connection)
        except TimeoutError:
            self.closed("late")
            response = web.Response(status=503, text="too many requests at a time: try again\n")
            response.force_close()
            return response
        finally:
            connection.end()

    def _refuse_pipelined(self) -> web.Response:
        """End the connection of a peer that sends requests before it has the answer to the last one.

        No API server does. aiohttp (3.14) would answer all that have come without a pause, so that everybody else waits
        for them, and would not see that the peer has gone meanwhile: asyncio then logs a line for each answer.
        """
        self.closed("pipelined")
        response = web.Response(status=400, text="send a request once the last one is answered\n")
        response.force_close()
        return response
