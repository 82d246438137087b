"""CEL as it is written; what it does is proven on a real API server."""

from manifests.cel import constructor, literal, text
from policy.cel import read_literal


def test_literals_are_json() -> None:
    assert literal('say "hi"\n') == '"say \\"hi\\"\\n"'
    assert literal("\N{SLIGHTLY SMILING FACE}") == '"\N{SLIGHTLY SMILING FACE}"', "CEL has no pairs of surrogates"
    assert literal(["a", 1, True]) == '["a", 1, true]'


def test_an_object_carries_the_type_of_its_path() -> None:
    written = constructor({"name": "v", "items": [{"path": "p", "mode": 420}]}, "Object.spec.volumes")
    assert written == ('Object.spec.volumes{name: "v", items: [Object.spec.volumes.items{path: "p", mode: 420}]}')


def test_what_is_written_is_what_the_policy_pack_reads() -> None:
    value = {"a": {"b": [{"c": True}, {"c": False}], "d": "e"}}
    assert read_literal(constructor(value)) == value


def test_a_text_is_joined_from_its_pieces_and_values() -> None:
    marks = {"{host}": "params.host", "{port}": "params.port"}
    assert text('"{host}":{port}!', marks) == '"\\"" + params.host + "\\":" + params.port + "!"'
    assert text("{host}", marks) == "params.host"
    assert text("no value", marks) == '"no value"'
