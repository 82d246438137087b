"""The commands of `kai-anywhere`, as typer has them."""

from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

from operations.__main__ import app


def commands() -> dict[str, Any]:
    """Every command by its words, such as `status`, `fleet` and `fleet plan`."""
    return dict(_below(typer.main.get_command(app), ""))


def _below(command: Any, words: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - typer keeps the type to itself
    if not isinstance(command, TyperGroup):
        return
    context = typer.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        yield f"{words} {name}".strip(), inner
        yield from _below(inner, f"{words} {name}".strip())
