"""KAI's queues: what they may use, what is charged to them, and whose turn it is.

KAI v0.17.0 pkg/scheduler/plugins/proportion. Amounts are GPUs, millicpus and bytes, in this order.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush

QUEUE_LABEL = "kai.scheduler/queue"
"""Label by which a pod names its queue (KAI v0.17.0 pkg/common/constants)."""
UNLIMITED = -1.0
_RESOURCES = ("GPUs", "cores", "MiB of memory")
_UNITS = (1, 1000, 1 << 20)
"""Of amounts in one of these."""
_NO_SHARE_FACTOR = 1000
"""A queue that uses what it has no share of comes last (resource_share, noFairShareDrfMultiplier)."""

Amounts = tuple[float, float, float]
NOTHING: Amounts = (0.0, 0.0, 0.0)
Used = Mapping[str, tuple[Amounts, Amounts]]
"""What queues use by name, and how much of that is for pods that may not be interrupted."""


def add(one: Amounts, other: Amounts) -> Amounts:
    """The sum, resource by resource."""
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2])


@dataclass(frozen=True)
class Queue:
    """A queue, as its object says it.

    Attributes:
        name: of the object.
        parent: the queue above it; None for a top queue.
        priority: KAI's default is 100.
        quota: what it is promised; `UNLIMITED` means everything.
        limit: what it may use at most; `UNLIMITED` means everything.
        weight: by which it gets of what is left over.
    """

    name: str
    parent: str | None = None
    priority: int = 100
    quota: Amounts = NOTHING
    limit: Amounts = (UNLIMITED, UNLIMITED, UNLIMITED)
    weight: Amounts = (1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Objection:
    """Why a queue has no room.

    Attributes:
        queue: it, or one above it.
        resource: what is short, with its unit.
        allowed: the limit or quota.
        used: so far.
        requested: in addition.
        over_quota: whether it is the quota, which pods that may not be interrupted must keep to.
    """

    queue: str
    resource: str
    allowed: float
    used: float
    requested: float
    over_quota: bool


@dataclass
class _Account:
    queue: Queue
    used: Amounts = NOTHING
    used_for_good: Amounts = NOTHING
    requested: Amounts = NOTHING
    fair: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])

    def allocatable(self, index: int) -> float:
        """What the queue should have (resource_share.go, GetAllocatableShare)."""
        quota, limit = self.queue.quota[index], self.queue.limit[index]
        if quota == UNLIMITED:
            return limit
        share = max(quota, self.fair[index])
        return share if limit == UNLIMITED else min(limit, share)

    def requestable(self, index: int) -> float:
        """What it asks for, up to its limit."""
        limit = self.queue.limit[index]
        return self.requested[index] if limit == UNLIMITED else min(limit, self.requested[index])


class Ledger:
    """What the queues of a cluster use.

    Args:
        queues: all of them.
        total: what the cluster has.
    """

    def __init__(self, queues: Iterable[Queue], total: Amounts) -> None:
        self._accounts = {queue.name: _Account(queue) for queue in _rooted(queues)}
        self._below: dict[str | None, list[_Account]] = {}
        for _, account in sorted(self._accounts.items()):
            self._below.setdefault(account.queue.parent, []).append(account)
        self._total = total

    def leaf(self, name: str) -> bool | None:
        """Whether pods can be submitted to a queue; None where there is no such queue."""
        if name not in self._accounts:
            return None
        return name not in self._below

    def charge(self, queue: str, amounts: Amounts, *, preemptible: bool) -> None:
        """Add what a placed pod uses to its queue and to those above it."""
        for account in self._up(queue):
            account.used = add(account.used, amounts)
            if not preemptible:
                account.used_for_good = add(account.used_for_good, amounts)

    def used_along(self, queue: str) -> Used:
        """What a queue uses, and those above it, to be set again."""
        return {account.queue.name: (account.used, account.used_for_good) for account in self._up(queue)}

    def set_used(self, used: Used) -> None:
        """Have queues use what they used then."""
        for name, (all_of_it, for_good) in used.items():
            account = self._accounts[name]
            account.used, account.used_for_good = all_of_it, for_good

    def objection(self, queue: str, amounts: Amounts, *, preemptible: bool) -> Objection | None:
        """Why a queue, or one above it, has no room for so much (capacity_policy); None where it has."""
        for account in self._up(queue):
            if over := _over(account.queue.name, account.queue.limit, account.used, amounts, over_quota=False):
                return over
        for account in [] if preemptible else self._up(queue):
            if over := _over(account.queue.name, account.queue.quota, account.used_for_good, amounts, over_quota=True):
                return over
        return None

    def divide(self, requested: Mapping[str, Amounts]) -> None:
        """Give every queue its fair share of the cluster.

        Args:
            requested: what the pods of each leaf queue ask for together, whether they run or not.
        """
        for name, amounts in requested.items():
            for account in self._up(name):
                account.requested = add(account.requested, amounts)
        parents: list[tuple[str | None, Amounts]] = [(None, self._total)]
        for parent, total in parents:
            level = self._below.get(parent, [])
            for index in range(len(_RESOURCES)):
                _divide(level, total[index], index)
            parents += [(account.queue.name, (account.fair[0], account.fair[1], account.fair[2])) for account in level]

    def rank(self, queue: str, requested: Amounts) -> tuple[float, ...]:
        """What decides whether it is a queue's turn before those beside it (queue_order.go).

        Args:
            queue: it.
            requested: what the next pods below it ask for.
        """
        return _rank(self._accounts[queue], requested, self._total)

    def path(self, queue: str) -> list[Queue]:
        """A queue, and those above it."""
        return [account.queue for account in self._up(queue)]

    def _up(self, name: str) -> Iterator[_Account]:
        account = self._accounts.get(name)
        while account is not None:
            yield account
            account = self._accounts.get(account.queue.parent or "")


class Turns:
    """Whose turn it is among the leaf queues that have pods waiting (queue_order.go).

    A queue that had its turn is ranked anew, and those above it; nothing was charged to any other.
    """

    def __init__(self) -> None:
        self._requested: dict[str, Amounts] = {}
        self._below: dict[str | None, list[tuple[tuple[float, ...], str, int]]] = {}
        """By parent: a heap, in which an entry counts if it is the newest of its queue."""
        self._newest: dict[str, int] = {}
        self._entries = itertools.count()

    def set(self, ledger: Ledger, leaf: str, requested: Amounts | None) -> None:
        """Note what the next pods of a leaf queue ask for, or that none wait any more.

        Args:
            ledger: what is charged by now.
            leaf: the queue.
            requested: None where none wait.
        """
        if requested is None:
            del self._requested[leaf]
        else:
            self._requested[leaf] = requested
        for queue in ledger.path(leaf):
            best = self._best(queue.name)
            if best is None:
                del self._newest[queue.name]
                continue
            entry = self._newest[queue.name] = next(self._entries)
            rank = ledger.rank(queue.name, self._requested[best])
            heappush(self._below.setdefault(queue.parent, []), (rank, queue.name, entry))

    def first(self) -> str | None:
        """The leaf queue whose turn it is; None where none waits."""
        return self._best(None)

    def _best(self, name: str | None) -> str | None:
        while name not in self._requested:
            heap = self._below.get(name, [])
            while heap and self._newest.get(heap[0][1]) != heap[0][2]:
                heappop(heap)
            if not heap:
                return None
            name = heap[0][1]
        return name


def _rooted(queues: Iterable[Queue]) -> Iterator[Queue]:
    """Those below a top queue; KAI ignores the others (pkg/scheduler/cache/cluster_info).

    The parent of one is missing, or below itself.
    """
    below: dict[str | None, list[Queue]] = {}
    for queue in queues:
        below.setdefault(queue.parent, []).append(queue)
    levels = below.get(None, [])
    for queue in levels:
        yield queue
        levels += below.get(queue.name, [])


def _over(name: str, allowed: Amounts, used: Amounts, requested: Amounts, *, over_quota: bool) -> Objection | None:
    for index, resource in enumerate(_RESOURCES):
        if allowed[index] != UNLIMITED and requested[index] and allowed[index] < used[index] + requested[index]:
            unit = _UNITS[index]
            return Objection(
                name, resource, allowed[index] / unit, used[index] / unit, requested[index] / unit, over_quota
            )
    return None


def _rank(account: _Account, requested: Amounts, total: Amounts) -> tuple[float, ...]:
    """What decides whose turn it is, the first difference counts, the smaller one wins.

    Queues that are alike are taken by name; KAI takes the older one.
    """
    queue, indexes = account.queue, range(len(_RESOURCES))
    then = add(account.used, requested)
    allocatable = [account.allocatable(index) for index in indexes]
    return (
        all(account.fair[index] < account.used[index] for index in indexes),
        not all(queue.quota[index] == UNLIMITED or then[index] <= queue.quota[index] for index in indexes),
        -queue.priority,
        any(not allocatable[index] and then[index] for index in indexes),
        max(_part(then[index], allocatable[index], total[index]) for index in indexes),
        max(_part(account.used[index], allocatable[index], total[index]) for index in indexes),
    )


def _part(used: float, allocatable: float, total: float) -> float:
    of = total if allocatable == UNLIMITED else allocatable
    return used / of if of else used * _NO_SHARE_FACTOR


def _divide(level: list[_Account], total: float, index: int) -> None:
    """Divide one resource among the queues of one level (resource_division.go)."""
    left = total
    for account in level:
        quota = account.queue.quota[index]
        share = min(total if quota == UNLIMITED else quota, account.requestable(index))
        account.fair[index] += share
        left -= share
    if left <= 0:
        return
    priorities = sorted({account.queue.priority for account in level}, reverse=True)
    remainders: dict[int, dict[str, float]] = {}
    for priority in priorities:
        same = [account for account in level if account.queue.priority == priority]
        left, remainders[priority] = _divide_by_weight(same, left, index)
    accounts = {account.queue.name: account for account in level}
    for priority in priorities:
        for name, _ in sorted(remainders[priority].items(), key=lambda item: (-item[1], item[0])):
            share = min(1.0, max(left, 0.0))
            accounts[name].fair[index] += share
            left -= share


def _divide_by_weight(level: list[_Account], left: float, index: int) -> tuple[float, dict[str, float]]:
    """Give whole units by weight, in rounds.

    Returns:
        What is left, and by queue what it would get beyond whole units.
    """
    remainders: dict[str, float] = {}
    while left > 0:
        unsatisfied = [account for account in level if account.requestable(index) > account.fair[index]]
        weights = sum(account.queue.weight[index] for account in unsatisfied)
        if not weights:
            break
        again, round_total = False, left
        for account in unsatisfied:
            unmet = account.requestable(index) - account.fair[index]
            share = round_total * account.queue.weight[index] / weights
            granted = unmet if unmet <= share else float(math.floor(share))
            if unmet <= share:
                remainders.pop(account.queue.name, None)
            elif share > granted:
                remainders[account.queue.name] = share - granted
            account.fair[index] += granted
            left -= granted
            again = again or (bool(granted) and unmet < share)
        if not again:
            break
    return left, remainders
