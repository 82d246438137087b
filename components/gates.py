"""Gates between resources: a dependency that opens when the cluster, not only the engine, is ready."""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pulumi

from cluster.access.client import Cluster
from cluster.access.connection import UP_TIMEOUT_SECONDS
from cluster.errors import ClusterError
from cluster.ownership.giving_back import DESTROYS
from cluster.waiting import Condition, wait_for
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

    def report(loop: asyncio.AbstractEventLoop, text: str) -> None:
        # Pulumi's log belongs to the event loop, the wait runs beside it.
        loop.call_soon_threadsafe(lambda: pulumi.log.info(text, resource=about, ephemeral=True))

    def connected(loop: asyncio.AbstractEventLoop) -> None:
        with closing(Cluster.connect(cluster, timeout_seconds=UP_TIMEOUT_SECONDS)) as connection:
            look(connection, lambda text: report(loop, text))

    async def done(_: object) -> None:
        try:
            await asyncio.to_thread(connected, asyncio.get_running_loop())
        except ClusterError as error:
            raise pulumi.RunError(str(error)) from None

    return begins.apply(done)
