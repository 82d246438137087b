"""The names of nodes with certain labels, kept current by a watch."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from agents.admission.errors import ApiError
from agents.admission.kubernetes import ApiServer

_NODES = "/api/v1/nodes"
_LOG = logging.getLogger(__name__)
_RETRY_SECONDS = (0.5, 1, 2, 5, 10)


class LabelledNodes:
    """Names of the nodes with these labels.

    Attributes:
        names: as of the last event; kept while the API server can't be reached.
        synced: whether they were read at all.
    """

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._selector = ",".join(f"{key}={value}" for key, value in labels.items())
        self.names: frozenset[str] = frozenset()
        self.synced = False

    async def follow(self, api: ApiServer) -> None:
        """List and watch for ever."""
        failures = 0
        while True:
            try:
                await self._follow_once(api)
                failures, pause = 0, _RETRY_SECONDS[0]
            except ApiError as error:
                pause = _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)]
                failures += 1
                _LOG.warning("nodes can't be watched", extra={"error": str(error), "retry_s": pause})
            await asyncio.sleep(pause)

    async def _follow_once(self, api: ApiServer) -> None:
        node_list = await api.list_metadata(_NODES, self._selector)
        self._set(frozenset(item["metadata"]["name"] for item in node_list["items"] or ()))
        version = node_list["metadata"]["resourceVersion"]
        while True:
            async for event in api.watch_metadata(_NODES, self._selector, version):
                metadata: dict[str, Any] = event["object"].get("metadata") or {}
                match event["type"]:
                    case "ADDED" | "MODIFIED":
                        self._set(self.names | {metadata["name"]})
                    case "DELETED":
                        # Also when the label is taken away.
                        self._set(self.names - {metadata["name"]})
                    case "ERROR":
                        # The version is too old by now: everything is listed again.
                        return
                    case _:  # BOOKMARK
                        pass
                version = metadata.get("resourceVersion", version)
            # However soon the API server ends each watch, it is not asked without a pause.
            await asyncio.sleep(_RETRY_SECONDS[0])

    def _set(self, names: frozenset[str]) -> None:
        if not self.synced or names != self.names:
            _LOG.info("nodes", extra={"selector": self._selector, "nodes": sorted(names)})
        self.names = names
        self.synced = True
