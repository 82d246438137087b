"""The HTTP server: webhooks with TLS on one port; health and metrics without, on another."""

import asyncio
import datetime as dt
import logging
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, nullcontext, suppress
from pathlib import Path

from aiohttp import web

from agents.admission import review
from agents.admission.answers import Mutations
from agents.admission.certificates.keeper import Keeper, keep, keeper_of
from agents.admission.certificates.tls import LiveTls
from agents.admission.errors import ApiError, BadRequestError, CertificateError
from agents.admission.health import Health
from agents.admission.kubernetes import ApiServer, in_cluster
from agents.admission.listener import Connection, Limits, Listener
from agents.admission.observability import Metrics
from agents.admission.settings import Settings

_LOG = logging.getLogger(__name__)
_READ_SECONDS = 5.0
"""A body that takes longer has a client that does not send: an API server sends it at once."""
_COPIES = 2
"""Of a body in memory, while its pieces are put together."""
_JSON = "application/json"
_PATH = "/mutate/"


class AdmissionServer:
    """The handlers, and what they know.

    Attributes:
        draining: whether SIGTERM has come.
        now: the time of day by which certificates are judged.
    """

    def __init__(self, mutations: Mutations, tls: LiveTls, metrics: Metrics) -> None:
        self.draining = False
        self._mutations = mutations
        self._tls = tls
        self._metrics = metrics
        self.keeper: Keeper | None = None
        self.now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
        metrics.ready.set_function(lambda: float(not self.why_unready()))
        metrics.expiry.set_function(
            lambda: 0 if tls.served is None else tls.served.leaf.not_valid_after_utc.timestamp()
        )

    def why_unready(self) -> list[str]:
        """What is missing before requests may come; empty when nothing is."""
        reasons = []
        served = self._tls.served
        if self.draining:
            reasons.append("shutting down")
        if served is None:
            reasons.append("no certificate loaded")
        elif served.leaf.not_valid_after_utc <= self.now():
            reasons.append("the certificate has expired")
        if self.keeper is None or not self.keeper.trusted:
            reasons.append("caBundle not published")
        if not all(nodes.synced for nodes in self._mutations.nodes):
            reasons.append("nodes not read")
        return reasons

    async def answer(self, request: web.BaseRequest, connection: Connection) -> web.StreamResponse:
        """Answer one request, whatever it is."""
        begin = time.perf_counter()
        name = request.path.removeprefix(_PATH)
        label = name if name in self._mutations else "other"
        try:
            reviewed, reply = await self._review(request, connection, name)
        except BadRequestError as error:
            # No log line: anybody could fill the disk with them. Whoever sent it is told.
            self._metrics.reviews.labels(label, "bad").inc()
            response = web.Response(status=error.status, text=str(error))
            response.force_close()
            return response
        outcome = "refused" if not reply.allowed else "unchanged" if reply.patch is None else "changed"
        response = web.Response(body=review.write(reviewed, reply), content_type=_JSON)
        seconds = time.perf_counter() - begin
        self._metrics.reviews.labels(label, outcome).inc()
        self._metrics.seconds.labels(label).observe(seconds)
        if outcome != "unchanged":
            milliseconds = round(seconds * 1000, 2)
            _LOG.info("review", extra={"mutation": label, "outcome": outcome, "uid": reviewed.uid, "ms": milliseconds})
        if self.draining:
            response.force_close()
        return response

    async def _review(
        self, request: web.BaseRequest, connection: Connection, name: str
    ) -> tuple[review.Request, review.Answer]:
        length = _check_head(request)
        if not connection.hold(_COPIES * length):
            raise BadRequestError(503, "too many bytes of other requests are in memory: try again")
        try:
            reviewed = review.read(await _body(request, length))
            return reviewed, self._mutations.answer(name, reviewed)
        finally:
            connection.give(_COPIES * length)

    def count_closed(self, why: str) -> None:
        """Count a connection that was closed before its time."""
        self._metrics.closed.labels(why).inc()


def _check_head(request: web.BaseRequest) -> int:
    """The length of the body that a request announces; everything that can be refused before it is read, is."""
    if not request.path.startswith(_PATH):
        raise BadRequestError(404, f"there is nothing but {_PATH}")
    if request.method != "POST":
        raise BadRequestError(405, "a review is sent with POST")
    if request.content_type != _JSON:
        raise BadRequestError(415, f"Content-Type must be {_JSON}")
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise BadRequestError(415, "the body must not be encoded: a small one could become a large one")
    if request.content_length is None:
        raise BadRequestError(411, "the body's Content-Length must be said, as API servers do")
    if request.content_length > review.MAX_BODY_BYTES:
        raise BadRequestError(413, f"the review has more than {review.MAX_BODY_BYTES} bytes: make the pod smaller")
    return request.content_length


async def _body(request: web.BaseRequest, length: int) -> bytes:
    try:
        # Mostly it has come with its head, and nothing is waited for.
        async with nullcontext() if request.content.is_eof() else asyncio.timeout(_READ_SECONDS):
            return await request.content.readexactly(length) if length else b""
    except TimeoutError:
        raise BadRequestError(408, f"the body did not arrive within {_READ_SECONDS:g} s") from None
    except (asyncio.IncompleteReadError, OSError, web.RequestPayloadError):
        # Nobody reads this answer: it is for the metrics.
        raise BadRequestError(400, "the connection ended before the body") from None


async def serve(settings: Settings, folder: Path, *, listening: Callable[[int, int], Awaitable[None]]) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        settings: the server's settings.
        folder: may hold files of endpoints, now or later.
        listening: told the two ports once they are open.

    Raises:
        SettingsError: the process does not run in a pod and was not told where to.
        OSError: a port is taken.
    """
    tls, metrics = LiveTls(), Metrics()
    mutations = Mutations(settings.mutations, folder)
    server = AdmissionServer(mutations, tls, metrics)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(ApiServer.connect(settings.api or in_cluster()))
        server.now = lambda: api.now
        server.keeper = keeper_of(settings, api, tls)
        with suppress(ApiError, CertificateError):
            # The first certificate before the first connection; what fails here is repeated, with a log line, below.
            await server.keeper.look()
        webhooks = Listener(server.answer, Limits(), tls=tls.context, closed=server.count_closed)
        port = await webhooks.start(settings.host, settings.port)
        stack.push_async_callback(webhooks.stop)
        health = Health(server.why_unready, metrics)
        health_port = stack.enter_context(health.thread(settings.host, settings.health_port))
        tasks = [
            asyncio.create_task(health.keep_beating()),
            asyncio.create_task(keep(server.keeper, settings.check_seconds)),
            *(asyncio.create_task(nodes.follow(api)) for nodes in mutations.nodes),
        ]
        await listening(port, health_port)
        # A task that ends has failed in a way nobody foresaw: the pod is restarted.
        ended, _ = await asyncio.wait(
            [*tasks, waiting := asyncio.create_task(stopped.wait())], return_when=asyncio.FIRST_COMPLETED
        )
        server.draining = True
        if waiting in ended:
            _LOG.info("shutting down", extra={"drain_s": settings.drain_seconds})
            await asyncio.sleep(settings.drain_seconds)
        for task in [*tasks, waiting]:
            task.cancel()
        results = await asyncio.gather(*tasks, waiting, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
