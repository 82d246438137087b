"""Failures a person reads: what happened, why, what to do."""


class OperationError(Exception):
    """A command can't do its work."""
