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


class _Restless(ApiServer):
    """An API server whose watches end as soon as they begin: without a word, or with an error."""

    def __init__(self, events: list[Json]) -> None:
        self.asked = Counter[str]()
        self._events = events

    @override
    async def list_metadata(self, path: str, selector: str) -> dict[str, Any]:
        self.asked["list"] += 1
        return {"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "jetson-1"}}]}

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

    async def follow() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(nodes.follow(api), 0.8)

    asyncio.run(follow())
    assert nodes.names == {"jetson-1"}
    assert api.asked["watch"] in range(1, 4)
