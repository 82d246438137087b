"""The resource `kai-anywhere:index:ManyNodeLabels`: labels of many nodes in one, as the engine speaks with a provider.

Inputs and outputs are alike: the connection that is bound to the cluster, the field manager, and the labels as
manifests/many_nodes.py writes them. A preview contacts nothing.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import grpc
from google.protobuf import empty_pb2, json_format, struct_pb2  # type: ignore[import-untyped]  # it ships no types
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc, status_pb2
from typing_extensions import override

from cluster.errors import ClusterError
from manifests.many_nodes import apart, together
from manifests.wording import first_of

_ID = "node-labels"
_KIND = provider_pb2.PropertyDiff

T = TypeVar("T")


class ManyNodeLabels(provider_pb2_grpc.ResourceProviderServicer):
    """What the engine asks of the resource."""

    @override
    async def Check(self, request: Any, context: Any) -> Any:
        """Inputs as they are: they come from the program, which has validated its settings."""
        return provider_pb2.CheckResponse(inputs=request.news)

    @override
    async def Diff(self, request: Any, context: Any) -> Any:
        """What differs, label by label, from what the cluster had when it was written or read last."""
        olds, news = _dict(request.olds), _dict(request.news)
        changes = dict(_differences(olds, news))
        if olds.get("fieldManager") != news.get("fieldManager"):
            changes["fieldManager"] = _KIND.UPDATE
        return provider_pb2.DiffResponse(
            changes=provider_pb2.DiffResponse.DIFF_SOME if changes else provider_pb2.DiffResponse.DIFF_NONE,
            diffs=sorted({path.split("[")[0] for path in changes}),
            detailedDiff={path: _KIND(kind=kind, inputDiff=True) for path, kind in changes.items()},
            hasDetailedDiff=True,
        )

    @override
    async def Create(self, request: Any, context: Any) -> Any:
        """Label every node; what can't be labelled is an error, and the others stay labelled and remembered."""
        news = _dict(request.properties)
        if not request.preview:
            await self._write(news, {}, context)
        return provider_pb2.CreateResponse(id=_ID, properties=_struct(news))

    @override
    async def Update(self, request: Any, context: Any) -> Any:
        """Label the nodes that differ, and let go of those that are not named any more."""
        news = _dict(request.news)
        if not request.preview:
            await self._write(news, _dict(request.olds), context)
        return provider_pb2.UpdateResponse(properties=_struct(news))

    @override
    async def Read(self, request: Any, context: Any) -> Any:
        """The values that the labels have now."""
        properties = _dict(request.properties)
        nodes = await _asked(context, lambda: _on_cluster().read(properties["kubeconfig"], apart(properties)))
        live = _struct(properties | together(nodes))
        return provider_pb2.ReadResponse(id=request.id, properties=live, inputs=live)

    @override
    async def Delete(self, request: Any, context: Any) -> Any:
        """Let go of every node: adopted values come back."""
        properties = _dict(request.properties)
        problems = await _asked(
            context,
            lambda: _on_cluster().release(properties["kubeconfig"], apart(properties), properties["fieldManager"]),
        )
        if problems:
            await context.abort(grpc.StatusCode.UNKNOWN, _problem_text("let go of", problems))
        return empty_pb2.Empty()

    async def _write(self, news: Mapping[str, Any], olds: Mapping[str, Any], context: Any) -> None:  # noqa: ANN401 - gRPC's, here and below
        nodes, manager = apart(news), news["fieldManager"]
        before, former = apart(olds), olds.get("fieldManager", manager)
        moved = manager != former
        changed = {name: node for name, node in nodes.items() if moved or before.get(name) != node}
        gone = {name: node for name, node in before.items() if moved or name not in nodes}
        unset, unreleased = await _asked(
            context, lambda: _on_cluster().write(news["kubeconfig"], changed, manager, gone, former)
        )
        if unset or unreleased:
            labelled = {name: node for name, node in nodes.items() if name not in unset}
            unreleased_nodes = {name: before[name] for name in unreleased}
            reasons = [text for text in (_problem_text("label", unset), _problem_text("let go of", unreleased)) if text]
            await _partly(context, {**news, **together(unreleased_nodes | labelled)}, news, reasons)


def _on_cluster() -> Any:  # noqa: ANN401 - a module
    """What works on the cluster: a preview needs none of it, and it takes half of a second to import."""
    from package import on_cluster  # noqa: PLC0415

    return on_cluster


def _differences(olds: Mapping[str, Any], news: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each path that differs, as Pulumi writes paths, with the kind of difference."""
    before, after = apart(olds), apart(news)
    for name in sorted(before.keys() ^ after.keys()):
        yield f'nodes["{name}"]', _KIND.ADD if name in after else _KIND.DELETE
    stay = sorted(before.keys() & after.keys())
    for part in ("labels", "annotations"):
        old, new = ({name: nodes[name]["metadata"].get(part, {}) for name in stay} for nodes in (before, after))
        shared = [document.get("labels", {}) if part == "labels" else {} for document in (olds, news)]
        for key in sorted({key for values in (*old.values(), *new.values()) for key in values}):
            differ = [name for name in stay if old[name].get(key) != new[name].get(key)]
            if differ and shared[0].get(key) != shared[1].get(key):
                yield f'labels["{key}"]', _kind(key, *shared)
                if len(differ) == len(stay):
                    continue
            for name in differ:
                yield f'nodes["{name}"].{part}["{key}"]', _kind(key, old[name], new[name])


def _kind(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Any:  # noqa: ANN401
    return _KIND.ADD if key not in old else _KIND.DELETE if key not in new else _KIND.UPDATE


async def _asked(context: Any, ask: Callable[[], T]) -> T:  # noqa: ANN401
    """Ask the cluster beside the event loop; what stops it ends the call with its text."""
    try:
        return await asyncio.to_thread(ask)
    except ClusterError as error:
        await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        raise


def _problem_text(what: str, problems: Mapping[str, str]) -> str:
    """The problems, each once, with the nodes that have it."""
    by_text: dict[str, list[str]] = {}
    for name, text in sorted(problems.items()):
        by_text.setdefault(text.replace(f'"{name}"', "of this name"), []).append(name)
    lines = []
    for text, names in by_text.items():
        lines.append(f"can't {what} {first_of(names)}: {text}")
    return "\n".join(lines)


async def _partly(
    context: Any,  # noqa: ANN401
    state: Mapping[str, Any],
    inputs: Mapping[str, Any],
    reasons: list[str],
) -> None:
    """End a call with an error of which the engine keeps what was done: the next `up` goes on from there."""
    detail = provider_pb2.ErrorResourceInitFailed(
        id=_ID, properties=_struct(state), inputs=_struct(inputs), reasons=reasons
    )
    text = "\n".join(reasons)
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=text)
    status.details.add().Pack(detail)
    await context.abort(
        grpc.StatusCode.UNKNOWN, text, trailing_metadata=(("grpc-status-details-bin", status.SerializeToString()),)
    )


def _dict(struct: Any) -> dict[str, Any]:  # noqa: ANN401
    values: dict[str, Any] = json_format.MessageToDict(struct)
    return values


def _struct(values: Mapping[str, Any]) -> Any:  # noqa: ANN401
    return json_format.Parse(json.dumps(values), struct_pb2.Struct())
