"""Memory that many peers share: who holds most of it gives first when there is no more, so nobody shuts others out."""

from typing import Protocol


class Holder(Protocol):
    """Something that holds memory."""

    @property
    def peer(self) -> str:
        """Whose it is: an address."""

    @property
    def busy(self) -> bool:
        """Whether work for it is under way."""

    def evict(self) -> None:
        """End it: what it held went to somebody else."""


class Shares:
    """Bytes by peer and holder, never more than a limit in all."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._peers: dict[str, dict[Holder, int]] = {}
        """Holders of each peer, the one that was not active for longest first."""
        self._sums: dict[str, int] = {}
        self.total = 0

    def take(self, holder: Holder, size: int) -> bool:
        """Take bytes beside what the holder has; it counts as active now.

        Where there are none left, holders of the peer that holds most are evicted, idle ones first. Of the holder's
        own peer only idle ones are: whoever is served is not pushed out by more of the same.

        Returns:
            False if they can't be had; nothing is taken then.
        """
        before = self._peers.get(holder.peer, {}).get(holder, 0)
        self._set(holder, before + size)
        while self.total > self._limit:
            victim = self._victim(holder)
            if victim is None:
                self._set(holder, before)
                return False
            self._set(victim, 0)
            victim.evict()
        return True

    def give(self, holder: Holder, size: int) -> None:
        """Give bytes back; who was evicted has none."""
        held = self._peers.get(holder.peer, {}).get(holder, 0)
        self._set(holder, max(0, held - size))

    def leave(self, holder: Holder) -> None:
        """Give everything back."""
        self._set(holder, 0)

    def _victim(self, newcomer: Holder) -> Holder | None:
        peer = max(self._sums, key=self._sums.__getitem__)
        others = [
            holder
            for holder in self._peers[peer]
            if holder is not newcomer and not (holder.busy and peer == newcomer.peer)
        ]
        return min(others, key=lambda holder: holder.busy, default=None)

    def _set(self, holder: Holder, size: int) -> None:
        holders = self._peers.setdefault(holder.peer, {})
        change = size - holders.pop(holder, 0)
        if size:
            holders[holder] = size
        self.total += change
        self._sums[holder.peer] = self._sums.get(holder.peer, 0) + change
        if not holders:
            del self._peers[holder.peer], self._sums[holder.peer]
