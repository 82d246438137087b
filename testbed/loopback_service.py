"""One address before several servers on loopback, as kube-proxy gives to an API server."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class LoopbackService:
    """Forwards each connection to the next backend that accepts it.

    Attributes:
        host: the address that it listens on.
        port: where it listens.
        backends: ports behind it; connections that are open stay when they change.
        delay_seconds: added to each piece that a client sends: a slow network.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.host = host
        self.port = 0
        self.backends: list[int] = []
        self.delay_seconds = 0.0
        self._turn = 0
        self._connections: set[asyncio.Task[None]] = set()

    async def serve(self, started: threading.Event, stopped: asyncio.Event) -> None:
        """Listen until told to stop."""
        server = await asyncio.start_server(self._accept, self.host, 0, backlog=512)
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        await stopped.wait()
        server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._forward(reader, writer)
        finally:
            self._connections.discard(task)
            writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(len(self.backends)):
            self._turn += 1
            with suppress(OSError):
                inner, outer = await asyncio.open_connection(
                    "127.0.0.1", self.backends[self._turn % len(self.backends)]
                )
                try:
                    pipes = [
                        asyncio.create_task(self._pipe(reader, outer, slow=True)),
                        asyncio.create_task(self._pipe(inner, writer, slow=False)),
                    ]
                    await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
                    for pipe in pipes:
                        pipe.cancel()
                    await asyncio.gather(*pipes, return_exceptions=True)
                finally:
                    outer.close()
                return

    async def _pipe(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, slow: bool) -> None:
        while piece := await source.read(65536):
            if slow and self.delay_seconds:
                await asyncio.sleep(self.delay_seconds)
            sink.write(piece)
            await sink.drain()


@contextmanager
def loopback_service(host: str = "127.0.0.1") -> Iterator[LoopbackService]:
    """A Service without backends yet."""
    service = LoopbackService(host)
    started = threading.Event()
    loop = asyncio.new_event_loop()
    stopped = asyncio.Event()

    def run() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(service.serve(started, stopped))
        finally:
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(60)
    try:
        yield service
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()
