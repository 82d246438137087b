"""The loop of the emulated operators: when it looks at the cluster, and when it only asks whether anything changed."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from simulator.operands import loop
from tests.support.api_server import ApiServer

NAMESPACES, NODES, DAEMON_SETS = "/api/v1/namespaces", "/api/v1/nodes", "/apis/apps/v1/daemonsets"


class _EndError(Exception):
    """Ends the loop, which a person's Ctrl-C or `simulator down` ends otherwise."""


@pytest.fixture
def rounds(api: ApiServer, config_path: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Run the loop; before each further round an action. The result: how often the nodes were listed in each."""
    api.serve(NODES, {"metadata": {}, "items": []})

    def run(*actions: Callable[[], None]) -> list[int]:
        counts: list[int] = []
        pauses: Iterator[Callable[[], None]] = iter(actions)

        def pause(_: float) -> None:
            counts.append(len([request for request in api.asked if request.path == NODES]) - sum(counts))
            action = next(pauses, None)
            if action is None:
                raise _EndError
            action()

        monkeypatch.setattr(time, "sleep", pause)
        with pytest.raises(_EndError):
            loop.run(Path(config_path))
        return counts

    return run


def _revision(api: ApiServer, revision: str) -> Callable[[], None]:
    return lambda: api.serve(NAMESPACES, {"metadata": {"resourceVersion": revision}, "items": []})


def _nothing() -> None:
    return


def test_a_cluster_in_which_nothing_changes_is_looked_at_once(api: ApiServer, rounds: Callable[..., list[int]]) -> None:
    _revision(api, "7")()
    assert rounds(_nothing, _nothing) == [1, 0, 0]


def test_any_write_to_the_store_makes_it_look_again(api: ApiServer, rounds: Callable[..., list[int]]) -> None:
    _revision(api, "7")()
    assert rounds(_nothing, _revision(api, "8"), _nothing) == [1, 0, 1, 0]


def test_what_could_not_be_done_is_tried_again_without_any_write(
    api: ApiServer, rounds: Callable[..., list[int]]
) -> None:
    _revision(api, "7")()
    api.fail(DAEMON_SETS, 500)

    def mend() -> None:
        api.serve(DAEMON_SETS, {"metadata": {}, "items": []})

    assert rounds(_nothing, mend, _nothing) == [1, 1, 1, 0]


def test_where_the_revision_cant_be_read_it_looks_every_time(api: ApiServer, rounds: Callable[..., list[int]]) -> None:
    api.fail(NAMESPACES, 403)
    assert rounds(_nothing) == [1, 1]
