"""Pulumi's schema of the package, derived from the settings models: their keys, as they stand in a stack file."""

from collections.abc import Mapping
from typing import Any

from components import tokens
from components.hosts.secrets import HOST_SECRETS
from config.reference import models_schema, text_of
from config.stack import SETTINGS_KEY, StackSettings
from package.version import VERSION

NAME = "kai-anywhere"

_STRING = {"type": "string"}
_OUTPUTS: Mapping[str, Mapping[str, Any]] = {
    "platform": {**_STRING, "description": "The stack's platform."},
    "tegra_nodes": {
        "type": "array",
        "items": _STRING,
        "description": "Nodes whose reservation pods are changed at admission.",
    },
    "gpu_operator_version": {**_STRING, "description": "Chart version; absent where it is not installed."},
    "kai_version": {**_STRING, "description": "Chart version."},
    "queues": {"type": "array", "items": _STRING, "description": "The queues, parents first."},
    "gvirtus_backends": {
        "type": "object",
        "additionalProperties": _STRING,
        "description": "Remote GPUs by name, each with its address and port.",
    },
    "gpu_memory_mib": {
        "type": "object",
        "additionalProperties": {"type": "integer"},
        "description": "MiB of one GPU that KAI may share, by host that shares its memory with it.",
    },
}
_SOMETIMES = frozenset({"gpu_operator_version", "kai_version"})


def package_schema() -> dict[str, Any]:
    """The schema as JSON: one component, its settings as typed plain values, its outputs."""
    models = models_schema()
    types = {model: _object(shape) for model, shape in models["$defs"].items()}
    types[StackSettings.__name__] = _object(models)
    settings = {
        **_reference(StackSettings.__name__),
        # It decides which resources there are, so it must be known when the program runs: no outputs in it.
        "plain": True,
        "description": (
            "What Pulumi.STACK.yaml holds under kai-anywhere:settings. Without it, the component reads it there."
        ),
    }
    secrets = {
        "type": "object",
        "additionalProperties": _STRING,
        "description": (
            "Secrets of hosts by the names that the settings have for them. Each value must be a secret. What is not "
            "here stands in the project's configuration."
        ),
    }
    return {
        "name": NAME,
        "version": VERSION,
        "description": "Fractional GPU sharing with the KAI scheduler on Jetson and x86.",
        "license": "Apache-2.0",
        # Without it, an SDK is named by whoever owns the Git repository.
        "language": {
            "python": {"packageName": "kai_anywhere", "pyproject": {"enabled": True}},
            "nodejs": {"packageName": NAME},
        },
        "types": {f"{NAME}:index:{name}": types[name] for name in sorted(types)},
        "resources": {
            tokens.KAI_ANYWHERE: {
                "isComponent": True,
                "description": "Everything that a stack installs. A stack takes one, and so does a cluster.",
                "inputProperties": {SETTINGS_KEY: settings, HOST_SECRETS: secrets},
                "properties": {name: dict(shape) for name, shape in _OUTPUTS.items()},
                "required": sorted(_OUTPUTS.keys() - _SOMETIMES),
            }
        },
    }


def _reference(model: str) -> dict[str, Any]:
    return {"$ref": f"#/types/{NAME}:index:{model}"}


def _object(shape: Mapping[str, Any]) -> dict[str, Any]:
    """A model, or a closed vocabulary, as a named type."""
    described = {"description": shape["description"]} if "description" in shape else {}
    if "enum" in shape:
        return {"type": "string", "enum": [{"value": value} for value in shape["enum"]], **described}
    type_schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: _described(value) for name, value in shape["properties"].items()},
        **described,
    }
    if "required" in shape:
        type_schema["required"] = shape["required"]
    return type_schema


def _described(shape: Mapping[str, Any]) -> dict[str, Any]:
    """A setting with its text, which tells the default.

    The default itself is not there: a program would send it as if it were said, and keep an old one after an upgrade.
    """
    texts = [shape["description"]] if "description" in shape else []
    if shape.get("default") is not None and not isinstance(shape["default"], dict):
        texts.append(f"Default: {text_of(shape['default'])}.")
    return _property(shape) | ({"description": "\n".join(texts)} if texts else {})


def _property(shape: Mapping[str, Any]) -> dict[str, Any]:  # noqa: PLR0911 - a table, one row a shape
    """A JSON schema's property in Pulumi's words, which have no null: a value that is absent says it.

    Raises:
        ValueError: if Pulumi's schema has no word for it that is known here.
    """
    match shape:
        case {"$ref": reference}:
            return _reference(reference.removeprefix("#/$defs/"))
        case {"anyOf": [other, {"type": "null"}]}:
            return _property(other)
        case {"oneOf": choices, "discriminator": {"propertyName": key, "mapping": mapping}}:
            named = {tag: _reference(model.removeprefix("#/$defs/"))["$ref"] for tag, model in mapping.items()}
            return {
                "oneOf": [_property(choice) for choice in choices],
                "discriminator": {"propertyName": key, "mapping": named},
            }
        case {"type": "string", "const": value}:
            return {"type": "string", "const": value}
        case {"type": "array", "items": items}:
            return {"type": "array", "items": _property(items)}
        case {"type": "object", "additionalProperties": values}:
            return {"type": "object", "additionalProperties": _property(values)}
        case {"type": "object", "patternProperties": patterns}:
            [values] = patterns.values()
            return {"type": "object", "additionalProperties": _property(values)}
        case {"type": "string" | "integer" | "number" | "boolean" as kind}:
            return {"type": kind}
        case _:
            raise ValueError(f"no word of Pulumi's schema is known for {dict(shape)}")
