"""A server and stacks of hosts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.hosts.sshd import Sshd, serving


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A server that every test finds running; each test has machines of its own."""
    with serving(tmp_path_factory.mktemp("sshd") / "shared") as server:
        yield server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    """A server of the test's own, which it may stop."""
    with serving(tmp_path / "sshd") as server:
        yield server
