"""Runs the pods of simulated nodes whose images have programs here, until stopped."""

import asyncio
import contextlib
import datetime as dt
import random
import shutil
import signal
import ssl

import httpx2

from simulator.layout import Layout
from simulator.nodes import SIMULATED
from simulator.operands.world import Object, annotations, at, terminating
from simulator.pki import Pki
from simulator.pods import egress, reservation
from simulator.pods.cluster import connected
from simulator.pods.images import REAL, ProgramOf
from simulator.pods.runner import Place, Runner
from toolchain import name_of

POLL_SECONDS = 0.5
"""Fast enough that a person does not see the delay, slow enough for a two-core machine."""
_LAST_GRACE_SECONDS = 3.0
"""For all programs when the simulator stops: it is killed itself after five seconds."""
_POD_RANGE = "10.245"
"""Beside KWOK's 10.244.0.0/16."""


def run(layout: Layout, server: str, program_of: ProgramOf, port: int) -> None:
    """Run pods, and the API server's way to them, until the process is told to stop.

    Args:
        layout: the simulator's folder.
        server: the API server's address.
        program_of: gives the pods' programs.
        port: where the API server asks for its way.
    """
    asyncio.run(_serve(layout, server, program_of, port))


class Pods:
    """The pods that run here."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._runners: dict[str, Runner] = {}
        self._has_network = False
        self._leaving: dict[str, asyncio.Task[None]] = {}

    async def step(self) -> None:
        """Observe once, and start and stop what has changed.

        Raises:
            httpx2.HTTPError: the API server refuses or does not answer.
        """
        for runner in self._runners.values():
            runner.check()
        all_nodes, pods = await self._place.cluster.nodes(), await self._place.cluster.pods()
        nodes = {node["metadata"]["name"]: node for node in all_nodes if SIMULATED in annotations(node).items()}
        self._has_network = len(nodes) < len(all_nodes)
        for gone in self._runners.keys() - {pod["metadata"]["uid"] for pod in pods}:
            self._leave(gone)
        for pod in pods:
            if at(pod, "spec", "nodeName") in nodes and is_real(pod):
                self._look_at(pod, pods)
        for pod, gpu in reservation.answers(pods, nodes):
            await self._answer(pod, gpu)
        self._leaving = {uid: task for uid, task in self._leaving.items() if not task.done()}

    async def resolve(self, host: str, port: int) -> egress.Address | None:
        """Where a connection of the API server goes."""
        services = await self._place.cluster.services()
        return egress.destination(host, port, services, list(self._runners.values()), has_network=self._has_network)

    async def stop(self) -> None:
        """End every process."""
        await asyncio.gather(
            *(runner.stop(_LAST_GRACE_SECONDS) for runner in self._runners.values()),
            *self._leaving.values(),
            return_exceptions=True,
        )

    def _look_at(self, pod: Object, pods: list[Object]) -> None:
        uid = pod["metadata"]["uid"]
        if terminating(pod):
            if uid not in self._leaving:
                self._leave(uid, pod)
        elif uid in self._runners:
            self._runners[uid].pod = pod
        else:
            ips = {at(other, "status", "podIP") for other in pods} | {runner.ip for runner in self._runners.values()}
            self._runners[uid] = Runner(pod, at(pod, "status", "podIP") or _free_ip(ips), self._place)
            log(f"runs {self._runners[uid].name}")

    def _leave(self, uid: str, deleted: Object | None = None) -> None:
        runner = self._runners.pop(uid, None)

        async def leave() -> None:
            if runner is not None:
                runner.pod = deleted or runner.pod
                await runner.stop()
                log(f"stopped {runner.name}")
            if deleted is not None:
                await self._place.cluster.delete(deleted)

        self._leaving[uid] = asyncio.create_task(leave())

    async def _answer(self, pod: Object, gpu: str) -> None:
        """As the pod itself: its ServiceAccount's rights and the admission of its requests are judged."""
        metadata = pod["metadata"]
        trusted = ssl.create_default_context(cafile=self._place.authority)
        async with httpx2.AsyncClient(verify=trusted, trust_env=False) as client:
            response = await client.patch(
                f"{self._place.server}/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}",
                json={"metadata": {"annotations": {reservation.ANNOTATION: gpu}}},
                headers={
                    "Authorization": f"Bearer {await self._place.cluster.token(pod)}",
                    "Content-Type": "application/merge-patch+json",
                },
            )
        response.raise_for_status()
        log(f"{metadata['namespace']}/{metadata['name']} says {gpu}")


def is_real(pod: Object) -> bool:
    """Whether a pod is run, not emulated."""
    return any(name_of(container["image"]) in REAL for container in pod["spec"]["containers"])


def log(line: str) -> None:
    """Write a line of this process's output, which is its log."""
    print(dt.datetime.now(dt.UTC).strftime("%H:%M:%S.%f")[:-3], line, flush=True)  # noqa: T201


def _free_ip(ips: set[str]) -> str:
    while (ip := f"{_POD_RANGE}.{random.randrange(256)}.{random.randrange(1, 255)}") in ips:  # noqa: S311 (no secret)
        pass
    return ip


async def _serve(layout: Layout, server: str, program_of: ProgramOf, port: int) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    pki = Pki(layout.pki)
    # What a killed loop left: folders with tokens.
    shutil.rmtree(layout.pods, ignore_errors=True)
    for folder in (layout.pods, layout.pod_logs):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    async with connected(layout.kubeconfig) as cluster:
        pods = Pods(Place(cluster, server, pki.authority, layout.pods, layout.pod_logs, program_of))
        proxy = await egress.serve(pki, port, pods.resolve)
        complained = ""
        try:
            while not stopped.is_set():
                try:
                    await pods.step()
                    complained = ""
                except httpx2.HTTPError as error:
                    if complained != str(error):
                        complained = str(error)
                        log(f"not everything could be done: {error}")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopped.wait(), POLL_SECONDS)
        finally:
            proxy.close()
            await pods.stop()
            shutil.rmtree(layout.pods, ignore_errors=True)
