"""Every setting as data, read from the models: what `docs/settings.md`, `settings explain` and editors tell of it."""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import yaml
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema
from typing_extensions import override

from config.stack import BASE_KEY, SETTINGS_KEY, StackSettings
from config.yaml_text import load_yaml

Shape: TypeAlias = Mapping[str, Any]
"""A part of a JSON Schema."""

ANY_NAME = "<name>"
"""Stands in a key for a name that the stack's author chooses: a node, a queue, a profile."""
_PROJECT = "kai-anywhere"
_WHAT_A_TAG_DOES = "Decides which other keys are allowed here."
_UNITS = {"mib": "MiB", "seconds": "seconds"}
"""Units by the last word of a setting's name."""


@dataclass(frozen=True)
class Setting:
    """One setting, or a section of them.

    Attributes:
        key: dotted, below `kai-anywhere:settings`.
        shape: a `section` has settings of its own; a `mapping` has entries by name.
        type: in words, with unit and bounds.
        description: what it is for.
        required: whether its section must say it.
        default: what holds without it, as JSON; None where it is then not set.
        examples: values, as JSON.
        only_with: the value of another setting that it needs, such as `platform.kind: tegra`.
    """

    key: str
    shape: Literal["value", "mapping", "section"]
    type: str
    description: str
    required: bool
    default: Any
    examples: tuple[Any, ...]
    only_with: str | None


BASE = Setting(
    key=f"{_PROJECT}:{BASE_KEY}",
    shape="value",
    type="file in the folder bases",
    description="The file whose settings hold where the stack's own say nothing. Stands beside kai-anywhere:settings.",
    required=False,
    default=None,
    examples=("bases/jetson.yaml",),
    only_with=None,
)
"""The one other key of a stack, which is none of its settings."""


class UnknownSettingError(Exception):
    """A key that no setting has; the text names near ones."""


class _Documented(GenerateJsonSchema):
    """A property is described by its attribute's docstring.

    Titles are types in words here (config/model.py): none is made of a field's name.
    """

    @override
    def field_title_should_be_set(self, schema: object) -> bool:
        return False

    @override
    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        shape = super().model_schema(schema)
        for name, text in _attribute_docstrings(schema["cls"]).items():
            if name in shape.get("properties", {}):
                shape["properties"][name].setdefault("description", text)
        return shape


def _attribute_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The texts that stand below a model's attributes and those of its bases, by the attribute's name."""
    docstrings: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not issubclass(base, BaseModel) or base is BaseModel:
            continue
        [statement] = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        body = statement.body if isinstance(statement, ast.ClassDef) else []
        for attribute, below in pairwise(body):
            match attribute, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    docstrings[name] = inspect.cleandoc(text)
                case _:
                    pass
    return docstrings


def models_schema() -> dict[str, Any]:
    """The JSON Schema of the settings, with each model and closed vocabulary under `$defs`."""
    return StackSettings.model_json_schema(schema_generator=_Documented)


@cache
def settings() -> tuple[Setting, ...]:
    """Every setting in the order of the models; a section stands before what it has."""
    schema = models_schema()
    return tuple(_Reader(schema["$defs"]).below("", schema, None))


def find(key: str) -> tuple[Setting, ...]:
    """The settings of a key, one for each variant of a union that has it.

    Args:
        key: dotted; with names of nodes or queues as they are in a stack file, or `<name>`. A name with a dot is
            written as for `pulumi config set --path`: `hosts["gpu-1.example.com"].ssh`.

    Raises:
        UnknownSettingError: if there is none.
    """
    if key in {BASE.key, BASE_KEY}:
        return (BASE,)
    parts = _parts(key)
    all_settings = settings()
    exact = tuple(setting for setting in all_settings if _is_called(setting, parts))
    # An entry of a mapping without settings of its own: a variable, a flag, a label.
    of_mapping = tuple(
        setting for setting in all_settings if setting.shape == "mapping" and _is_called(setting, parts[:-1])
    )
    if not (matching := exact or of_mapping):
        raise UnknownSettingError(
            f"There is no setting '{key}'." + "".join(f"\nDid you mean {near}?" for near in _near(parts, all_settings))
        )
    return matching


def inside(section: Setting) -> tuple[Setting, ...]:
    """The settings that a section has directly; those of a variant are not among those of its union."""
    return tuple(
        setting
        for setting in settings()
        if setting.key.rpartition(".")[0] == section.key and setting.only_with == section.only_with
    )


def text_of(value: object) -> str:
    """A value as YAML on one line; a text that would be read as something else stands in quotes."""
    try:
        if isinstance(value, str) and value.isprintable() and load_yaml(f"- {value}") == [value]:
            return value
    except yaml.YAMLError:
        pass
    return json.dumps(value)


def stack_file_schema() -> dict[str, Any]:
    """The JSON Schema of a whole stack file, for editors.

    Draft 7 is what editors' YAML support knows best. What belongs to Pulumi is its own (`ProjectStack` of
    sdk/go/common/workspace, v3.259).
    """
    models = models_schema()
    definitions = models.pop("$defs")
    reader = _Reader(definitions)
    definitions |= {StackSettings.__name__: models}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "description": f"A stack of {_PROJECT}: Pulumi.<stack>.yaml.",
        "type": "object",
        "additionalProperties": False,
        "required": ["config"],
        "properties": {
            "config": {
                "type": "object",
                "required": [f"{_PROJECT}:{SETTINGS_KEY}"],
                "properties": {
                    f"{_PROJECT}:{SETTINGS_KEY}": {"$ref": f"#/$defs/{StackSettings.__name__}"},
                    f"{_PROJECT}:{BASE_KEY}": {
                        "type": "string",
                        "pattern": r"^bases/[A-Za-z0-9_.-]+\.yaml$",
                        "description": "The file whose settings hold where this one says nothing (docs/fleets.md).",
                    },
                },
            },
            "encryptionsalt": {"type": "string", "description": "Written by Pulumi."},
            "encryptedkey": {"type": "string", "description": "Written by Pulumi."},
            "secretsprovider": {"type": "string", "description": "What encrypts the stack's secrets."},
            "environment": {"description": "Environments of Pulumi ESC."},
        },
        "$defs": {name: reader.for_editors(shape) for name, shape in sorted(definitions.items())},
    }


def part_schema() -> dict[str, Any]:
    """The JSON Schema of a base, and of a stack file that has one: a stack's, but everything may be missing."""
    schema = stack_file_schema()
    return schema | {
        "description": f"A base of {_PROJECT}'s stacks, or a stack that has one.",
        "$defs": {name: _loosened(shape) for name, shape in schema["$defs"].items()},
    }


def _loosened(shape: Any) -> Any:  # noqa: ANN401 - JSON
    """A shape in which nothing is required; a variant may be any then, since what tells it may stand elsewhere."""
    match shape:
        case dict():
            kept = {key: value for key, value in shape.items() if key != "required" or not isinstance(value, list)}
            return {"anyOf" if key == "oneOf" else key: _loosened(value) for key, value in kept.items()}
        case list():
            return [_loosened(value) for value in shape]
        case _:
            return shape


@dataclass(frozen=True)
class _Reader:
    """Reads the schema of a model; what it refers to is among the definitions."""

    definitions: Mapping[str, Shape]

    def below(self, key: str, model: Shape, only_with: str | None, *, but: str = "") -> Iterator[Setting]:
        """The settings of a model, but for the one that tells the variants of a union apart; a plain value has none."""
        for name, shape in model.get("properties", {}).items():
            if name != but:
                path = f"{key}.{name}" if key else name
                yield from self._setting(path, shape, only_with, required=name in model.get("required", ()))

    def for_editors(self, model: Shape) -> dict[str, Any]:
        """A definition as editors need it: type and default in the text that they show, no unknown names."""
        definition = {key: value for key, value in model.items() if key != "title"}
        if "properties" in definition:
            definition["properties"] = {
                name: self._property(name, shape) for name, shape in definition["properties"].items()
            }
        return definition

    def _property(self, name: str, shape: Shape) -> dict[str, Any]:
        # A section's default would be put into the file as a whole.
        definition = {key: value for key, value in shape.items() if key not in {"title", "discriminator", "default"}}
        texts = [self._description(shape)]
        if self._kind(shape) != "section":
            texts.append(f"Type: {self._words(name, shape)}.")
            if shape.get("default") is not None:
                definition["default"] = shape["default"]
                texts[-1] += f" Default: {text_of(shape['default'])}."
        definition["description"] = "\n\n".join(texts)
        match shape:
            case {"discriminator": {"propertyName": key, "mapping": variants}}:
                # Without it, editors name the first variant's value alone where the value is wrong.
                definition["required"] = [key]
                definition["properties"] = {key: {"enum": list(variants), "description": _WHAT_A_TAG_DOES}}
            case {"patternProperties": _}:
                definition["additionalProperties"] = False
            case {"additionalProperties": dict(entry)}:
                definition["additionalProperties"] = self._property("", entry)
            case _:
                pass
        return definition

    def _setting(self, key: str, shape: Shape, only_with: str | None, *, required: bool) -> Iterator[Setting]:
        kind = self._kind(shape)
        yield Setting(
            key=key,
            shape=kind,
            type=self._words(key.rpartition(".")[2], shape),
            description=self._description(shape),
            required=required,
            default=None if kind == "section" else shape.get("default"),
            examples=_examples(shape),
            only_with=only_with,
        )
        yield from self._inside(key, shape, only_with)

    def _inside(self, key: str, shape: Shape, only_with: str | None) -> Iterator[Setting]:
        match _without_null(shape):
            case {"oneOf": _, "discriminator": {"propertyName": name, "mapping": variants}}:
                yield Setting(
                    key=f"{key}.{name}",
                    shape="value",
                    type=_one_of(variants),
                    description=_WHAT_A_TAG_DOES,
                    required=True,
                    default=None,
                    examples=(),
                    only_with=only_with,
                )
                models = {tag: self._resolved({"$ref": reference}) for tag, reference in variants.items()}
                below = {tag: list(self.below(key, model, only_with, but=name)) for tag, model in models.items()}
                of_all = [
                    setting for setting in next(iter(below.values())) if all(setting in own for own in below.values())
                ]
                yield from of_all
                for tag, own in below.items():
                    condition = f"{key}.{name}: {tag}"
                    description = _plain(models[tag]["description"])
                    yield Setting(key, "section", "section", description, False, None, (), condition)
                    yield from (replace(setting, only_with=condition) for setting in own if setting not in of_all)
            case {"additionalProperties": dict(entry)} if self._kind(entry) == "section":
                yield from self._setting(f"{key}.{ANY_NAME}", entry, only_with, required=False)
            case other:
                yield from self.below(key, self._resolved(other), only_with)

    def _resolved(self, shape: Shape) -> Shape:
        return self.definitions[shape["$ref"].removeprefix("#/$defs/")] if "$ref" in shape else shape

    def _kind(self, shape: Shape) -> Literal["value", "mapping", "section"]:
        inner = self._resolved(_without_null(shape))
        if "oneOf" in inner or "properties" in inner:
            return "section"
        return "mapping" if inner.get("type") == "object" else "value"

    def _description(self, shape: Shape) -> str:
        """What the field's docstring says, with what its model or vocabulary says of itself."""
        own, shared = shape.get("description", ""), self._resolved(_without_null(shape))
        general = shared.get("description", "")
        texts = (general, own) if "enum" in shared else (own, general)
        return "\n\n".join(dict.fromkeys(_plain(text) for text in texts if text))

    def _words(self, name: str, shape: Shape) -> str:  # noqa: PLR0911 - a table, one row a shape
        """A type in words: what one may write."""
        match self._resolved(_without_null(shape)):
            case {"enum": values}:
                return _one_of(values)
            case {"const": value}:
                return str(value)
            case {"type": "array", "items": items} as several:
                count = _bounds(several.get("minItems"), several.get("maxItems"))
                return f"list of {_plural(self._words('', items))}" + (f" ({count})" if count else "")
            case {"type": "object", "patternProperties": patterns}:
                return f"mapping of names to {_plural(self._words('', next(iter(patterns.values()))))}"
            case {"type": "object", "additionalProperties": dict(entry)}:
                return f"mapping of names to {_plural(self._words('', entry))}"
            case {"properties": _} | {"oneOf": _}:
                return "section"
            case {"type": "integer" | "number" as kind} as number:
                most = number.get("maximum", number.get("exclusiveMaximum", 0) - 1)
                unit = _UNITS.get(name.rpartition("_")[2])
                return ", ".join(filter(None, [kind, unit, _bounds(number.get("minimum"), most if most > 0 else None)]))
            case {"type": "boolean"}:
                return "true or false"
            case {"type": "string"} as text:
                return str(text.get("title", "text"))
            case other:
                raise ValueError(f"no words are known for {dict(other)}")


def _without_null(shape: Shape) -> Shape:
    """A shape without the null that stands for a setting that is not said."""
    match shape:
        case {"anyOf": [dict(other), {"type": "null"}]}:
            return other
        case _:
            return shape


def _examples(shape: Shape) -> tuple[Any, ...]:
    inner = _without_null(shape)
    examples = tuple(shape.get("examples", ())) or tuple(inner.get("examples", ()))
    return examples or tuple([example] for example in inner.get("items", {}).get("examples", ()))


def _plain(text: str) -> str:
    """A docstring without its line ends, but with its paragraphs."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _one_of(values: Iterator[str] | Mapping[str, Any] | list[str]) -> str:
    return f"one of {', '.join(values)}"


def _bounds(least: float | None, most: float | None) -> str:
    match least, most:
        case None, None:
            return ""
        case _, None:
            return f"at least {least}"
        case None, _:
            return f"at most {most}"
        case _:
            return f"from {least} to {most}"


def _plural(words: str) -> str:
    """A type in words, for several values of it."""
    noun, comma, rest = words.partition(",")
    if noun == "text" or noun.startswith("one of "):
        return words
    return f"{noun}s{comma}{rest}"


def _parts(key: str) -> list[str]:
    """The parts of a dotted key; a position in a list is none."""
    below = re.sub(rf"^({_PROJECT}:)?{SETTINGS_KEY}\.", "", key)
    matches = re.findall(r'\["([^"]*)"\]|\[\d+\]|([^.\[\]]+)', below)
    return [quoted or plain for quoted, plain in matches if quoted or plain]


def _is_called(setting: Setting, parts: list[str]) -> bool:
    own = setting.key.split(".")
    return len(own) == len(parts) and all(name in (ANY_NAME, part) for name, part in zip(own, parts, strict=True))


def _near(parts: list[str], all_settings: tuple[Setting, ...]) -> list[str]:
    """Keys that were perhaps meant: near ones, then those with a near last word."""
    keys = list(dict.fromkeys(setting.key for setting in all_settings))
    last = get_close_matches(parts[-1] if parts else "", [key.rpartition(".")[2] for key in keys], n=1)
    return list(
        dict.fromkeys(
            get_close_matches(".".join(parts), keys, n=2) + [key for key in keys if key.rpartition(".")[2] in last]
        )
    )[:3]
