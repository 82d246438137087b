"""The cluster and the state that a rollback works on."""

from pathlib import Path

import pytest

from cluster.access.client import Cluster
from tests.unit.operations.rollback.world import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The only cluster that there is, whatever a kubeconfig says."""
    made = World(tmp_path)
    monkeypatch.setattr(Cluster, "connect", lambda _: made.connect())
    monkeypatch.setattr("operations.engine.check_context", lambda _: None)
    # It writes into the account's home.
    monkeypatch.setattr("operations.engine.bind", lambda *_: None)
    monkeypatch.setenv("PATH", made.target.environment["PATH"])
    return made
