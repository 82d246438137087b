"""The clusters that cases change, and which checks fired on them."""

from collections.abc import Callable

from operations.doctor.diagnosis import Diagnosis, Judged
from testbed.stacks import Json, gvirtus, hami_core, monitoring, webhook
from tests.support.doctor import World, deployment, endpoints, named, well
from tests.unit.operations.doctor.changes import remote
from tests.unit.operations.doctor.monitoring_cases import metrics, with_metrics


def world_of(stack: Callable[[], Json]) -> World:
    """A cluster that is well, for one of the stacks."""
    world = well(stack() if stack is not hami_core else None)
    world.hosts = {}
    if stack is hami_core:
        world.settings = stack()
        world.one("nodes", "jetson-1")["status"]["nodeInfo"]["kernelVersion"] = "6.8.0"
        world.lists["mutating"].append(named("kai-resource-isolator-mutating"))
    if stack is gvirtus:
        remote(world)
    if stack in {metrics, monitoring}:
        with_metrics(world)
    if stack is webhook:
        server = "kai-anywhere-admission"
        world.lists["deployments"].append(deployment(server, "kai-anywhere"))
        world.lists["slices"].append(endpoints(server, "kai-anywhere", ready=True))
    return world


def fired(diagnosis: Diagnosis) -> dict[str, Judged]:
    """What each check that fired says, by its code."""
    return {result.check.code: result for problem in diagnosis.problems for result in problem.all}
