"""Looking again and again."""

import io
import json

import pytest
from rich.console import Console

from cluster.access.lists import Unseen
from cluster.errors import ClusterUnreachableError
from operations.status.watch import watch
from sharing_map.report import Status
from testbed.shared_gpus import gpu_node, reservation, share
from tests.unit.sharing_map.clusters import status_of

_IDLE = status_of(nodes=[gpu_node("jetson-1")])
_BUSY = status_of(nodes=[gpu_node("jetson-1")], pods=[reservation("g"), share("a", "g")])
_AWAY = ClusterUnreachableError("No answer from the cluster\nCheck that it runs")


class _EndError(Exception):
    pass


def _watched(looks: list[Status | ClusterUnreachableError], *, terminal: bool = False, as_json: bool = False) -> str:
    left = iter(looks)
    waits = iter([None] * (len(looks) - 1))

    def read() -> Status:
        look = next(left)
        if isinstance(look, ClusterUnreachableError):
            raise look
        return look

    def wait() -> None:
        try:
            next(waits)
        except StopIteration:
            raise _EndError from None

    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100, height=40, color_system=None, highlight=False)
    with pytest.raises(_EndError):
        watch(read, console, as_json=as_json, wait=wait)
    return out.getvalue()


def test_without_a_terminal_a_line_is_written_when_something_changed() -> None:
    first, second = _watched([_IDLE, _IDLE, _BUSY, _BUSY]).splitlines()
    assert first.startswith("10:00:00 1 node, 1 with GPUs; 1 physical GPU.")
    assert "131,000 MiB are free" in first
    assert "101,000 MiB are free" in second


def test_a_cluster_that_is_away_is_said_once_and_asked_again() -> None:
    before, away, after = _watched([_IDLE, _AWAY, _IDLE]).splitlines()
    assert away.endswith("The cluster could not be read: No answer from the cluster Trying again.")
    assert before == after


def test_json_is_a_document_per_look() -> None:
    documents = [json.loads(line) for line in _watched([_IDLE, _IDLE, _BUSY], as_json=True).splitlines()]
    assert [document["summary"]["free_mib"] for document in documents] == [131000, 131000, 101000]


def test_an_address_stays_as_it_is() -> None:
    address = "https://[fd00:1:bed:1::1]:6443"
    away = ClusterUnreachableError(f"No answer from the cluster at {address}")
    assert f"No answer from the cluster at {address} Trying again." in _watched([_IDLE, away])
    read = _IDLE.model_copy(update={"server": address})
    assert json.loads(_watched([read], as_json=True))["server"] == address


def test_on_a_terminal_the_last_map_stays_while_the_cluster_is_away() -> None:
    printed = _watched([_BUSY, _AWAY], terminal=True)
    last = printed[printed.rindex("The cluster could not be read") :]
    assert "robots/a" in last
    assert "30000 of 131000 MiB taken" in last


@pytest.mark.parametrize("terminal", [True, False])
def test_what_could_not_be_read_is_said_at_every_look(terminal: bool) -> None:
    blind = status_of(nodes=[gpu_node("jetson-1")], unseen=[Unseen("KAI's queues", "no right")])
    assert "warning: KAI's queues could not be read: no right" in _watched([blind], terminal=terminal)
