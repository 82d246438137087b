"""Gates between resources: a dependency that opens when the cluster, not only the engine, is ready."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any

import pulumi

from cluster.access.client import Cluster
from cluster.access.connection import UP_TIMEOUT_SECONDS
from cluster.errors import ClusterError
from cluster.going import hooks_of_installation
from cluster.ownership.giving_back import DESTROYS
from cluster.waiting import REPORT_SECONDS, Condition, wait_for
from config.cluster import ClusterSettings


def gate(
    resource: pulumi.CustomResource,
    conditions: list[Condition],
    cluster: ClusterSettings,
    *,
    timeout_seconds: int,
    depends_on: Sequence[pulumi.CustomResource] = (),
) -> pulumi.Output[pulumi.Resource]:
    """A dependency on `resource` that opens when the conditions hold; in a preview at once, since nothing was made.

    Args:
        resource: the one whose operator fulfils the conditions.
        conditions: waited for one after the other.
        cluster: where to look.
        timeout_seconds: bound of each wait.
        depends_on: what else must be there before the wait begins.
    """
    if pulumi.runtime.is_dry_run():
        return pulumi.Output.from_input(resource)

    def wait(connection: Cluster, report: Callable[[str], None]) -> None:
        for condition in conditions:
            wait_for(connection, condition, timeout_seconds=timeout_seconds, report=report)

    begins = pulumi.Output.all(*(dependency.id for dependency in (resource, *depends_on)))
    return looked(resource, begins, wait, cluster).apply(lambda _: resource)


def tell_of_hooks(
    release: pulumi.CustomResource, about: pulumi.Resource, namespace: str, cluster: ClusterSettings
) -> None:
    """Report what hooks of a release Helm waits for, which it does not say itself; not for previews.

    Args:
        release: the release, which is there once they have ended.
        about: the resource that the reports speak of.
        namespace: the release's.
        cluster: where to look.
    """
    if pulumi.runtime.is_dry_run() or DESTROYS in os.environ:
        return
    over = threading.Event()
    release.id.apply(lambda _: over.set())
    loop = asyncio.get_event_loop()

    def look(connection: Cluster, since: dict[str, float]) -> None:
        for hook, why in hooks_of_installation(connection, namespace):
            seconds = time.monotonic() - since.setdefault(hook, time.monotonic())
            _report(loop, f"waiting for {hook}{': ' if why else ''}{why} ({seconds:.0f} s)", about)

    def tell() -> None:
        # Most releases are as they were, and there at once.
        if over.wait(REPORT_SECONDS):
            return
        since: dict[str, float] = {}
        # That the cluster does not answer is said by whoever needs it.
        with (
            suppress(ClusterError),
            closing(Cluster.connect(cluster, timeout_seconds=UP_TIMEOUT_SECONDS)) as connection,
        ):
            while not over.wait(REPORT_SECONDS):
                # The program may end meanwhile, and its event loop with it: then it is a RuntimeError.
                with suppress(ClusterError, RuntimeError):
                    look(connection, since)

    threading.Thread(target=tell, daemon=True).start()


def looked(
    about: pulumi.Resource,
    begins: pulumi.Output[Any],
    look: Callable[[Cluster, Callable[[str], None]], None],
    cluster: ClusterSettings,
) -> pulumi.Output[None]:
    """Look at the cluster once an output is there; not for previews, and not where the program only gives back.

    Args:
        about: the resource that its reports speak of.
        begins: what has to be there before.
        look: is given the connection, and whom to report to; a ClusterError of it stops the program.
        cluster: where to look.
    """
    if DESTROYS in os.environ:
        return pulumi.Output.from_input(None)

    def connected(loop: asyncio.AbstractEventLoop) -> None:
        with closing(Cluster.connect(cluster, timeout_seconds=UP_TIMEOUT_SECONDS)) as connection:
            look(connection, lambda text: _report(loop, text, about))

    async def done(_: object) -> None:
        try:
            await asyncio.to_thread(connected, asyncio.get_running_loop())
        except ClusterError as error:
            raise pulumi.RunError(str(error)) from None

    return begins.apply(done)


def _report(loop: asyncio.AbstractEventLoop, text: str, about: pulumi.Resource) -> None:
    """Pulumi's log belongs to the event loop, waits run beside it."""
    loop.call_soon_threadsafe(lambda: pulumi.log.info(text, resource=about, ephemeral=True))
