"""Reads TOML as `containerd config dump` prints it. Nothing is written from here: edits of files stay textual."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Mapping, Tuple

import tomli  # Packed into the one file: Python has its own from 3.11 on only, and hosts have older ones.

from agents.host.errors import HostError

Flat = Dict[Tuple[str, ...], Any]
"""The values of a document by their full key."""


def flatten(text: str) -> Flat:
    """Every value of a dump under its full key.

    Raises:
        HostError: It is no TOML.
    """
    try:
        return dict(_leaves((), tomli.loads(text)))
    except tomli.TOMLDecodeError as error:
        # The line itself may hold a registry's password; the parser tells its number.
        raise HostError(
            f"`containerd config dump` printed what can't be read: {error}.",
            "Run the command by hand and look at that line.",
        ) from error


def below(flat: Flat, prefix: tuple[str, ...]) -> Flat:
    """The values under a key, by what follows it."""
    return {key[len(prefix) :]: value for key, value in flat.items() if key[: len(prefix)] == prefix}


def _leaves(prefix: tuple[str, ...], table: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves((*prefix, key), value)
        else:
            yield (*prefix, key), value
