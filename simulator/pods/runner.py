"""One pod: its program runs until the pod goes, and is started again where it ends."""

import asyncio
import shutil
import time
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import yaml

from simulator.files import write_private
from simulator.operands.world import Object, at
from simulator.pods import container, probes, status
from simulator.pods.cluster import Cluster
from simulator.pods.images import ProgramError, ProgramOf
from simulator.pods.process import Process, start

_FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS = 1.0, 60.0
"""The kubelet's back-off from 10 s to 5 min, shortened: a person waits."""
_GOOD_RUN_SECONDS = 600.0
"""Who ran for so long starts again at once, as with the kubelet."""
_REFRESH_SECONDS = 60.0
"""How often the token and the volumes' files are written anew, as often as the kubelet looks."""
_RETRY_SECONDS = 1.0


@dataclass(frozen=True)
class Place:
    """Where pods run.

    Attributes:
        cluster: the API server.
        server: its address, for the programs.
        authority: the certificate that they trust.
        folder: where pods have their folders.
        logs: where their logs are.
        program_of: gives their programs.
    """

    cluster: Cluster
    server: str
    authority: Path
    folder: Path
    logs: Path
    program_of: ProgramOf


class Runner:
    """Runs one pod.

    Attributes:
        pod: as it was seen last.
        ip: its address in the cluster: no loopback address, which the API server would refuse in EndpointSlices.
        address: where its process listens, None while there is none.
        ready: whether Services lead there.
    """

    def __init__(self, pod: Object, ip: str, place: Place) -> None:
        self.pod = pod
        self.ip = ip
        self.address: str | None = None
        self.ready = False
        self._place = place
        self._folder = place.folder / str(pod["metadata"]["uid"])
        self._starting: asyncio.Task[Process] | None = None
        before: dict[str, Any] = next(iter(at(pod, "status", "containerStatuses") or ()), {})
        # One that ran already died with the simulator.
        self._restarts = int(before.get("restartCount") or 0) + ("running" in (before.get("state") or {}))
        self._task = asyncio.create_task(self._run())

    @property
    def name(self) -> str:
        """Namespace and name."""
        return f"{self.pod['metadata']['namespace']}/{self.pod['metadata']['name']}"

    def check(self) -> None:
        """Raise what ended the task that runs the pod: nothing should."""
        if self._task.done() and not self._task.cancelled():
            self._task.result()

    async def stop(self, grace_seconds: float | None = None) -> None:
        """End the process, within the pod's own time or `grace_seconds`, and delete what the pod left here."""
        self.ready = False
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._starting is not None:
            # What is being started right now is there a moment later.
            (process,) = await asyncio.gather(self._starting, return_exceptions=True)
            if isinstance(process, Process):
                own = self.pod["metadata"].get("deletionGracePeriodSeconds")
                await process.stop(grace_seconds if grace_seconds is not None else float(30 if own is None else own))
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _run(self) -> None:
        delay_seconds = _FIRST_DELAY_SECONDS
        last: dict[str, Any] | None = None
        while True:
            try:
                self._starting = asyncio.create_task(self._start())
                process = await asyncio.shield(self._starting)
            except (ProgramError, OSError, httpx2.HTTPError) as error:
                reason = "ErrImagePull" if isinstance(error, ProgramError) else "CreateContainerError"
                await self._say(status.State.waiting(reason, str(error), self._restarts, last))
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            began, since = status.now(), time.monotonic()
            running = status.State({"running": {"startedAt": began}}, restarts=self._restarts, last=last)
            code = await self._watch(process, running)
            self.address, self.ready = None, False
            last = status.terminated(code, began)
            self._restarts += 1
            if time.monotonic() - since > _GOOD_RUN_SECONDS:
                delay_seconds = _FIRST_DELAY_SECONDS
            message = f"back-off {delay_seconds:.0f} s: the program ended with status {code}; its log: {self._log}"
            await self._say(status.State.waiting("CrashLoopBackOff", message, self._restarts, last))
            await asyncio.sleep(delay_seconds)
            delay_seconds = min(2 * delay_seconds, _LONGEST_DELAY_SECONDS)

    async def _start(self) -> Process:
        declared = container.only_container(self.pod)
        probes.check(declared)
        # From a registry, it takes its time.
        program = await asyncio.to_thread(self._place.program_of, declared["image"])
        self._files.mkdir(mode=0o700, parents=True, exist_ok=True)
        await self._refresh()
        pod = {**self.pod, "status": {**(self.pod.get("status") or {}), "podIP": self.ip}}
        variables = container.environment(program, pod, declared, self._files, self._place.server)
        return await start(
            container.arguments(program, declared, self._files),
            {**variables, "KUBECONFIG": str(self._folder / "kubeconfig")},
            self._files,
            self._log,
            self.pod["metadata"]["name"],
            container.mounts(declared),
        )

    async def _watch(self, process: Process, state: status.State) -> int:
        """Until it ends, or its liveness probe has it stopped; gives its status."""
        declared = container.only_container(self.pod)
        self.address = process.address
        readiness, liveness = declared.get("readinessProbe"), declared.get("livenessProbe")
        self.ready = readiness is None
        await self._say(replace(state, ready=self.ready))
        helpers = [asyncio.create_task(self._keep_fresh())]
        if readiness is not None:
            helpers.append(asyncio.create_task(self._keep_ready(declared, readiness, process, state)))
        if liveness is not None:
            helpers.append(asyncio.create_task(self._keep_alive(declared, liveness, process)))
        try:
            return await process.ended()
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            try:
                await self._refresh()
            except (ProgramError, httpx2.HTTPError) as error:
                print(f"{self.name}: {error}", flush=True)  # noqa: T201 (this process's output is its log)

    async def _keep_ready(self, declared: Object, probe: Object, process: Process, state: status.State) -> None:
        async with aclosing(probes.verdicts(declared, probe, process.address)) as verdicts:
            async for good in verdicts:
                if good != self.ready:
                    self.ready = good
                    await self._say(replace(state, ready=good))

    async def _keep_alive(self, declared: Object, probe: Object, process: Process) -> None:
        async with aclosing(probes.verdicts(declared, probe, process.address)) as verdicts:
            async for good in verdicts:
                if not good:
                    print(f"{self.name}: its liveness probe fails, it is stopped", flush=True)  # noqa: T201
                    await process.stop(float(at(self.pod, "spec", "terminationGracePeriodSeconds") or 30))
                    return

    async def _refresh(self) -> None:
        """The files of the volumes, the token, and the kubeconfig that leads a program to both."""
        declared = container.only_container(self.pod)
        container.write_files(self.pod, declared, self._files, await self._place.cluster.data(self.pod))
        name, namespace = "pod", self.pod["metadata"]["namespace"]
        token = container.write_account(
            self._files, await self._place.cluster.token(self.pod), self._place.authority.read_bytes(), namespace
        )
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [
                {
                    "name": name,
                    "cluster": {"server": self._place.server, "certificate-authority": str(self._place.authority)},
                }
            ],
            # Read again by the program each minute, as in a pod.
            "users": [{"name": name, "user": {"tokenFile": str(token)}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
        }
        write_private(self._folder / "kubeconfig", yaml.safe_dump(kubeconfig).encode())

    async def _say(self, state: status.State) -> None:
        """Tell the API server; one that does not answer is asked again."""
        while True:
            try:
                await self._place.cluster.set_status(self.pod, status.patch(self.pod, state, self.ip))
            except httpx2.HTTPError as error:
                print(f"{self.name}: its status can't be written: {error}", flush=True)  # noqa: T201
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    @property
    def _files(self) -> Path:
        return self._folder / "files"

    @property
    def _log(self) -> Path:
        return self._place.logs / f"{self.name.replace('/', '_')}.log"
