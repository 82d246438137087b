"""The loop of the emulated operators: when it looks at the cluster, and when it asks for nothing."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from simulator.operands import loop
from testbed.waiting import eventually
from tests.support.api_server import DEPLOYMENTS, ApiServer

NODES, ACCOUNTS, DAEMON_SETS = "/api/v1/nodes", "/api/v1/serviceaccounts", "/apis/apps/v1/daemonsets"
RULES = "/apis/nfd.k8s-sigs.io/v1alpha1/nodefeaturerules"
_QUIET_SECONDS = 0.3
"""Longer than any of the pauses here."""


class _EndError(Exception):
    """Ends the loop, which a person's Ctrl-C or `simulator down` ends otherwise."""


class Loop:
    """The loop in a thread.

    Attributes:
        steps: how often it has looked at the cluster.
    """

    def __init__(self, api: ApiServer) -> None:
        self.steps = 0
        self.ending = False
        self._api = api

    def settle(self) -> int:
        """Wait for a moment without a step; how often it has looked until then."""
        eventually(lambda: self.steps > 0 and _still(lambda: self.steps))
        return self.steps

    def looks_again(self, before: int) -> None:
        """Wait until it has looked since."""
        eventually(lambda: self.steps > before)

    def end(self, thread: threading.Thread) -> None:
        """End it at its next look."""
        self.ending = True
        self._api.tell(NODES, "MODIFIED", "jetson-1")
        thread.join(60)
        assert not thread.is_alive()


def _still(count: Callable[[], int]) -> bool:
    before = count()
    time.sleep(_QUIET_SECONDS)
    return count() == before


@pytest.fixture
def running(api: ApiServer, config_path: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loop]:
    for path in (NODES, ACCOUNTS, DAEMON_SETS, DEPLOYMENTS):
        api.serve(path, {"metadata": {"resourceVersion": "7"}, "items": []})
    monkeypatch.setattr(loop, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(loop, "AGAIN_SECONDS", 0.05)
    made, step = Loop(api), loop.step

    def counted(client: Any, webhooks: Any, behaviours: Sequence[loop.Behaviour]) -> list[str]:  # noqa: ANN401
        if made.ending:
            raise _EndError
        complaints = list(step(client, webhooks, behaviours))
        made.steps += 1
        return complaints

    def run() -> None:
        with pytest.RaisesGroup(_EndError):
            loop.run(Path(config_path))

    monkeypatch.setattr(loop, "step", counted)
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


@pytest.mark.parametrize(("path", "change"), [(NODES, "ADDED"), (ACCOUNTS, "MODIFIED"), (NODES, "DELETED")])
def test_any_change_of_what_it_looks_at_makes_it_look_again(
    running: Loop, api: ApiServer, path: str, change: str
) -> None:
    before = running.settle()
    api.tell(path, change, "x")
    running.looks_again(before)
    running.settle()


def test_a_kind_that_the_cluster_comes_to_know_is_looked_at(running: Loop, api: ApiServer) -> None:
    before = running.settle()
    api.serve(RULES, {"metadata": {"resourceVersion": "7"}, "items": []})
    running.looks_again(before)
    before = running.settle()
    api.tell(RULES, "ADDED", "x")
    running.looks_again(before)


def test_a_watch_that_ended_is_begun_where_it_was(running: Loop, api: ApiServer) -> None:
    before = running.settle()
    api.tell(NODES, "ADDED", "x")
    api.events[NODES].put(None)
    running.looks_again(before)
    eventually(lambda: _watches(api)[-1:] == ["8"])


@pytest.mark.parametrize(
    "told",
    [b'{"type": "ERROR", "object": {"kind": "Status", "code": 410}}\n', b'{"type": "ADDED", "obj\n'],
    ids=["too old", "no JSON"],
)
def test_a_watch_that_can_not_go_on_begins_anew_with_a_look(running: Loop, api: ApiServer, told: bytes) -> None:
    before = running.settle()
    watches = len(_watches(api))
    api.events[NODES].put(told)
    api.events[NODES].put(None)
    running.looks_again(before)
    eventually(lambda: _watches(api)[watches:] == ["7"])


def test_silence_does_not_last_for_ever(running: Loop, monkeypatch: pytest.MonkeyPatch, api: ApiServer) -> None:
    before = running.settle()
    monkeypatch.setattr(loop, "LOOK_SECONDS", 0.05)
    api.tell(NODES, "MODIFIED", "jetson-1")
    running.looks_again(before + 3)


def test_what_could_not_be_done_is_tried_again_without_any_change(running: Loop, api: ApiServer) -> None:
    before = running.settle()
    served = api.answers[DAEMON_SETS]
    api.fail(DAEMON_SETS, 500)
    api.tell(NODES, "MODIFIED", "jetson-1")
    running.looks_again(before + 3)
    api.answers[DAEMON_SETS] = served
    running.settle()


def _watches(api: ApiServer) -> list[str]:
    """From which version each watch of the nodes began."""
    return [
        request.query["resourceVersion"][0]
        for request in api.asked
        if request.path == NODES and "watch" in request.query
    ]
