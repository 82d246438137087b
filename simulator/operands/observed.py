"""What the cluster has of the kinds that behaviours look at, kept up to date by watches as a controller's cache is."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import httpx2
from lightkube import AsyncClient
from lightkube.core.resource import NamespacedResource

from simulator.operands.world import Object

AGAIN_SECONDS = 1.0
"""Until a kind is read again that the cluster does not know yet, or that could not be read."""

_NOT_FOUND = 404
_Key = tuple[str, str]
"""Namespace, empty for objects of the cluster, and name."""


class Observed:
    """The objects of some kinds. They are read once: to list all of them after each change costs more than the change.

    Attributes:
        changed: set whenever an object has changed, or what can be read.
        unread: the kinds whose objects are not known, and why. The text is empty before the first try has ended.
    """

    def __init__(self, kinds: Iterable[Any], counts: Mapping[Any, Callable[[Object], bool]]) -> None:
        """Begin without any object.

        Args:
            kinds: lightkube's classes.
            counts: which objects of a kind there are for behaviours, where that is not all of them.
        """
        self.changed = asyncio.Event()
        self.unread: dict[Any, str] = dict.fromkeys(kinds, "")
        self._objects: dict[Any, dict[_Key, Object]] = {kind: {} for kind in self.unread}
        self._counts = counts

    def all(self, kind: Any) -> tuple[Object, ...]:  # noqa: ANN401 (lightkube's classes)
        """All objects of a kind, by namespace and name; none where the cluster does not know the kind."""
        return tuple(observed for _, observed in sorted(self._objects[kind].items()))

    async def follow(self, client: AsyncClient, kind: Any) -> None:  # noqa: ANN401 (lightkube's classes)
        """Read a kind, then each change of it; from the beginning where the cluster can't tell what has changed."""
        while True:
            try:
                await self._list_and_watch(client, kind)
            except Exception as error:  # noqa: BLE001 - whatever it was, the next watch begins with a list
                self._set(kind, {}, None if _is_unknown(error) else str(error) or repr(error))
            await asyncio.sleep(AGAIN_SECONDS)

    async def _list_and_watch(self, client: AsyncClient, kind: Any) -> None:  # noqa: ANN401 (lightkube's classes)
        untyped: Any = client  # its overloads ask for a class known when this is written
        everywhere = {"namespace": "*"} if issubclass(kind, NamespacedResource) else {}
        listed = untyped.list(kind, **everywhere)
        objects = dict([_identified(kind, item) async for item in listed])
        self._set(kind, {key: item for key, item in objects.items() if self._is_of_interest(kind, item)})
        async for change, item in untyped.watch(kind, resource_version=listed.resourceVersion, **everywhere):
            key, observed = _identified(kind, item)
            before = self._objects[kind].pop(key, None)
            if change != "DELETED" and self._is_of_interest(kind, observed):
                self._objects[kind][key] = observed
            if before or key in self._objects[kind]:
                self.changed.set()

    def _set(self, kind: Any, objects: dict[_Key, Object], problem: str | None = None) -> None:  # noqa: ANN401
        if (objects, problem) != (self._objects[kind], self.unread.get(kind)):
            self.changed.set()
        self._objects[kind] = objects
        if problem is None:
            self.unread.pop(kind, None)
        else:
            self.unread[kind] = problem

    def _is_of_interest(self, kind: Any, observed: Object) -> bool:  # noqa: ANN401 (lightkube's classes)
        return kind not in self._counts or self._counts[kind](observed)


def _identified(kind: Any, item: Any) -> tuple[_Key, Object]:  # noqa: ANN401 (lightkube's classes)
    """An object as JSON, with the kind that items of lists leave out."""
    info = kind._api_info.resource  # noqa: SLF001 (nothing public tells it)
    identity = {"apiVersion": f"{info.group}/{info.version}".lstrip("/"), "kind": info.kind}
    return (item.metadata.namespace or "", item.metadata.name), {**item.to_dict(), **identity}


def _is_unknown(error: Exception) -> bool:
    """Whether the cluster does not know the kind. It says so in plain text, of which lightkube makes no ApiError.

    An error that a watch is told, such as that it is too old, is one without a response (lightkube 1.0).
    """
    response = error.response if isinstance(error, httpx2.HTTPStatusError) else None
    return response is not None and response.status_code == _NOT_FOUND
