"""`settings explain`, `list` and `show`: the reference, and what is in force in a stack, on the command line."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel, ConfigDict, RootModel

from config.bases import Inherited, Layer
from config.reference import BASE, Setting, UnknownSettingError, find, inside, settings, text_of
from operations.exit_status import ExitStatus
from operations.options import stack_name
from operations.settings.page import anchor
from operations.stack_file import check_endings, check_project, read_layers, read_settings
from operations.target import ROOT

_PAGE_OF_BASES = "docs/fleets.md#a-base-and-a-few-lines-for-each-site"

app = typer.Typer(name="settings", no_args_is_help=True, help="Look settings up: type, default, and what they are for.")

AsJson = Annotated[
    bool, typer.Option("--json", help="Print it as JSON; its schema is docs/settings-explain.schema.json.")
]


@app.command()
def explain(
    *,
    key: Annotated[str, typer.Argument(help="The setting, such as kai.queues or hosts.jetson-1.ssh.port.")],
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
    all_settings = settings()
    typer.echo(
        _json(all_settings)
        if as_json
        else "\n".join(_line(setting) for setting in all_settings if setting.shape != "section")
    )


@app.command()
def show(
    *,
    stack: Annotated[
        str,
        typer.Argument(
            callback=stack_name, help="The stack: its settings stand in Pulumi.<stack>.yaml, and in its base."
        ),
    ],
    folder: Annotated[Path | None, typer.Option(help="The folder with the file; by default this checkout.")] = None,
    defaults: Annotated[bool, typer.Option("--defaults", help="Also defaults that no file says.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print it as JSON; its schema is docs/settings-show.schema.json.")
    ] = False,
) -> None:
    """Print a stack's settings as they are in force, each with the file in which it stands."""
    file = (folder or ROOT) / f"Pulumi.{stack}.yaml"
    check_endings(file.parent)
    if (project := file.parent / "Pulumi.yaml").is_file():
        check_project(project)
    # First, since it says more of a file without settings.
    in_force = read_settings(file).model_dump(mode="json")
    layers = read_layers(file)
    entries = [Said(key=text_of_key(key), value=value, file=place) for key, value, place in layers.values()]
    if defaults:
        entries += [Said(key=text_of_key(key), value=value, file=DEFAULT) for key, value in _beside(layers, in_force)]
    if as_json:
        files = tuple(layer.file for layer in reversed(layers.layers))
        typer.echo(Shown(stack=stack, files=files, values=tuple(entries)).model_dump_json(indent=2))
        return
    width = max((len(entry.text) for entry in entries), default=0)
    typer.echo("\n".join(f"{entry.text:<{width}}  # {entry.file}" for entry in entries))


DEFAULT = "default"
"""Stands for the file where none says a setting."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Said(_Model):
    """A setting that is in force.

    Attributes:
        key: dotted, as `pulumi config set --path` takes it.
        value: as JSON.
        file: in which it stands; `default` where none says it.
    """

    key: str
    value: Any
    file: str

    @property
    def text(self) -> str:
        """As a line of YAML, the key dotted."""
        return f"{self.key}: {text_of(self.value)}"


class Shown(_Model):
    """What `show --json` prints.

    Attributes:
        stack: its name.
        files: that say its settings, the stack's own first.
        values: by their order in the files.
    """

    stack: str
    files: tuple[str, ...]
    values: tuple[Said, ...]


class Explained(RootModel[tuple[Setting, ...]]):
    """What `explain --json` and `list --json` print."""


def text_of_key(key: Sequence[str]) -> str:
    """A key as `pulumi config set --path` takes it: a name with a dot stands in brackets."""
    first, *rest = key
    return first + "".join(f'["{part}"]' if "." in part else f".{part}" for part in rest)


def _beside(layers: Inherited, in_force: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """What holds and stands in no file; what is not set is left out."""
    keys = {key for key, _, _ in layers.values()}
    whole = Inherited((Layer(DEFAULT, in_force),))
    for key, value, _ in whole.values():
        if value is not None and not any(key[:length] in keys for length in range(1, len(key) + 1)):
            yield key, value


def _explained(setting: Setting) -> str:
    facts = {
        "Only with": setting.only_with,
        "Type": setting.type,
        "Default": _default(setting),
        "Example": ", ".join(map(text_of, setting.examples)),
        "Page": f"docs/settings.md#{anchor(setting)}" if setting != BASE else _PAGE_OF_BASES,
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
    return Explained(tuple(chosen)).model_dump_json(indent=2)
