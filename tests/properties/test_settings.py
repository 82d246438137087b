"""Random settings are valid, and say the same after they were written and read again."""

import functools
from collections.abc import Iterator
from typing import Any, TypeAlias

import yaml
from hypothesis import given

from config.model import Settings
from config.reference import find, stack_file_schema
from config.stack import SETTINGS_KEY
from testbed.stacks import Json, parse
from tests.properties.runs import drawn, examples, of_models
from tests.properties.stacks import said, stacks
from tests.support.json_schema import judge
from tests.support.values import paths_of

NOT_GENERATED: dict[tuple[str, str], str] = {}
"""Fields that no random stack says, by model and name, with the reason."""
_ENOUGH = 1000
"""Random stacks after which every field was said, at the latest: 90 to 240 were needed, with five seeds."""
_Said: TypeAlias = tuple[str, ...] | tuple[str, str, object]
"""A field of a model, by its name and the model's, or a value of it."""


@functools.cache
def _judge() -> Any:  # noqa: ANN401 - see there
    return judge(stack_file_schema())


@examples(100)
@given(stacks())
def test_random_settings_are_valid_and_explained_and_the_same_after_they_were_written_and_read(stack: Json) -> None:
    settings = parse(stack)
    # What editors take.
    _judge().validate({"config": {f"kai-anywhere:{SETTINGS_KEY}": stack}})
    for path in paths_of(stack):
        assert find("".join(f'["{part}"]' for part in path)), path
    assert parse(settings.model_dump(mode="json", exclude_unset=True)) == settings
    assert parse(yaml.safe_load(yaml.safe_dump(stack))) == settings


@functools.cache
def _never_said() -> frozenset[_Said]:
    """The fields, and the words of closed vocabularies, that random stacks never say."""
    left = {*_fields(), *_words()}

    def says_the_last(stack: Json) -> bool:
        for model, name, value in said(parse(stack)):
            left.difference_update({(model, name), (model, name, value)} if _is_word(value) else {(model, name)})
        return not left

    drawn(_ENOUGH, until=says_the_last)
    return frozenset(left)


def _is_word(value: object) -> bool:
    return isinstance(value, str | bool)


def _fields() -> Iterator[_Said]:
    for model in of_models(Settings):
        for name in model.model_fields:
            yield model.__name__, name


def _words() -> Iterator[_Said]:
    for model in of_models(Settings):
        for name, field in model.model_fields.items():
            words = list(getattr(field.annotation, "__members__", {}).values())
            for word in [True, False] if field.annotation is bool else words:
                yield model.__name__, name, word


def test_every_field_of_every_model_is_generated() -> None:
    assert _never_said() & set(_fields()) == NOT_GENERATED.keys()


def test_every_word_of_every_closed_vocabulary_is_generated() -> None:
    words = set(_words())
    assert len({(model, name) for model, name, _ in words}) > 20
    assert not _never_said() & words
