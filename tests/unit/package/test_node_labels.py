"""The resource of many nodes' labels, asked as the engine asks it."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format, struct_pb2  # type: ignore[import-untyped]  # it ships no types
from pulumi.runtime.proto import provider_pb2, status_pb2
from pulumi.runtime.rpc import UNKNOWN

from cluster.access import binding
from package import on_cluster
from package.node_labels import ManyNodeLabels
from tests.support.api_server import UID, Answer, kubeconfig, running, write_kubeconfig

BOUND = f"~/.kai-anywhere/clusters/{UID}"
MEMORY, PLATFORM = "nvidia.com/gpu.memory", "kai-anywhere.io/platform"
MANAGER = "kai-anywhere/kai-anywhere/site/node-labels"


def _struct(manager: str = MANAGER, **values: Any) -> Any:  # noqa: ANN401 - protobuf's message
    return json_format.ParseDict({"kubeconfig": BOUND, "fieldManager": manager, **values}, struct_pb2.Struct())


def _inputs(manager: str = MANAGER, **memory: str) -> Any:  # noqa: ANN401
    nodes = {name: {"labels": {MEMORY: value}} for name, value in memory.items()}
    return _struct(manager, labels={PLATFORM: "tegra"}, nodes=nodes)


def _former(**memory: str) -> Any:  # noqa: ANN401
    """What earlier versions kept in the state: each Node as it was applied."""
    nodes = {
        name: {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {MEMORY: value, PLATFORM: "tegra"}},
        }
        for name, value in memory.items()
    }
    return _struct(nodes=nodes)


class _AbortedError(Exception):
    """A call that ended with an error."""

    def __init__(self, text: str, metadata: tuple[tuple[str, bytes], ...]) -> None:
        super().__init__(text)
        self.metadata = metadata


class _Context:
    async def abort(
        self, code: grpc.StatusCode, text: str, trailing_metadata: tuple[tuple[str, bytes], ...] = ()
    ) -> None:
        assert code is grpc.StatusCode.UNKNOWN
        raise _AbortedError(text, trailing_metadata)


class _Written:
    """What the resource asked of the cluster."""

    def __init__(self) -> None:
        self.labelled: list[str] = []
        self.gone: list[tuple[str, str]] = []
        self.unset: dict[str, str] = {}
        self.unreleased: dict[str, str] = {}

    def write(
        self, kubeconfig: str, labelled: Mapping[str, Any], manager: str, gone: Mapping[str, Any], former: str
    ) -> tuple[Mapping[str, str], Mapping[str, str]]:
        assert (kubeconfig, manager.rpartition("/")[2]) == (BOUND, "node-labels")
        self.labelled += labelled
        self.gone += [(name, former) for name in gone]
        return self.unset, self.unreleased


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> _Written:
    made = _Written()
    monkeypatch.setattr(on_cluster, "write", made.write)
    return made


def _diff(olds: Any, news: Any) -> Any:  # noqa: ANN401
    return asyncio.run(ManyNodeLabels().Diff(provider_pb2.DiffRequest(olds=olds, news=news), _Context()))


def test_the_same_nodes_differ_in_nothing_whatever_the_connection_is_called() -> None:
    olds, news = _inputs(a="1", b="2"), _inputs(a="1", b="2")
    news["kubeconfig"] = binding.NO_CLUSTER
    result = _diff(olds, news)
    assert result.changes == provider_pb2.DiffResponse.DIFF_NONE
    assert not result.detailedDiff


def test_a_difference_is_named_by_node_and_label_and_nothing_is_replaced() -> None:
    result = _diff(_inputs(a="1", b="2", c="3"), _inputs(a="1", b=UNKNOWN, d="4"))
    assert result.changes == provider_pb2.DiffResponse.DIFF_SOME
    kinds = {
        path: provider_pb2.PropertyDiff.Kind.Name(difference.kind) for path, difference in result.detailedDiff.items()
    }
    assert kinds == {
        'nodes["b"].labels["nvidia.com/gpu.memory"]': "UPDATE",
        'nodes["c"]': "DELETE",
        'nodes["d"]': "ADD",
    }
    assert list(result.diffs) == ["nodes"]
    assert not result.replaces


def _kinds(olds: Any, news: Any) -> dict[str, str]:  # noqa: ANN401
    difference = _diff(olds, news).detailedDiff
    return {path: provider_pb2.PropertyDiff.Kind.Name(item.kind) for path, item in difference.items()}


def test_a_label_of_all_nodes_that_changes_is_one_difference() -> None:
    off = "nvidia.com/gpu.deploy.dcgm"
    nodes = {"a": {"labels": {MEMORY: "1"}}, "b": {"labels": {MEMORY: "2"}}}
    before = _struct(labels={PLATFORM: "tegra"}, nodes=nodes)
    assert _kinds(before, _struct(labels={PLATFORM: "x86"}, nodes=nodes)) == {f'labels["{PLATFORM}"]': "UPDATE"}
    added = _struct(labels={PLATFORM: "tegra", off: "false"}, nodes=nodes)
    assert _kinds(before, added) == {f'labels["{off}"]': "ADD"}
    assert _kinds(added, before) == {f'labels["{off}"]': "DELETE"}


def test_a_node_that_lost_what_all_have_is_named() -> None:
    drifted = _struct(
        labels={}, nodes={"a": {"labels": {MEMORY: "1", PLATFORM: "tegra"}}, "b": {"labels": {MEMORY: "2"}}}
    )
    assert _kinds(drifted, _inputs(a="1", b="2")) == {
        f'labels["{PLATFORM}"]': "ADD",
        f'nodes["b"].labels["{PLATFORM}"]': "ADD",
    }


def test_what_earlier_versions_remember_differs_only_where_the_labels_do(written: _Written) -> None:
    assert _kinds(_former(a="1", b="2"), _inputs(a="1", b="2")) == {}
    assert _kinds(_former(a="1", b="2"), _inputs(a="1", b="3")) == {f'nodes["b"].labels["{MEMORY}"]': "UPDATE"}
    _update(_former(a="1", b="2", c="3"), _inputs(a="1", b="3"))
    assert (written.labelled, written.gone) == (["b"], [("c", MANAGER)])


def test_a_preview_contacts_nothing(written: _Written) -> None:
    async def ask() -> Any:  # noqa: ANN401
        resource, context = ManyNodeLabels(), _Context()
        made = await resource.Create(provider_pb2.CreateRequest(properties=_inputs(a=UNKNOWN), preview=True), context)
        changed = provider_pb2.UpdateRequest(olds=_inputs(a="1"), news=_inputs(a=UNKNOWN), preview=True)
        return made, await resource.Update(changed, context)

    made, updated = asyncio.run(ask())
    assert made.properties == updated.properties == _inputs(a=UNKNOWN)
    assert (written.labelled, written.gone) == ([], [])


def _update(olds: Any, news: Any) -> Any:  # noqa: ANN401
    return asyncio.run(ManyNodeLabels().Update(provider_pb2.UpdateRequest(olds=olds, news=news), _Context()))


def test_an_update_writes_what_differs_and_lets_go_of_what_is_not_named_any_more(written: _Written) -> None:
    done = _update(_inputs(a="1", b="2", c="3"), _inputs(a="1", b="9", d="4"))
    assert sorted(written.labelled) == ["b", "d"]
    assert written.gone == [("c", MANAGER)]
    assert done.properties == _inputs(a="1", b="9", d="4")


def test_another_field_manager_labels_all_nodes_before_the_former_one_lets_go(written: _Written) -> None:
    former = MANAGER.replace("/site/", "/before/")
    _update(_inputs(former, a="1"), _inputs(a="1"))
    assert written.labelled == ["a"]
    assert written.gone == [("a", former)]


def test_what_fails_is_an_error_and_the_engine_remembers_what_was_done(written: _Written) -> None:
    written.unset = {"b": 'nodes "b" is forbidden', "d": 'nodes "d" is forbidden'}
    written.unreleased = {"c": "gone wrong"}
    with pytest.raises(_AbortedError) as caught:
        _update(_inputs(a="1", b="2", c="3"), _inputs(a="1", b="9", d="4", e="5"))
    assert str(caught.value) == "can't label b, d: nodes of this name is forbidden\ncan't let go of c: gone wrong"
    [(key, content)] = caught.value.metadata
    assert key == "grpc-status-details-bin"
    detail = provider_pb2.ErrorResourceInitFailed()
    assert status_pb2.Status.FromString(content).details[0].Unpack(detail)
    assert detail.properties == _inputs(a="1", c="3", e="5")
    again = _diff(detail.properties, _inputs(a="1", b="9", d="4", e="5"))
    assert set(again.detailedDiff) == {'nodes["b"]', 'nodes["c"]', 'nodes["d"]'}, "the next up goes on from there"


@pytest.mark.usefixtures("home")
def test_a_machine_without_the_connection_changes_nothing_and_says_how_to_have_it() -> None:
    with pytest.raises(_AbortedError, match=r"no connection to the stack's cluster yet.*\n.*kai-anywhere preflight"):
        asyncio.run(ManyNodeLabels().Delete(provider_pb2.DeleteRequest(properties=_inputs(a="1")), _Context()))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(on_cluster, "home", lambda: tmp_path)
    return tmp_path


@pytest.mark.parametrize("uid", [UID, "another"])
def test_another_cluster_at_the_same_address_is_not_written_to(home: Path, uid: str) -> None:
    with running() as server:
        server.serve("/api/v1/namespaces/kube-system", {"metadata": {"name": "kube-system", "uid": uid}})
        server.serve("/api/v1/nodes", {"items": [{"metadata": {"name": "a", "uid": "1", "labels": {}}}]})
        server.applies["/api/v1/nodes/a"] = Answer(200, b"{}")
        file = home / BOUND.removeprefix("~/")
        file.parent.mkdir(parents=True)
        write_kubeconfig(file, kubeconfig(server.url))
        request = provider_pb2.CreateRequest(properties=_inputs(a="1"))
        if uid == UID:
            made = asyncio.run(ManyNodeLabels().Create(request, _Context()))
            assert made.id == "node-labels"
        else:
            with pytest.raises(_AbortedError, match="Another cluster answers"):
                asyncio.run(ManyNodeLabels().Create(request, _Context()))
        assert [request.path for request in server.asked if request.method == "PATCH"] == ["/api/v1/nodes/a"] * (
            uid == UID
        )
