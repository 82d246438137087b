"""Random settings are valid, and say the same after they were written and read again."""

import jsonschema
import yaml
from hypothesis import given

from config.model import Settings
from config.reference import find, stack_file_schema
from config.stack import SETTINGS_KEY
from testbed.stacks import Json, parse
from tests.properties.runs import examples, of_models, seen_in
from tests.properties.stacks import stacks
from tests.support.values import paths_of

_JUDGE = jsonschema.Draft7Validator(stack_file_schema())
NOT_GENERATED: dict[tuple[str, str], str] = {}
"""Fields that no random stack says, by model and name, with the reason."""
_ENOUGH = 1000
"""Random stacks after which every field was said."""


@examples(100)
@given(stacks())
def test_random_settings_are_valid_and_editors_take_them(stack: Json) -> None:
    parse(stack)
    _JUDGE.validate({"config": {f"kai-anywhere:{SETTINGS_KEY}": stack}})


@examples(60)
@given(stacks())
def test_settings_that_are_written_and_read_again_are_the_same(stack: Json) -> None:
    settings = parse(stack)
    assert parse(settings.model_dump(mode="json", exclude_unset=True)) == settings
    assert parse(yaml.safe_load(yaml.safe_dump(stack))) == settings


@examples(60)
@given(stacks())
def test_every_key_of_random_settings_is_explained(stack: Json) -> None:
    for path in paths_of(stack):
        assert find("".join(f'["{part}"]' for part in path)), path


def test_every_field_of_every_model_is_generated() -> None:
    said = {(model, name) for model, name, _ in seen_in(_ENOUGH)}
    there = {(model.__name__, name) for model in of_models(Settings) for name in model.model_fields}
    assert there - said == NOT_GENERATED.keys()


def test_every_word_of_every_closed_vocabulary_is_generated() -> None:
    said: dict[tuple[str, str], set[object]] = {}
    for owner, name, value in seen_in(_ENOUGH):
        said.setdefault((owner, name), set()).add(value)
    compared = 0
    for model in of_models(Settings):
        for name, field in model.model_fields.items():
            words = set(getattr(field.annotation, "__members__", {}).values())
            words |= {True, False} if field.annotation is bool else set()
            assert words <= said.get((model.__name__, name), set()), (model.__name__, name)
            compared += bool(words)
    assert compared > 20
