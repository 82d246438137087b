"""What every step of the plan works with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from agents.host.change.journal import Journal
    from agents.host.commands import Tools
    from agents.host.desired import Desired
    from agents.host.look.distribution import Layout
    from agents.host.look.probe import Hardware


@dataclass(frozen=True)
class Context:
    """The host as it is and as it shall be; `staging` is a private folder in which candidates are tried."""

    tools: Tools
    desired: Desired
    hardware: Hardware
    layout: Layout
    journal: Journal
    staging: Path

    def owes_restart(self, service: str) -> bool:
        """Whether an earlier run was ended between a service's new configuration and its restart."""
        return service in self.journal.pending
