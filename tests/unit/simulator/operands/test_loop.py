"""The loop of the emulated operators: when it looks at the cluster, and when it asks for nothing."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from simulator.nodes import SIMULATED
from simulator.operands import device_plugin, loop, observed
from simulator.operands.world import Apply, Decision, Object, World
from testbed.waiting import eventually
from tests.support.api_server import DEPLOYMENTS, ApiServer

NODES, ACCOUNTS, DAEMON_SETS = "/api/v1/nodes", "/api/v1/serviceaccounts", "/apis/apps/v1/daemonsets"
PODS = "/api/v1/pods"
RULES = "/apis/nfd.k8s-sigs.io/v1alpha1/nodefeaturerules"
EMPTY = {"metadata": {"resourceVersion": "7"}, "items": []}
_QUIET_SECONDS = 0.3
"""Longer than any of the pauses here."""


class _EndError(Exception):
    """Ends the loop, which a person's Ctrl-C or `simulator down` ends otherwise."""


class Loop:
    """The loop in a thread, with one behaviour: it notes what it sees, and decides what it is told to.

    Attributes:
        worlds: what it has seen at each step.
        decision: what it decides.
        log: its lines.
    """

    def __init__(self, api: ApiServer) -> None:
        self.worlds: list[World] = []
        self.decision = Decision()
        self.log: list[str] = []
        self.ending = False
        self._api = api

    def decide(self, world: World) -> Decision:
        """The behaviour."""
        if self.ending:
            raise _EndError
        self.worlds.append(world)
        return self.decision

    def settle(self) -> World:
        """Wait for a moment without a step; the world of the last one."""
        eventually(lambda: self.worlds and _still(lambda: len(self.worlds)))
        return self.worlds[-1]

    def looks_again(self) -> World:
        """Wait until it has looked since, and for a moment without a step."""
        before = len(self.worlds)
        eventually(lambda: len(self.worlds) > before)
        return self.settle()

    def end(self, thread: threading.Thread) -> None:
        """End it at its next look."""
        self.ending = True
        self._api.tell(NODES, "ADDED", "jetson-1", annotations=dict([SIMULATED]))
        thread.join(60)
        assert not thread.is_alive()


def _still(count: Callable[[], int]) -> bool:
    before = count()
    time.sleep(_QUIET_SECONDS)
    return count() == before


@pytest.fixture
def running(api: ApiServer, config_path: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loop]:
    for path in (NODES, ACCOUNTS, DAEMON_SETS, DEPLOYMENTS, PODS):
        api.serve(path, EMPTY)
    made = Loop(api)
    monkeypatch.setattr(loop, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(observed, "AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(loop, "BEHAVIOURS", (made.decide,))
    monkeypatch.setattr(loop, "_log", made.log.append)

    def run() -> None:
        with pytest.RaisesGroup(_EndError):
            loop.run(Path(config_path))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield made
    finally:
        made.end(thread)


def test_a_cluster_in_which_nothing_changes_is_asked_for_nothing(running: Loop, api: ApiServer) -> None:
    running.settle()
    api.answers.update(dict.fromkeys({request.path for request in api.asked}, api.answers[NODES]))
    eventually(lambda: _still(lambda: len(api.asked)))


def test_it_sees_what_comes_changes_and_goes(running: Loop, api: ApiServer) -> None:
    assert running.settle().service_accounts == ()
    api.tell(ACCOUNTS, "ADDED", "b", namespace="n")
    api.tell(ACCOUNTS, "ADDED", "a", namespace="n")
    assert _names(running.looks_again().service_accounts) == ["a", "b"]
    api.tell(ACCOUNTS, "MODIFIED", "a", namespace="n", labels={"new": "yes"})
    changed, other = running.looks_again().service_accounts
    assert (changed["metadata"]["labels"], changed["kind"], changed["apiVersion"]) == (
        {"new": "yes"},
        "ServiceAccount",
        "v1",
    )
    assert other["metadata"]["name"] == "b"
    api.tell(ACCOUNTS, "DELETED", "b", namespace="n")
    assert _names(running.looks_again().service_accounts) == ["a"]
    assert _lists(api, ACCOUNTS) == 1


def test_what_is_of_no_interest_is_not_looked_at(running: Loop, api: ApiServer) -> None:
    running.settle()
    steps = len(running.worlds)
    api.tell(NODES, "ADDED", "a-real-one")
    api.tell(PODS, "ADDED", "somebodys", namespace="n")
    api.tell(PODS, "DELETED", "somebodys", namespace="n")
    running.settle()
    assert len(running.worlds) == steps
    api.tell(PODS, "ADDED", "a-plugin", namespace="n", labels={"app": device_plugin.PLUGIN})
    assert _names(running.looks_again().pods) == ["a-plugin"]
    assert running.worlds[-1].nodes == ()


def test_what_is_of_interest_no_longer_is_gone(running: Loop, api: ApiServer) -> None:
    running.settle()
    api.tell(NODES, "ADDED", "jetson-1", annotations=dict([SIMULATED]))
    assert _names(running.looks_again().nodes) == ["jetson-1"]
    api.tell(NODES, "MODIFIED", "jetson-1")
    assert running.looks_again().nodes == ()


def test_a_kind_that_the_cluster_comes_to_know_is_looked_at(running: Loop, api: ApiServer) -> None:
    assert running.settle().node_feature_rules == ()
    api.serve(RULES, EMPTY | {"items": [{"metadata": {"name": "first", "resourceVersion": "7"}}]})
    assert _names(running.looks_again().node_feature_rules) == ["first"]
    api.tell(RULES, "ADDED", "second")
    assert _names(running.looks_again().node_feature_rules) == ["first", "second"]


def test_nothing_is_decided_while_a_kind_can_not_be_read(running: Loop, api: ApiServer) -> None:
    running.settle()
    steps = len(running.worlds)
    served = api.answers[DAEMON_SETS]
    api.fail(DAEMON_SETS, 500)
    api.events[DAEMON_SETS].put(b'{"type": "ERROR", "object": {"kind": "Status", "code": 410}}\n')
    eventually(lambda: any("DaemonSet can't be read" in line for line in running.log))
    api.tell(ACCOUNTS, "ADDED", "a", namespace="n")
    time.sleep(_QUIET_SECONDS)
    assert len(running.worlds) == steps
    api.answers[DAEMON_SETS] = served
    assert _names(running.looks_again().service_accounts) == ["a"]
    assert sum("can't be read" in line for line in running.log) == 1


def test_a_watch_that_ended_is_begun_where_it_was(running: Loop, api: ApiServer) -> None:
    running.settle()
    api.tell(NODES, "ADDED", "jetson-1", annotations=dict([SIMULATED]))
    api.events[NODES].put(None)
    running.looks_again()
    eventually(lambda: _watches(api)[-1:] == ["8"])


@pytest.mark.parametrize(
    "line",
    [b'{"type": "ERROR", "object": {"kind": "Status", "code": 410}}\n', b'{"type": "ADDED", "obj\n'],
    ids=["too old", "no JSON"],
)
def test_a_watch_that_can_not_go_on_begins_anew_with_a_list(running: Loop, api: ApiServer, line: bytes) -> None:
    running.settle()
    watches = len(_watches(api))
    api.serve(NODES, EMPTY | {"items": [{"metadata": {"name": "missed", "annotations": dict([SIMULATED])}}]})
    api.events[NODES].put(line)
    api.events[NODES].put(None)
    assert _names(running.looks_again().nodes) == ["missed"]
    eventually(lambda: _watches(api)[watches:] == ["7"])


def test_what_could_not_be_done_is_tried_again_without_any_change(running: Loop, api: ApiServer) -> None:
    running.settle()
    path = "/api/v1/namespaces/n/serviceaccounts/a"
    api.object_to(path, 500, "not now")
    manifest = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "namespace": "n"}}
    running.decision = Decision((Apply(manifest),))
    api.tell(ACCOUNTS, "ADDED", "b", namespace="n")
    steps = len(running.worlds)
    eventually(lambda: len(running.worlds) > steps + 3)
    del api.applies[path]
    running.settle()


def _names(objects: Iterable[Object]) -> list[str]:
    return [it["metadata"]["name"] for it in objects]


def _lists(api: ApiServer, path: str) -> int:
    """How often a path was listed."""
    return sum(request.path == path and "watch" not in request.query for request in api.asked)


def _watches(api: ApiServer) -> list[str]:
    """From which version each watch of the nodes began."""
    return [
        request.query["resourceVersion"][0]
        for request in api.asked
        if request.path == NODES and "watch" in request.query
    ]
