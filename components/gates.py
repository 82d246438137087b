"""Gates between resources: a dependency that opens when the cluster, not only the engine, is ready."""

import asyncio
from collections.abc import Sequence

import pulumi

from cluster.client import Cluster
from cluster.errors import ClusterError
from cluster.waiting import Condition, wait_for
from config.cluster import ClusterSettings


def gate(
    made: pulumi.CustomResource,
    conditions: list[Condition],
    cluster: ClusterSettings,
    *,
    timeout_seconds: int,
    depends_on: Sequence[pulumi.CustomResource] = (),
) -> pulumi.Output[pulumi.Resource]:
    """A dependency on `made` that opens when the conditions hold; in a preview at once, since nothing was made.

    Args:
        made: the resource whose operator fulfils the conditions.
        conditions: waited for one after the other.
        cluster: where to look.
        timeout_seconds: bound of the whole wait.
        depends_on: what else must be there before the wait begins.
    """
    if pulumi.runtime.is_dry_run():
        return pulumi.Output.from_input(made)

    def report(loop: asyncio.AbstractEventLoop, text: str) -> None:
        # Pulumi's log belongs to the event loop, the wait runs beside it.
        loop.call_soon_threadsafe(lambda: pulumi.log.info(text, resource=made, ephemeral=True))

    def wait(loop: asyncio.AbstractEventLoop) -> None:
        connection = Cluster.connect(cluster)
        try:
            for condition in conditions:
                wait_for(
                    connection,
                    condition,
                    timeout_seconds=timeout_seconds,
                    report=lambda text: report(loop, text),
                )
        finally:
            connection.close()

    async def opened(_: object) -> pulumi.Resource:
        try:
            await asyncio.to_thread(wait, asyncio.get_running_loop())
        except ClusterError as error:
            raise pulumi.RunError(str(error)) from None
        return made

    return pulumi.Output.all(*(each.id for each in (made, *depends_on))).apply(opened)
