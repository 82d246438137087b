"""Health and metrics, on a thread and an event loop of their own: load on the webhooks makes no kubelet restart us."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from aiohttp import web
from prometheus_client import generate_latest

from agents.admission.listener import Connection, Limits, Listener
from agents.admission.observability import Metrics

_STUCK_SECONDS = 60.0
"""The webhooks' loop works on nothing for longer than milliseconds: after this time it hangs."""
_LIMITS = Limits(total_bytes=64 * 64 * 1024, connection_bytes=64 * 1024, turns=4)


class Health:
    """What kubelet and Prometheus ask for.

    Attributes:
        beat: when the webhooks' event loop was seen at work, on the monotonic clock.
    """

    def __init__(self, why_unready: Callable[[], list[str]], metrics: Metrics) -> None:
        self.beat = time.monotonic()
        self._why_unready = why_unready
        self._metrics = metrics

    async def keep_beating(self) -> None:
        """Say for ever that the event loop is at work."""
        while True:
            self.beat = time.monotonic()
            await asyncio.sleep(1)

    @contextmanager
    def thread(self, host: str | None, port: int) -> Iterator[int]:
        """Answer for as long as the block lasts, which gets the port.

        Raises:
            OSError: it is taken.
        """
        opened: Future[tuple[int, Callable[[], object]]] = Future()
        # A daemon: it does not keep a process alive whose other thread died.
        thread = threading.Thread(target=lambda: asyncio.run(self._serve(host, port, opened)), daemon=True)
        thread.start()
        bound_port, stop = opened.result()
        try:
            yield bound_port
        finally:
            stop()
            thread.join()

    async def answer(self, request: web.BaseRequest, _: Connection) -> web.StreamResponse:
        """Answer one request."""
        match request.method, request.path:
            case "GET", "/healthz":
                if time.monotonic() - self.beat > _STUCK_SECONDS:
                    return web.Response(status=503, text=f"nothing was done for {_STUCK_SECONDS:g} s\n")
                return web.Response(text="ok\n")
            case "GET", "/readyz":
                reasons = self._why_unready()
                return web.Response(status=503 if reasons else 200, text="\n".join(reasons or ["ok"]) + "\n")
            case "GET", "/metrics":
                body = generate_latest(self._metrics.registry)
                return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})
            case _:
                return web.Response(status=404, text="there are /healthz, /readyz and /metrics\n")

    async def _serve(self, host: str | None, port: int, opened: "Future[tuple[int, Callable[[], object]]]") -> None:
        stopped, loop = asyncio.Event(), asyncio.get_running_loop()
        listener = Listener(self.answer, _LIMITS)
        try:
            bound_port = await listener.start(host, port)
        except OSError as error:
            opened.set_exception(error)
            return
        opened.set_result((bound_port, lambda: loop.call_soon_threadsafe(stopped.set)))
        await stopped.wait()
        await listener.stop()
