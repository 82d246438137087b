"""`validation: after_up`: after everything, in no preview, at every `up`; off, there is nothing of it."""

from collections.abc import Mapping

import pulumi
import pytest

from cluster import validation, waiting
from testbed.stacks import STACKS, Json, changed, gvirtus, jetson, parse
from tests.support.api_server import ApiServer
from tests.support.recording_monitor import Graph
from tests.support.reservation import RESERVATION_PODS, make_valid
from tests.unit.components.programs import PROVIDER, preview, up

_KEY = "Verification:verification"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(validation, "SETTLES_SECONDS", 0)


def _on(stack: Json) -> Json:
    return changed(stack, "validation", "after_up")


def _dry_runs(api: ApiServer) -> list[Mapping[str, list[str]]]:
    return [request.query for request in api.asked if request.path == RESERVATION_PODS]


@pytest.mark.parametrize("name", STACKS)
def test_a_stack_that_does_not_ask_for_it_has_nothing_of_it(name: str) -> None:
    assert _KEY not in preview(STACKS[name]()).by_key


def test_a_stack_that_asks_for_it_has_one_component_more_and_no_resource(api: ApiServer) -> None:
    off, on = preview(jetson()), preview(_on(jetson()))
    assert on.by_key.keys() - off.by_key.keys() == {_KEY}
    assert on.below(_KEY) == set()
    assert {key: item.inputs for key, item in on.by_key.items() if key != _KEY} == {
        key: item.inputs for key, item in off.by_key.items()
    }
    assert api.asked == []


@pytest.mark.parametrize("stack", [jetson(), gvirtus()])
def test_it_comes_after_everything_and_nothing_comes_after_it(stack: Json) -> None:
    graph = preview(_on(stack))
    kubernetes = {key for key, item in graph.by_key.items() if item.type.startswith("kubernetes:")}
    assert graph.by_key[_KEY].dependencies == kubernetes
    assert not [key for key, item in graph.by_key.items() if _KEY in item.dependencies]
    assert list(graph.by_key)[-1] == _KEY
    assert PROVIDER not in graph.by_key[_KEY].dependencies


@pytest.mark.parametrize("deployed", [False, True])
def test_a_preview_asks_nobody(api: ApiServer, config_path: str, *, deployed: bool) -> None:
    graph = preview(changed(_on(jetson()), "cluster.kubeconfig", config_path), deployed=deployed)
    assert api.asked == []
    assert "reservation pods to get what the stack says" in graph.outputs[_KEY]["checked"]


def _up(api: ApiServer, config_path: str, stack: Json) -> Graph:
    make_valid(api, parse(stack))
    return up(stack, config_path)


def test_every_up_looks_and_an_up_without_it_does_not(api: ApiServer, config_path: str) -> None:
    _up(api, config_path, jetson())
    assert _dry_runs(api) == []
    for count in (1, 2):
        graph = _up(api, config_path, _on(jetson()))
        assert len(_dry_runs(api)) == count
        assert graph.outputs[_KEY] == preview(_on(jetson())).outputs[_KEY], "nothing that changes from run to run"
    assert all(query["dryRun"] == ["All"] for query in _dry_runs(api))


def test_an_up_fails_where_something_does_not_hold_and_says_what_and_the_way_out(
    api: ApiServer, config_path: str
) -> None:
    stack = _on(jetson())
    make_valid(api, parse(stack))
    del api.creates[RESERVATION_PODS]
    with pytest.raises(pulumi.RunError, match="does not work as the stack says") as caught:
        up(stack, config_path)
    assert "on node 'jetson-1', privileged is false; it should be true" in str(caught.value)
    assert "kai-anywhere doctor" in str(caught.value)
