"""Fixtures of the tests that run a real control plane."""

from collections.abc import Callable, Iterator

import httpx2
import pytest

import simulator
import toolchain
from testbed.engine import ASKS_NOBODY, Stack, without_logs
from testbed.inventory import connect
from testbed.reused import ReusedSimulators
from testbed.simulated import stack_settings
from testbed.stacks import Json


def pytest_itemcollected(item: pytest.Item) -> None:
    """Everything below this folder is of the engine's tier."""
    item.add_marker("engine")


@pytest.fixture(scope="module")
def cluster(reused_simulators: ReusedSimulators) -> Iterator[simulator.ControlPlane]:
    """A simulator as after its start, for the module alone."""
    with reused_simulators.lent() as control_plane:
        yield control_plane


@pytest.fixture(scope="module")
def api(cluster: simulator.ControlPlane) -> Iterator[httpx2.Client]:
    """That simulator's API server, as its administrator."""
    with connect(cluster) as connected:
        yield connected


@pytest.fixture(scope="session")
def engine_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which `pulumi`, its language host and the Kubernetes provider are found."""
    home = without_logs(tmp_path_factory.mktemp("pulumi") / "home")
    return toolchain.environment(toolchain.ENGINE) | ASKS_NOBODY | {"PULUMI_HOME": str(home)}


@pytest.fixture(scope="module")
def new_stack(
    tmp_path_factory: pytest.TempPathFactory, cluster: simulator.ControlPlane, engine_environment: dict[str, str]
) -> Callable[[Json], Stack]:
    """Who makes a stack on the module's simulator, with which it goes: nobody has to destroy it."""
    return lambda settings: Stack(
        tmp_path_factory.mktemp("stack"), stack_settings(settings, cluster), engine_environment
    )
