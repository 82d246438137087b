"""Manifests are pure and ordered: the same settings give the same text, however a person ordered them."""

import json

import pytest

from testbed.stacks import STACKS, Json, parse
from tests.support.values import documents_of


def _reversed(value: object) -> object:
    match value:
        case dict():
            return {key: _reversed(value[key]) for key in reversed(value)}
        case _:
            return value


def _text(stack: Json) -> str:
    return json.dumps(documents_of(parse(stack)))


@pytest.mark.parametrize("name", STACKS)
def test_building_twice_gives_the_same_text(name: str) -> None:
    settings = parse(STACKS[name]())
    before = settings.model_dump_json()
    assert json.dumps(documents_of(settings)) == json.dumps(documents_of(settings))
    assert settings.model_dump_json() == before, "building must not change the settings"


@pytest.mark.parametrize("name", STACKS)
def test_the_order_of_keys_in_the_stack_file_does_not_matter(name: str) -> None:
    stack = STACKS[name]()
    other = _reversed(stack)
    assert isinstance(other, dict)
    assert list(other) != list(stack)
    assert _text(other) == _text(stack)
