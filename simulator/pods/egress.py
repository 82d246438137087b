"""The way of the API server into the cluster: an HTTP CONNECT proxy that takes Services to processes.

kube-proxy and a pod network would need root. The API server's egress selector does not: whatever it asks of Services
and pods, webhooks above all, goes through this proxy, which knows each pod's process. What is no pod of ours is reached
as without a proxy: a node that is real has a network of its own.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import httpx2
import yaml

from simulator.operands.world import Object, labels
from simulator.pki import ADMINISTRATOR, Pki
from simulator.pods import probes
from simulator.pods.images import ProgramError
from simulator.pods.runner import Runner
from simulator.ports import LOOPBACK

_PIECE = 65536

Address = tuple[str, int]
Resolve = Callable[[str, int], Awaitable[Address | None]]
"""Where a connection to host and port shall go; None where nobody listens."""


def configuration(pki: Pki, port: int) -> bytes:
    """The API server's egress selector: what goes to the cluster goes through the proxy, with a certificate."""
    certificate, key = pki.client(ADMINISTRATOR)
    tls = {"caBundle": str(pki.authority), "clientCert": str(certificate), "clientKey": str(key)}
    connection: dict[str, Any] = {
        "proxyProtocol": "HTTPConnect",
        "transport": {"tcp": {"url": f"https://{LOOPBACK}:{port}", "tlsConfig": tls}},
    }
    return yaml.safe_dump(
        {
            "apiVersion": "apiserver.k8s.io/v1beta1",
            "kind": "EgressSelectorConfiguration",
            "egressSelections": [{"name": "cluster", "connection": connection}],
        }
    ).encode()


def destination(
    host: str, port: int, services: Sequence[Object], runners: Sequence[Runner], *, has_network: bool
) -> Address | None:
    """Where a connection goes: to a process, or straight on; None where nobody is behind a Service.

    Args:
        host: the address that the API server asks for.
        port: there.
        services: all there are.
        runners: the pods that are processes.
        has_network: whether there are real nodes, whose pods have addresses.
    """
    for runner in runners:
        if runner.ip == host:
            return (runner.address, port) if runner.address else None
    for service in services:
        if service["spec"].get("clusterIP") == host:
            if has_network and not _selected(service, runners):
                return host, port
            return _behind(service, port, runners)
    return host, port


def _selected(service: Object, runners: Sequence[Runner]) -> list[Runner]:
    selector: Mapping[str, str] = service["spec"].get("selector") or {}
    namespace = service["metadata"]["namespace"]
    return [
        runner
        for runner in runners
        if selector
        and runner.pod["metadata"]["namespace"] == namespace
        and selector.items() <= labels(runner.pod).items()
    ]


def _behind(service: Object, port: int, runners: Sequence[Runner]) -> Address | None:
    for declared in service["spec"].get("ports") or ():
        if declared["port"] == port:
            for runner in _selected(service, runners):
                with suppress(ProgramError):
                    if runner.ready and runner.address:
                        target = declared.get("targetPort") or port
                        return runner.address, probes.port_of(runner.pod["spec"]["containers"][0], target)
    return None


async def serve(pki: Pki, port: int, resolve: Resolve) -> asyncio.Server:
    """Listen for the API server alone."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=pki.authority)
    tls.load_cert_chain(*pki.server)
    tls.verify_mode = ssl.CERT_REQUIRED

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            await _connect(reader, writer, resolve)
        writer.close()

    return await asyncio.start_server(accept, LOOPBACK, port, ssl=tls)


async def _connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, resolve: Resolve) -> None:
    request = await reader.readuntil(b"\r\n\r\n")
    _, authority, _ = request.split(b" ", 2)
    host, _, port = authority.decode().rpartition(":")
    try:
        address = await resolve(host.strip("[]"), int(port))
        if address is None:
            raise ConnectionRefusedError("no endpoints available for service")
        there_reader, there_writer = await asyncio.open_connection(*address)
    except (OSError, httpx2.HTTPError) as error:
        writer.write(f"HTTP/1.1 503 {error}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        return
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    pipes = [asyncio.create_task(_pipe(reader, there_writer)), asyncio.create_task(_pipe(there_reader, writer))]
    try:
        await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pipe in pipes:
            pipe.cancel()
        await asyncio.gather(*pipes, return_exceptions=True)
        there_writer.close()


async def _pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while piece := await source.read(_PIECE):
        sink.write(piece)
        await sink.drain()
