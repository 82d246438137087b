"""The settings of several files as one: a stack's own lines over those of its base, and where each value stands."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from config.stack import BASE_KEY, SETTINGS_KEY, StackConfigError
from config.yaml_text import load_yaml

PROJECT = "kai-anywhere"
FOLDER = "bases"
"""Where bases stand, beside the stacks' files. One folder, so that a name leads nowhere else."""
_NAME = re.compile(rf"{FOLDER}/[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*\.yaml")
_SETTINGS, _BASE = f"{PROJECT}:{SETTINGS_KEY}", f"{PROJECT}:{BASE_KEY}"


@dataclass(frozen=True)
class Layer:
    """One file's settings, and its name as people know it."""

    file: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Inherited:
    """A stack's settings, file by file.

    Attributes:
        layers: the most general file first, the stack's own last.
    """

    layers: tuple[Layer, ...]

    @property
    def title(self) -> str:
        """The files, for messages: the stack's own, then what it builds upon."""
        own, *bases = (layer.file for layer in reversed(self.layers))
        return f"{own} with {' and '.join(bases)}" if bases else own

    @property
    def merged(self) -> dict[str, Any]:
        """The settings: mappings are merged key by key, everything else is the more special file's."""
        settings: dict[str, Any] = {}
        for layer in self.layers:
            settings = _over(settings, layer.settings)
        return settings

    def origin(self, key: Sequence[str | int]) -> str | None:
        """The file in which a setting stands, or the section nearest to it; None where several files have a part."""
        for length in range(len(key), 0, -1):
            files = [layer.file for layer in self.layers if _has(layer.settings, key[:length])]
            value = _at(self.merged, key[:length])
            if files and not (isinstance(value, Mapping) and value):
                return files[-1]
            if files:
                return files[0] if len(files) == 1 else None
        return None

    def values(self) -> Iterator[tuple[tuple[str, ...], Any, str]]:
        """Each value with its key and its file; a list is one value."""
        for key, value in _values(self.merged, ()):
            yield key, value, self.origin(key) or self.layers[-1].file


def inherited(file: str, settings: object, base: object, read: Callable[[str], str]) -> Inherited:
    """A stack's settings with those of its base, and of the base's own.

    Args:
        file: the stack's file, for messages.
        settings: what that says under `kai-anywhere:settings`.
        base: what it says under `kai-anywhere:base`; None where it has none.
        read: gives a base's text by its path, such as `bases/jetson.yaml`.

    Raises:
        StackConfigError: if a base can't be used.
    """
    if not isinstance(settings, Mapping):
        raise StackConfigError(
            f"{file}: {_SETTINGS} must be a mapping. Nothing was changed.\n"
            f"Where the base says everything, write {_SETTINGS}: {{}}"
        )
    layers = [Layer(file, settings)]
    while base is not None:
        said_by = layers[-1].file
        if not isinstance(base, str) or not _NAME.fullmatch(base):
            raise StackConfigError(
                f"{said_by}: {_BASE} is the path of a file in the folder {FOLDER}, such as {FOLDER}/jetson.yaml; it "
                f"is {base!r}. Nothing was changed.\nMove the base there, and write its path from the stacks' folder."
            )
        if base in [layer.file for layer in layers]:
            circle = " -> ".join([layer.file for layer in layers[1:]] + [base])
            raise StackConfigError(
                f"{file}: bases build upon each other in a circle: {circle}. Nothing was changed.\n"
                f"Remove {_BASE} from one of them."
            )
        content = _content(base, said_by, read)
        layers.append(Layer(base, content.get(_SETTINGS, {})))
        base = content.get(_BASE)
    return Inherited(tuple(reversed(layers)))


def from_folder(folder: Path) -> Callable[[str], str]:
    """Read bases of a folder of stacks; links lead nowhere."""

    def read(name: str) -> str:
        path = folder / name
        if path.is_symlink() or path.parent.is_symlink():
            raise StackConfigError(f"{name} is a link, or stands behind one. Put the file itself there.")
        try:
            return path.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            bases = ", ".join(sorted(f"{FOLDER}/{file.name}" for file in (folder / FOLDER).glob("*.yaml"))) or "none"
            raise StackConfigError(f"there is no {name}. There are: {bases}. Correct {_BASE}.") from None
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise StackConfigError(f"{name} is not UTF-8, in line {line}. Save it as UTF-8.") from error
        except OSError as error:
            raise StackConfigError(f"{name} can't be read: {error.strerror}.") from error

    return read


def _content(name: str, said_by: str, read: Callable[[str], str]) -> Mapping[str, Any]:
    """What stands below `config:` in a base."""
    try:
        content = deepcopy(_parsed(read(name)))
    except StackConfigError as error:
        raise StackConfigError(f"{said_by}: {error} Nothing was changed.") from None
    except yaml.YAMLError as error:
        raise StackConfigError(f"{name} is not YAML: {error}. Nothing was changed.") from error
    config = content.get("config") if isinstance(content, Mapping) else None
    if not isinstance(config, Mapping) or not isinstance(config.get(_SETTINGS, {}), Mapping):
        raise StackConfigError(
            f"{name} is no base: it needs a mapping `config` with a mapping {_SETTINGS}, as a stack file has. Nothing "
            "was changed."
        )
    unread = [str(key) for key in content if key != "config"]
    unread += [str(key) for key in config if key not in {_SETTINGS, _BASE}]
    if unread:
        raise StackConfigError(
            f"{name}: nothing reads {', '.join(sorted(unread))}. Nothing was changed.\n"
            f"A base has {_SETTINGS} and {_BASE} only; secrets and everything else stand in each stack's own file."
        )
    return config


@lru_cache(maxsize=64)
def _parsed(text: str) -> Any:  # noqa: ANN401 - YAML
    """A base's content; many stacks have the same."""
    return load_yaml(text)


def _over(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in own.items():
        below = merged.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[key] = _over(below, value) if both and isinstance(below, Mapping) else value
    return merged


def _has(value: object, key: Sequence[str | int]) -> bool:
    """Whether settings have a key, or something else than a mapping on the way to it."""
    for part in key:
        if not isinstance(value, Mapping):
            return True
        if part not in value:
            return False
        value = value[part]
    return True


def _at(value: object, key: Sequence[str | int]) -> object:
    for part in key:
        if not isinstance(value, Mapping):
            return value
        value = value.get(part)
    return value


def _values(value: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            yield from _values(inner, (*above, str(name)))
        else:
            yield (*above, str(name)), inner
