"""The package's schema has every setting, typed as the models say."""

import tomllib
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import pytest
from pydantic import BaseModel

from components import tokens
from config.cluster import Distribution
from package.schema import _property, package_schema
from package.version import VERSION
from testbed.stacks import ROOT, STACKS, Json

SCHEMA = package_schema()
TYPES: dict[str, Any] = SCHEMA["types"]


def _models(base: type[Any]) -> Iterator[type[Any]]:
    for model in base.__subclasses__():
        if model.__module__.startswith("config."):
            yield model
            yield from _models(model)


def _type(name: str) -> Any:  # noqa: ANN401 - JSON
    return TYPES[f"kai-anywhere:index:{name}"]


def test_the_package_is_one_component_of_the_programs_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == VERSION
    assert SCHEMA["resources"].keys() == {tokens.KAI_ANYWHERE}
    component = SCHEMA["resources"][tokens.KAI_ANYWHERE]
    assert component["isComponent"]
    assert component["inputProperties"]["settings"]["plain"], "outputs can't decide which resources there are"


def test_a_setting_tells_its_default_and_sends_none() -> None:
    port = _type("SshEndpoint")["properties"]["port"]
    assert port["description"].endswith("Default: 22.")
    assert "Default" not in _type("SshEndpoint")["properties"]["address"].get("description", "")
    assert [
        name
        for name, shape in TYPES.items()
        for property_ in shape.get("properties", {}).values()
        if "default" in property_
    ] == []


def test_an_sdk_has_one_name_whoever_owns_the_repository() -> None:
    assert SCHEMA["language"]["python"]["packageName"] == "kai_anywhere"
    assert SCHEMA["language"]["nodejs"]["packageName"] == "kai-anywhere"


def test_every_model_has_its_type_with_its_settings() -> None:
    there = {name.rpartition(":")[2]: shape for name, shape in TYPES.items() if shape["type"] == "object"}
    models = {model.__name__: model for model in _models(BaseModel) if model.__name__ in there}
    assert models.keys() == there.keys()
    assert there.keys() >= {"StackSettings", "TegraPlatform", "X86Platform", "HostSettings", "GvirtusBackend"}
    for name, model in models.items():
        assert there[name]["properties"].keys() == model.model_fields.keys(), name
        required = {key for key, field in model.model_fields.items() if field.is_required()}
        assert set(there[name].get("required", ())) == required, name


def test_closed_vocabularies_are_closed() -> None:
    enums: dict[str, type[StrEnum]] = {cls.__name__: cls for cls in _models(StrEnum)}
    listed = {
        name.rpartition(":")[2]: {entry["value"] for entry in shape["enum"]}
        for name, shape in TYPES.items()
        if "enum" in shape
    }
    assert listed["Distribution"] == set(Distribution)
    for name, values in listed.items():
        assert values == set(enums[name]), name


def test_every_reference_leads_to_a_type_and_every_type_is_used() -> None:
    names: set[str] = set()

    def collect(node: object) -> None:
        match node:
            case {"$ref": str(reference)}:
                names.add(reference.removeprefix("#/types/"))
            case dict():
                for item in node.values():
                    collect(item)
            case list():
                for item in node:
                    collect(item)
            case _:
                pass

    collect(SCHEMA)
    assert names == TYPES.keys()


def test_a_platform_is_told_by_its_kind() -> None:
    platform = _type("StackSettings")["properties"]["platform"]
    assert platform["discriminator"] == {
        "propertyName": "kind",
        "mapping": {
            "tegra": "#/types/kai-anywhere:index:TegraPlatform",
            "x86": "#/types/kai-anywhere:index:X86Platform",
        },
    }
    kind = _type("TegraPlatform")["properties"]["kind"]
    assert (kind["type"], kind["const"]) == ("string", "tegra")


def test_every_property_says_what_it_is_for() -> None:
    without = [
        f"{name}.{key}"
        for name, shape in TYPES.items()
        for key, value in shape.get("properties", {}).items()
        if "description" not in value | TYPES.get(value.get("$ref", "").removeprefix("#/types/"), {})
    ]
    assert without == []


_SCALARS = {"string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,)}


def _fits(shape: Json, value: object) -> bool:  # noqa: PLR0911 - a table, one row a shape
    """Whether a value is of a property's type; a small reader of Pulumi's schema."""
    match shape, value:
        case {"$ref": str(reference)}, _:
            return _is(TYPES[reference.removeprefix("#/types/")], value)
        case {"oneOf": choices}, _:
            return sum(_fits(choice, value) for choice in choices) == 1
        case {"const": const}, _:
            return bool(value == const)
        case {"items": items}, list():
            return all(_fits(items, item) for item in value)
        case {"additionalProperties": values}, dict():
            return all(_fits(values, item) for item in value.values())
        case {"type": kind}, _:
            return type(value) in _SCALARS.get(kind, ())
        case _:
            return False


def _is(shape: Json, value: object) -> bool:
    if "enum" in shape:
        return value in {entry["value"] for entry in shape["enum"]}
    if not isinstance(value, dict) or not value.keys() >= set(shape.get("required", ())):
        return False
    properties = shape["properties"]
    return all(key in properties and _fits(properties[key], item) for key, item in value.items())


@pytest.mark.parametrize("name", STACKS)
def test_every_stack_fits_the_schema(name: str) -> None:
    assert _is(_type("StackSettings"), STACKS[name]())


@pytest.mark.parametrize(
    "wrong", [{"colour": "red"}, {"platform": {"kind": "arm"}}, {"hosts": []}, {"validation": "always"}]
)
def test_what_is_wrong_does_not_fit_the_schema(wrong: Json) -> None:
    assert not _is(_type("StackSettings"), STACKS["jetson"]() | wrong)


def test_a_shape_without_a_word_in_pulumis_schema_is_told() -> None:
    with pytest.raises(ValueError, match="no word of Pulumi's schema"):
        _property({"anyOf": [{"type": "string"}, {"type": "integer"}]})
