"""What a kubelet of the simulator deletes."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import pytest

from simulator.pods.cluster import Cluster

OURS = {"metadata": {"name": "worker", "namespace": "team", "uid": "1"}}


class Client:
    """An API server with one pod of that name, or none."""

    def __init__(self, uid: str | None) -> None:
        self.uid = uid
        self.deleted: list[str] = []

    async def get(self, _kind: type, name: str, *, namespace: str) -> Any:  # noqa: ANN401 - an object of lightkube
        if self.uid is None:
            response = httpx2.Response(httpx2.codes.NOT_FOUND, request=httpx2.Request("GET", f"https://{namespace}"))
            response.raise_for_status()
        return SimpleNamespace(metadata=SimpleNamespace(name=name, uid=self.uid))

    async def delete(self, _kind: type, name: str, *, namespace: str, grace_period: int) -> None:
        assert grace_period == 0
        self.deleted.append(f"{namespace}/{name}")


@pytest.mark.parametrize(("there", "deleted"), [("1", ["team/worker"]), ("2", []), (None, [])])
def test_the_next_pod_of_the_same_name_stays(there: str | None, deleted: list[str]) -> None:
    client = Client(there)
    asyncio.run(Cluster(cast("Any", client)).delete(OURS))
    assert client.deleted == deleted
