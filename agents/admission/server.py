"""The HTTP server: webhooks with TLS on one port; health and metrics without, on another."""

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from aiohttp import web
from prometheus_client import generate_latest

from agents.admission import review
from agents.admission.answers import Mutations
from agents.admission.errors import ApiError, BadRequestError, CertificateError, SettingsError
from agents.admission.gvirtus import BackendsFile
from agents.admission.keeper import Keeper, keep, keeper_of
from agents.admission.kubernetes import ApiServer, in_cluster
from agents.admission.nodes import TegraNodes
from agents.admission.observability import Metrics
from agents.admission.reservation import Fragment
from agents.admission.settings import Settings
from agents.admission.tls import LiveTls

_LOG = logging.getLogger(__name__)
_READ_SECONDS = 5.0
"""A request whose body takes longer was given up by its API server: our webhooks have this timeout."""
_IDLE_SECONDS = 300.0
"""Longer than an API server keeps an idle connection (90 s): we never close one that it is about to use."""
_JSON = "application/json"
_MUTATIONS = frozenset({"reservation", "gvirtus"})


class AdmissionServer:
    """The handlers, and what they know.

    Attributes:
        draining: whether SIGTERM has come.
    """

    def __init__(self, mutations: Mutations, tls: LiveTls, metrics: Metrics) -> None:
        self.draining = False
        self._mutations = mutations
        self._tls = tls
        self._metrics = metrics
        self.keeper: Keeper | None = None

    def webhooks(self) -> web.Application:
        """What API servers call."""
        application = web.Application(client_max_size=review.MAX_BODY_BYTES)
        application.router.add_post("/mutate/{mutation}", self._mutate)
        return application

    def health(self) -> web.Application:
        """What kubelet and Prometheus call."""
        application = web.Application()
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._show_metrics)
        return application

    def why_unready(self) -> list[str]:
        """What is missing before requests may come; empty when nothing is."""
        reasons = []
        served = self._tls.served
        if self.draining:
            reasons.append("shutting down")
        if served is None:
            reasons.append("no certificate loaded")
        elif served.leaf.not_valid_after_utc.timestamp() <= time.time():
            reasons.append("the certificate has expired")
        if self.keeper is None or not self.keeper.trusted:
            reasons.append("caBundle not published")
        if not self._mutations.nodes.synced:
            reasons.append("nodes not read")
        return reasons

    async def _mutate(self, request: web.Request) -> web.StreamResponse:
        begin = time.perf_counter()
        name = request.match_info["mutation"]
        label = name if name in _MUTATIONS else "other"
        try:
            reviewed = review.read(await self._body(request))
            answer = self._mutations.answer(name, reviewed)
        except BadRequestError as error:
            outcome, uid = "bad", ""
            response = web.Response(status=error.status, text=str(error))
        except web.HTTPException:
            self._metrics.reviews.labels(label, "bad").inc()
            raise
        else:
            outcome = "refused" if not answer.allowed else "unchanged" if answer.patch is None else "changed"
            uid = reviewed.uid
            response = web.Response(body=review.write(reviewed, answer), content_type=_JSON)
        seconds = time.perf_counter() - begin
        self._metrics.reviews.labels(label, outcome).inc()
        self._metrics.seconds.labels(label).observe(seconds)
        if outcome != "unchanged":
            _LOG.info(
                "review", extra={"mutation": label, "outcome": outcome, "uid": uid, "ms": round(seconds * 1000, 2)}
            )
        if self.draining:
            response.force_close()
        return response

    @staticmethod
    async def _body(request: web.Request) -> bytes:
        if request.content_type != _JSON:
            raise BadRequestError(415, f"Content-Type must be {_JSON}")
        try:
            async with asyncio.timeout(_READ_SECONDS):
                return await request.read()
        except TimeoutError:
            raise BadRequestError(408, f"the body did not arrive within {_READ_SECONDS:g} s") from None
        except web.RequestPayloadError:
            raise BadRequestError(400, "the body is not what Content-Encoding or Transfer-Encoding says") from None
        except ConnectionError:
            # Nobody reads this answer: it is for the metrics.
            raise BadRequestError(400, "the connection ended before the body") from None

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        reasons = self.why_unready()
        return web.Response(status=503 if reasons else 200, text="\n".join(reasons or ["ok"]) + "\n")

    async def _show_metrics(self, _: web.Request) -> web.Response:
        served = self._tls.served
        if served is not None:
            self._metrics.expiry.set(served.leaf.not_valid_after_utc.timestamp())
        self._metrics.ready.set(not self.why_unready())
        body = await asyncio.to_thread(generate_latest, self._metrics.registry)
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


async def serve(settings: Settings, folder: Path, *, listening: Callable[[int, int], Awaitable[None]]) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        settings: the server's settings.
        folder: holds reservation.json, without which that mutation is not served, and gvirtus.json, which may come
            later.
        listening: told the two ports once they are open.

    Raises:
        SettingsError: reservation.json is wrong, or the process does not run in a pod and was not told where to.
        OSError: a port is taken.
    """
    fragment_file = folder / "reservation.json"
    fragment = Fragment.from_file(fragment_file) if fragment_file.exists() else None
    backends = BackendsFile(folder / "gvirtus.json")
    try:
        backends.current()
    except SettingsError as error:
        # Reservation pods need it not; pods that do are refused until somebody corrects it.
        _LOG.error("a mounted file is wrong", extra={"error": str(error)})
    tls, nodes = LiveTls(), TegraNodes()
    server = AdmissionServer(Mutations(fragment, nodes, backends), tls, Metrics())
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(ApiServer.connect(settings.api or in_cluster()))
        server.keeper = keeper_of(settings, api, tls)
        with suppress(ApiError, CertificateError):
            # The first certificate before the first connection; what fails here is repeated, with a log line, below.
            await server.keeper.look()
        webhooks = await _listen(stack, server.webhooks(), settings.host, settings.port, tls)
        health = await _listen(stack, server.health(), settings.host, settings.health_port, None)
        tasks = [
            asyncio.create_task(keep(server.keeper, settings.check_seconds)),
            asyncio.create_task(nodes.follow(api)),
        ]
        await listening(webhooks, health)
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


async def _listen(
    stack: AsyncExitStack, application: web.Application, host: str, port: int, tls: LiveTls | None
) -> int:
    runner = web.AppRunner(
        application,
        access_log=None,
        handle_signals=False,
        keepalive_timeout=_IDLE_SECONDS,
        lingering_time=1,
        shutdown_timeout=5,
    )
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    site = web.TCPSite(runner, host, port, ssl_context=None if tls is None else tls.context, backlog=1024)
    await site.start()
    return int(runner.addresses[0][1])
