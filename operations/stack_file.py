"""Reads a stack file without the engine."""

import json
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml
from typing_extensions import override

from config.stack import SETTINGS_KEY, StackSettings, parse_settings
from operations.errors import OperationError

PROJECT = "kai-anywhere"
_KEY = f"{PROJECT}:{SETTINGS_KEY}"
SIMULATED_MEMORY_MIB = 65536
"""Of one GPU where a simulated node stands for a host that would be asked."""


class _UniqueKeys(yaml.SafeLoader):
    """Refuses a key that stands twice in a mapping, as Pulumi does; YAML's own way is that the last one wins."""

    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if (first := lines.setdefault(str(key.value), line)) != line:
                raise yaml.YAMLError(f"key '{key.value}' stands in lines {first} and {line}: remove one")
        return super().construct_mapping(node, deep)


def read_stack_file(path: Path) -> dict[str, Any]:
    """The file's content, as YAML says it.

    Raises:
        OperationError: if there is no such file, or it is not a stack file.
    """
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeys)  # noqa: S506 - a SafeLoader
    except FileNotFoundError as error:
        known = ", ".join(stack_names(path.parent))
        raise OperationError(
            f"There is no {path.name}, so no such stack.\nStacks: {known}. Choose one with STACK=name."
        ) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise OperationError(
            f"{path.name} is not UTF-8: byte {error.object[error.start]:#04x} in line {line}. Save it as UTF-8."
        ) from error
    except yaml.YAMLError as error:
        raise OperationError(f"{path.name} is not YAML: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("config", {}), dict):
        raise OperationError(
            f"{path.name} is not a stack file: it needs a mapping `config`: docs/settings.md shows one."
        )
    return content


def stack_names(folder: Path) -> list[str]:
    """The stacks that have a file in a folder."""
    return sorted(file.name.removeprefix("Pulumi.").removesuffix(".yaml") for file in folder.glob("Pulumi.*.yaml"))


def read_settings(path: Path) -> StackSettings:
    """The stack's validated settings.

    Raises:
        OperationError: if the file can't be read.
        StackConfigError: if a setting is wrong.
    """
    return settings_of(read_stack_file(path), path.name)


def settings_of(content: dict[str, Any], file: str) -> StackSettings:
    """The validated settings of a stack file's content.

    Raises:
        StackConfigError: if a setting is wrong.
    """
    config = content.get("config", {})
    plain = (key for key, value in config.items() if not (isinstance(value, dict) and value.keys() == {"secure"}))
    other_keys = [name for prefix, _, name in (str(key).partition(":") for key in plain) if prefix == PROJECT]
    settings = config.get(_KEY)
    return parse_settings(
        None if settings is None else json.dumps(settings), file=file, other_keys=other_keys, top_level_keys=content
    )


def raw_settings(path: Path) -> dict[str, Any]:
    """The stack's settings as the file says them, not validated.

    Raises:
        OperationError: if the file can't be read.
    """
    settings = read_stack_file(path).get("config", {}).get(_KEY)
    return dict(settings) if isinstance(settings, dict) else {}


def with_settings(content: dict[str, Any], changes: dict[str, dict[str, Any]]) -> dict[str, Any]:
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
        kind: {node: {"gpu_memory_mib": SIMULATED_MEMORY_MIB} | _dict_of(said) for node, said in nodes.items()}
        for kind in ("tegra_nodes", "unified_memory_nodes")
        if (nodes := _dict_of(platform.get(kind)))
    }
    changed = {"platform": platform | measured}
    if cluster := _dict_of(settings.get("cluster")):
        changed["cluster"] = {key: value for key, value in cluster.items() if key not in {"kubeconfig", "context"}}
    return {"config": {_KEY: settings | changed}}


def _dict_of(value: object) -> dict[str, Any]:
    """A mapping, or an empty one for everything else: what is wrong is said when the settings are validated."""
    return value if isinstance(value, dict) else {}
