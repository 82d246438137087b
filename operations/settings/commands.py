"""`settings explain` and `settings list`: the reference on the command line."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from config.reference import Setting, UnknownSettingError, find, inside, settings, text_of
from operations.exit_status import ExitStatus
from operations.settings.page import anchor

app = typer.Typer(name="settings", no_args_is_help=True, help="Look settings up: type, default, and what they are for.")

AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]


@app.command()
def explain(
    *,
    key: Annotated[str, typer.Argument(help="Such as kai.queues, or hosts.jetson-1.ssh.port.")],
    as_json: AsJson = False,
) -> None:
    """Print what one setting is for, its type and its default; of a section, what it has."""
    try:
        matching = find(key)
    except UnknownSettingError as error:
        typer.echo(error, err=True)
        raise typer.Exit(ExitStatus.USAGE) from None
    typer.echo(_json(matching) if as_json else "\n\n".join(_explained(setting) for setting in matching))


@app.command(name="list")
def list_settings(*, as_json: AsJson = False) -> None:
    """Print every setting with its type and its default."""
    known = settings()
    typer.echo(
        _json(known) if as_json else "\n".join(_line(setting) for setting in known if setting.shape != "section")
    )


def _explained(setting: Setting) -> str:
    facts = {
        "Only with": setting.only_with,
        "Type": setting.type,
        "Default": _default(setting),
        "Example": ", ".join(map(text_of, setting.examples)),
        "Page": f"docs/settings.md#{anchor(setting)}",
    }
    lines = [f"{setting.key}\n", *(f"  {name + ':':<11}{fact}" for name, fact in facts.items() if fact)]
    lines += ["", *(f"  {line}".rstrip() for line in setting.description.splitlines())]
    if has := [_line(other) for other in inside(setting)]:
        lines += ["", "  It has:", *(f"    {line}" for line in has)]
    return "\n".join(lines)


def _line(setting: Setting) -> str:
    default = f" (default {text_of(setting.default)})" if setting.default is not None else ""
    return f"{setting.key}: {setting.type}{', required' if setting.required else default}" + (
        f" [{setting.only_with}]" if setting.only_with else ""
    )


def _default(setting: Setting) -> str:
    if setting.required:
        return "none: it is required"
    return "" if setting.shape == "section" else "not set" if setting.default is None else text_of(setting.default)


def _json(chosen: Iterable[Setting]) -> str:
    content: Sequence[dict[str, Any]] = [asdict(setting) for setting in chosen]
    return json.dumps(content, indent=2, ensure_ascii=False)
