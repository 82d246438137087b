"""The names of nodes that a watch keeps current: what of an API server does not keep it busy."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from typing_extensions import override

from agents.admission.kubernetes import ApiServer
from agents.admission.nodes import LabelledNodes
from testbed.stacks import Json

_NODES: list[Json] | None = [{"metadata": {"name": "jetson-1"}}]


class _Restless(ApiServer):
    """An API server whose watches end as soon as they begin: without a word, or with an error."""

    def __init__(self, events: list[Json], items: list[Json] | None = _NODES) -> None:
        self.asked = Counter[str]()
        self._events = events
        self._items = items

    @override
    async def list_metadata(self, path: str, selector: str) -> dict[str, Any]:
        self.asked["list"] += 1
        return {"metadata": {"resourceVersion": "1"}, "items": self._items}

    @override
    async def watch_metadata(
        self,
        path: str,
        selector: str,
        version: str,
    ) -> AsyncIterator[dict[str, Any]]:
        self.asked["watch"] += 1
        for event in self._events:
            yield event


@pytest.mark.parametrize("events", [[], [{"type": "ERROR", "object": {"kind": "Status", "code": 410}}]])
def test_an_api_server_that_ends_every_watch_at_once_is_not_asked_without_a_pause(events: list[Json]) -> None:
    api, nodes = _Restless(events), LabelledNodes({"a": "b"})
    asyncio.run(_follow(nodes, api))
    assert nodes.names == {"jetson-1"}
    assert api.asked["watch"] in range(1, 4)


def test_where_no_node_has_the_labels_the_server_knows_that_there_is_none() -> None:
    """The API server lists no metadata as null: the server ended, and its pod started again and again."""
    nodes = LabelledNodes({"a": "b"})
    asyncio.run(_follow(nodes, _Restless([], items=None)))
    assert (nodes.synced, nodes.names) == (True, frozenset())


async def _follow(nodes: LabelledNodes, api: ApiServer) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(nodes.follow(api), 0.8)
