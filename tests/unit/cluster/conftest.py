"""A connection to the stand-in API server."""

from collections.abc import Iterator

import pytest

from cluster.access.client import Cluster
from config.cluster import ClusterSettings, Distribution


@pytest.fixture
def cluster(config_path: str) -> Iterator[Cluster]:
    """The client of the program, connected."""
    connection = Cluster.connect(ClusterSettings(distribution=Distribution.K3S, kubeconfig=config_path))
    yield connection
    connection.close()
