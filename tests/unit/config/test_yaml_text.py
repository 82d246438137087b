"""YAML means to every command what it means to Pulumi."""

import json

import pytest
import yaml

from config.yaml_text import dump_yaml, load_yaml
from tests.support.yaml_values import VALUES


@pytest.mark.parametrize("text", VALUES)
def test_a_value_is_what_pulumi_takes_it_for(text: str) -> None:
    assert json.dumps(load_yaml(f"v: {text}")) == json.dumps({"v": VALUES[text]})


@pytest.mark.parametrize("text", VALUES)
def test_a_text_that_is_written_stays_a_text(text: str) -> None:
    assert load_yaml(dump_yaml({"v": text, text: [text]})) == {"v": text, text: [text]}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tag: 2026-01-15", "'2026-01-15' in line 1 is a date: put it in quotes"),
        ("2026-01-15: a", "is a date"),
        ("tag: 2001-12-14t21:59:43.10-05:00", "is a date"),
        ("a: {b: 1, b: 2}", "key 'b' stands twice in line 1: remove one"),
        ("a: &a {b: *a}", "recursive"),
        ("a: " + "[" * 3000, "nested too deep"),
        ("a: !!set {b, c}", "could not determine a constructor"),
        ("a: !!binary aGk=", "could not determine a constructor"),
        ("a: !!bool ja", "'ja' is neither true nor false\n  in line 1"),
        ("a: !!float {}", "expected a scalar node, but found mapping\n  in line 1"),
    ],
)
def test_what_has_no_json_or_is_another_thing_for_pulumi_is_refused(text: str, says: str) -> None:
    with pytest.raises(yaml.YAMLError, match=says):
        load_yaml(text)


def test_what_an_anchor_brings_is_no_second_key() -> None:
    text = "a: {b: &b {<<: &c {x: 1}, x: 2}}\nd: {<<: *b, x: 3}\n"
    assert load_yaml(text) == {"a": {"b": {"x": 2}}, "d": {"x": 3}}


def test_keys_are_texts() -> None:
    assert load_yaml("a: {10: 1, 0x10: 2, true: 3, 1.50: 4, b: 5}") == {
        "a": {"10": 1, "16": 2, "true": 3, "1.5": 4, "b": 5}
    }


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("a:\n\tb: 1\n", 2, id="a tab"),
        pytest.param("a:\n    b: 1\n  c: 2\n", 3, id="a key between two levels"),
        pytest.param("a:\n  b:1\n  c: 2\n", 3, id="no space after the colon"),
    ],
)
def test_what_is_not_yaml_is_told_with_its_line_and_how_yaml_is_written(text: str, line: int) -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        load_yaml(text)
    message = str(caught.value)
    assert f"in line {line}, column " in message
    assert "unicode string" not in message, "a person edited a file"
    assert "indented with spaces, never with tabs" in message.splitlines()[-1]


@pytest.mark.parametrize("text", ["a: *b", "a: !b c", "? [a]\n: b", "a: 1\n---\nb: 1", "a: \0"])
def test_what_else_is_not_yaml_is_told_without_a_name_that_no_file_has(text: str) -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        load_yaml(text)
    assert "unicode string" not in str(caught.value)
