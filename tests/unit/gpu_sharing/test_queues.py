"""Whose turn it is: ranked anew is only who had the last one, and the answer is as if all were."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_sharing.model import Node, Pod, Workload
from gpu_sharing.placement import place
from gpu_sharing.queues import UNLIMITED, Amounts, Ledger, Queue, Turns
from gpu_sharing.request import MemoryShare, PodRequest


def _amounts(random: Random, *choices: float) -> Amounts:
    return (random.choice(choices), random.choice(choices), random.choice(choices))


def _queues(random: Random) -> list[Queue]:
    """A few trees of queues."""
    queues: list[Queue] = []
    for number in range(random.randint(1, 12)):
        parent = random.choice(queues).name if queues and random.random() < 0.7 else None
        quota, limit = (_amounts(random, UNLIMITED, 0.0, 1.0, 3.0) for _ in range(2))
        queues.append(Queue(f"q{number}", parent, random.choice((50, 100, 100)), quota, limit))
    return queues


@given(st.integers(0, 2**32).map(Random))
def test_whose_turn_it_is_is_as_if_every_queue_were_ranked_anew(random: Random) -> None:
    queues = _queues(random)
    ledger = Ledger(queues, (4.0, 8.0, 8.0))
    leaves = [queue.name for queue in queues if ledger.leaf(queue.name)]
    ledger.divide({leaf: _amounts(random, 0.0, 1.0, 5.0) for leaf in leaves})
    waiting = {leaf: _amounts(random, 0.0, 0.5, 1.0) for leaf in leaves}

    def anew() -> Turns:
        turns = Turns()
        for leaf, requested in waiting.items():
            turns.set(ledger, leaf, requested)
        return turns

    kept = anew()
    for _ in range(30):
        turn = kept.first()
        assert turn == anew().first()
        if turn is None:
            assert not waiting
            return
        if random.random() < 0.6:
            ledger.charge(turn, waiting[turn], preemptible=True)
        if random.random() < 0.2:
            del waiting[turn]
        else:
            waiting[turn] = _amounts(random, 0.0, 0.5, 1.0)
        kept.set(ledger, turn, waiting.get(turn))


def test_a_turn_is_found_without_ranking_every_queue_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of queues may wait, and each has many turns."""
    ranked, rank = [], Ledger.rank

    def counted(ledger: Ledger, queue: str, requested: Amounts) -> tuple[float, ...]:
        ranked.append(queue)
        return rank(ledger, queue, requested)

    monkeypatch.setattr(Ledger, "rank", counted)
    queues = [Queue(f"q{number}", "all") for number in range(50)]
    request = PodRequest(MemoryShare(40))
    workloads = [Workload((Pod(f"p-{queue.name}-{n}", request),), queue.name) for queue in queues for n in range(2)]
    packing = place([Node("n", 131000, 1, 1)], workloads, [*queues, Queue("all")])
    assert len(packing.placed) == len(workloads)
    assert len(ranked) <= 2 * (len(queues) + len(workloads)), "it, and the one above it, once for each turn"
