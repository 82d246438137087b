"""What the tests of the host agent share."""

from collections.abc import Iterator

import pytest

from tests.support.hosts.roots import Serve


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Answer on the sockets of container runtimes as long as the test runs."""
    server = Serve()
    yield server
    server.close()
