"""Fixtures of the tests that run a real control plane."""

from collections.abc import Iterator

import pytest

import simulator
import toolchain


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[simulator.ControlPlane]:
    """One simulator for the whole run; a test leaves no more in it than it found."""
    folder = tmp_path_factory.mktemp("simulator")
    yield simulator.up(folder)
    simulator.reset(folder)


@pytest.fixture(scope="session")
def engine_environment() -> dict[str, str]:
    """The environment in which `pulumi`, its language host and the Kubernetes provider are found."""
    return toolchain.environment(toolchain.ENGINE)
