"""Failures a person reads: what happened, and the way out."""

from __future__ import annotations


class HostError(Exception):
    """Something about this host stops the agent.

    Args:
        message: What is wrong, naming the value.
        remedy: What to do about it.
    """

    exit_code = 1

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class BadInputError(HostError):
    """The arguments or the desired document are not acceptable; nothing was looked at or changed."""

    exit_code = 2


class RolledBackError(HostError):
    """The runtime did not come up with the new configuration; what was there before is back in force."""
