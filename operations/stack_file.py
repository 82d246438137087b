"""Reads a stack file without the engine."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from config.bases import PROJECT, Inherited, from_folder, inherited
from config.stack import BASE_KEY, SETTINGS_KEY, StackConfigError, StackSettings, parse_settings, secret_in_settings
from config.yaml_text import load_yaml
from operations.errors import OperationError

_KEY = f"{PROJECT}:{SETTINGS_KEY}"
_BASE = f"{PROJECT}:{BASE_KEY}"
SIMULATED_MEMORY_MIB = 65536
"""Of one GPU where a simulated node stands for a host that would be asked."""


def read_stack_file(path: Path) -> dict[str, Any]:
    """The file's content, with the settings of its base in it.

    Raises:
        OperationError: if there is no such file, it is not a stack file, or its base can't be used.
    """
    return resolved(_read(path), path.name, from_folder(path.parent))


def read_layers(path: Path) -> Inherited:
    """The stack's settings, file by file.

    Raises:
        OperationError: if the file can't be read.
        StackConfigError: if its base can't be used.
    """
    return layers_of(_read(path), path.name, from_folder(path.parent))


def layers_of(content: dict[str, Any], file: str, read: Callable[[str], str]) -> Inherited:
    """The settings of a stack file's content, file by file.

    Args:
        content: of the stack's own file.
        file: its name.
        read: gives a base's text by its path.

    Raises:
        StackConfigError: if its base can't be used.
    """
    config = content.get("config", {})
    return inherited(file, config.get(_KEY), config.get(_BASE), read)


def resolved(content: dict[str, Any], file: str, read: Callable[[str], str]) -> dict[str, Any]:
    """A stack file's content with the settings of its base in it, as one file would say them.

    Raises:
        OperationError: if its base can't be used.
    """
    config: Mapping[str, Any] = content.get("config", {})
    if _BASE not in config:
        return content
    try:
        merged = layers_of(content, file, read).merged
    except StackConfigError as error:
        raise OperationError(str(error)) from error
    return content | {"config": {key: value for key, value in config.items() if key != _BASE} | {_KEY: merged}}


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        if path.is_symlink():
            raise OperationError(f"{path.name} leads to {path.readlink()}, which is not there.") from error
        check_endings(path.parent)
        stacks = ", ".join(stack_names(path.parent))
        said = (
            f"There is no {path.name}, so no such stack.\nStacks: {stacks}. Name one of them; with make: STACK=name."
            if stacks
            else f"There is no {path.name}, and no other file of a stack, in {path.parent.absolute()}."
        )
        raise OperationError(said + _in_another_folder(path)) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise OperationError(
            f"{path.name} is not UTF-8: byte {error.object[error.start]:#04x} in line {line}. Save it as UTF-8."
        ) from error
    except OSError as error:
        raise OperationError(f"{path.name} can't be read: {error.strerror}.") from error
    return content_of(text, path.name)


def _in_another_folder(path: Path) -> str:
    """What to do where the file lies in the folder in which somebody works, such as that of a team's own project."""
    if not (here := Path(path.name)).is_file():
        return ""
    return (
        f"\nOnly {path.parent.absolute()} was looked into, and not {here.absolute().parent}, which has a {path.name}: "
        "give that folder where there is an option --folder; for the other commands see docs/teams.md, The commands on "
        "your machine."
    )


def content_of(text: str, file: str) -> dict[str, Any]:
    """What a stack file's text says, without its base.

    Raises:
        OperationError: if it is not a stack file.
    """
    try:
        content = load_yaml(text)
    except yaml.YAMLError as error:
        raise OperationError(f"{file} is not YAML: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("config", {}), dict):
        raise OperationError(f"{file} is not a stack file: it needs a mapping `config`: docs/settings.md shows one.")
    return content


def check_endings(folder: Path) -> None:
    """Whether the files of a folder's project and stacks end as everything here has it.

    Pulumi takes Pulumi.yml where there is no Pulumi.yaml, and of stacks the files that end as the project's (3.259).

    Raises:
        OperationError: if one ends otherwise.
    """
    others = (*folder.glob("Pulumi.yml"), *sorted(folder.glob("Pulumi.*.yml")))
    if names := [file.name for file in others if not file.with_suffix(".yaml").exists()]:
        raise OperationError(
            f"{folder.absolute()} has {', '.join(names)}: nothing here reads files that end in .yml. Let the project's "
            "file and those of all its stacks end in .yaml; pulumi reads those of one ending only."
        )


def check_project(file: Path) -> None:
    """Whether pulumi reads the stack files beside a Pulumi.yaml, as everything here does, and nothing else.

    Raises:
        OperationError: if it would read others, the file has settings of its own, or it can't be read.
    """
    if (first := file.with_suffix(".json")).exists():
        # It takes the stacks' files for .json too, and runs the program of Pulumi.yaml all the same (3.259).
        raise OperationError(
            f"{first} stands beside Pulumi.yaml: pulumi would read stack files Pulumi.<stack>.json, which no preview's "
            "list and no policy has read. Say all of it in Pulumi.yaml instead."
        )
    content = read_project(file)
    # A text as `config` is the older word for the same (3.259).
    key = "config" if isinstance(content.get("config"), str) else "stackConfigDir"
    if key in content:
        raise OperationError(
            f"{file} says `{key}: {content[key]}`: pulumi would read stack files there that no preview's list and no "
            "policy has read. Remove the line, and keep the files Pulumi.<stack>.yaml beside Pulumi.yaml."
        )
    config = content.get("config")
    for key, said in config.items() if isinstance(config, dict) else ():
        # Pulumi takes a key without a prefix for the project's own.
        own = key if ":" in key else f"{content.get('name')}:{key}"
        given = not isinstance(said, dict) or "value" in said or "default" in said
        if given and own in {_KEY, _BASE}:
            raise OperationError(
                f"{file} gives `{key}` a value for every stack, which pulumi takes and no preview's list and no policy "
                "has read. Say it in each file Pulumi.<stack>.yaml; what they share can stand in a base."
            )


def project_of(folder: Path) -> str:
    """The project by whose name pulumi keeps the states of a folder's stacks; this program's without a Pulumi.yaml.

    Raises:
        OperationError: if its Pulumi.yaml can't be read.
    """
    file = folder / "Pulumi.yaml"
    name = read_project(file).get("name") if file.is_file() else None
    return name if isinstance(name, str) else PROJECT


def read_project(file: Path) -> dict[str, Any]:
    """What a Pulumi.yaml says; nothing where it is no mapping, which pulumi refuses.

    Raises:
        OperationError: if it is not YAML.
    """
    try:
        content = load_yaml(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise OperationError(f"{file} is not YAML: {error}") from error
    return content if isinstance(content, dict) else {}


def stack_names(folder: Path) -> list[str]:
    """The stacks that have a file in a folder."""
    return sorted(file.name.removeprefix("Pulumi.").removesuffix(".yaml") for file in folder.glob("Pulumi.*.yaml"))


def every_stack(folder: Path) -> list[str]:
    """The same, where there has to be one.

    Raises:
        OperationError: if there is none, or one whose file pulumi would not read beside the others.
    """
    check_endings(folder)
    names = stack_names(folder)
    if not names:
        raise OperationError(
            f"There is no file Pulumi.<stack>.yaml in {folder.absolute()}. Give the folder that has the stacks' files, "
            "or put them there."
        )
    return names


def read_settings(path: Path) -> StackSettings:
    """The stack's validated settings.

    Raises:
        OperationError: if the file can't be read.
        StackConfigError: if a setting is wrong.
    """
    own = _read(path)
    if _BASE not in own.get("config", {}):
        return settings_of(own, path.name)
    whole = layers_of(own, path.name, from_folder(path.parent))
    return settings_of(own | {"config": own["config"] | {_KEY: whole.merged}}, whole.title, whole.origin)


def settings_of(
    content: dict[str, Any], file: str, origin: Callable[[Sequence[str | int]], str | None] | None = None
) -> StackSettings:
    """The validated settings of a stack file's content.

    Args:
        content: with the settings of its base in it.
        file: its name, for messages.
        origin: the file of a setting by its key, where there are several.

    Raises:
        StackConfigError: if a setting is wrong.
    """
    config = content.get("config", {})
    plain = (key for key, value in config.items() if not _has_secret(value))
    other_keys = [name for prefix, _, name in (str(key).partition(":") for key in plain) if prefix == PROJECT]
    settings = config.get(_KEY)
    if _has_secret(settings):
        raise secret_in_settings(file)
    return parse_settings(
        None if settings is None else json.dumps(settings),
        file=file,
        other_keys=other_keys,
        top_level_keys=content,
        origin=origin,
    )


def raw_settings(path: Path) -> dict[str, Any]:
    """The stack's settings as the file and its base say them, not validated.

    Raises:
        OperationError: if the file can't be read.
    """
    settings = read_stack_file(path).get("config", {}).get(_KEY)
    return dict(settings) if isinstance(settings, dict) else {}


def with_settings(content: dict[str, Any], changes: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The stack file's content with some settings changed, section by section."""
    settings = content["config"][_KEY]
    changed = settings | {section: settings.get(section, {}) | keys for section, keys in changes.items()}
    return content | {"config": content["config"] | {_KEY: changed}}


def for_simulator(content: dict[str, Any]) -> dict[str, Any]:
    """The stack file's content for a cluster that is simulated.

    Without hosts, so that no machine is contacted; a GPU's memory that a host would be asked for is a fixed one.
    Without the way to the real cluster, whose context the simulator does not have. And without what only the real stack
    can read: its secrets, and the provider that encrypts them.
    """
    settings = {section: value for section, value in content["config"][_KEY].items() if section != "hosts"}
    platform = _dict_of(settings.get("platform"))
    measured = {
        kind: {
            node: {"gpu_memory_mib": SIMULATED_MEMORY_MIB} | _dict_of(node_settings)
            for node, node_settings in nodes.items()
        }
        for kind in ("tegra_nodes", "unified_memory_nodes")
        if (nodes := _dict_of(platform.get(kind)))
    }
    changed = {"platform": platform | measured}
    if cluster := _dict_of(settings.get("cluster")):
        changed["cluster"] = {key: value for key, value in cluster.items() if key not in {"kubeconfig", "context"}}
    return {"config": {_KEY: settings | changed}}


def _has_secret(value: object) -> bool:
    match value:
        case {"secure": str(), **others} if not others:
            return True
        case dict():
            return any(map(_has_secret, value.values()))
        case list():
            return any(map(_has_secret, value))
        case _:
            return False


def _dict_of(value: object) -> dict[str, Any]:
    """A mapping, or an empty one for everything else: what is wrong is said when the settings are validated."""
    return value if isinstance(value, dict) else {}
