"""What can be said of an expression of CEL without a request."""

import pytest

from policy.cel import NotALiteralError, computes_fields, is_always_true, read_choices, read_literal, takes_objects

_SAME: list[tuple[str, dict[str, str]]] = [
    ("true", {}),
    ("1 == 1", {}),
    ("!false", {}),
    ("'object' == 'object'", {}),
    ("object == object", {}),
    ("(object.spec == (object.spec))", {}),
    ("true || object.x", {}),
    ("has(object.a) || (true)", {}),
    ("size(object.spec.containers) >= 0", {}),
    ("variables.ok", {"ok": "true"}),
    ("variables.a", {"a": "variables.b", "b": "[].size() == 0"}),
    ("variables.a", {"a": "variables.a"}),
]
_DIFFERENT: list[tuple[str, dict[str, str]]] = [
    ("object.x", {}),
    ("variables.fresh.size() == 0", {"fresh": "object.x"}),
    ("variables.unknown", {}),
    ("!variables.here || request.operation != 'CREATE'", {"here": "false"}),
    ("object.spec.containers.all(c, c.name == c.name)", {}),
    ("false || has(object.x)", {}),
    ("object.?a.orValue(0) == oldObject.?a.orValue(0)", {}),
]


@pytest.mark.parametrize(("expression", "variables"), _SAME)
def test_an_expression_that_asks_nothing_is_the_same_for_every_object(
    expression: str, variables: dict[str, str]
) -> None:
    assert is_always_true(expression, variables)


@pytest.mark.parametrize(("expression", "variables"), _DIFFERENT)
def test_an_expression_that_looks_at_the_request_is_not(expression: str, variables: dict[str, str]) -> None:
    assert not is_always_true(expression, variables)


@pytest.mark.parametrize(
    "expression",
    [
        "[JSONPatch{op: 'add', path: '/spec/x', value: {'privi' + 'leged': true}}]",
        "[JSONPatch{op: 'add', path: '/spec/x', value: {variables.k: true}}]",
        "[JSONPatch{op: 'add', path: '/SPEC'.lowerAscii(), value: 1}]",
        "[JSONPatch{op: 'add', path: '/spec/' + variables.p, value: 1}]",
        "[JSONPatch{op: 'add', path: '/metadata/labels/' + x == y ? '/spec' : '/spec', value: 1}]",
        "[JSONPatch{path: variables.p, op: 'add'}]",
        "{r'a': 1}",
        r"{'privil\u0065ged': 1}",
        "{?variables.k: object.?a}",
    ],
)
def test_a_name_that_is_computed_is_known(expression: str) -> None:
    assert computes_fields(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name})}}",
        "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('x/y'), value: object.metadata.name}]",
        'has(object.x) ? [] : [JSONPatch{op: "add", path: "/spec/volumes", value: []}]',
        "{?'a': object.?x, 'b': [1, 2]}",
        "{'a': {'b': f(1, 2)}, 'c': x ? 1 : 2}",
        "Object{}",
        "'{' + x",
    ],
)
def test_a_name_that_is_written_out_is_none(expression: str) -> None:
    assert not computes_fields(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "params.spec.c",
        "Object{spec: params.spec}",
        "has(params.spec.c) ? params.spec.c : x",
        "params.?spec.?c.orValue({})",
        "params['spec']",
        "[params].map(p, p.spec)",
        "string(object.x) == 'a' ? params.spec : b",
        "texts.string(params.spec)",
        "resource.Get('v1', 'pods', 'a', 'b').spec",
    ],
)
def test_an_object_from_elsewhere_is_known(expression: str) -> None:
    assert takes_objects(expression, "Extra")


@pytest.mark.parametrize(
    ("expression", "parameter"),
    [
        ("params.data[variables.backend]", "ConfigMap"),
        ("params.metadata.name", "Node"),
        ("string(params.spec.clusterIP)", "Service"),
        ("string(params.spec.ports[0].port)", "Service"),
        ("params.spec.on ? 1 : 2", "Extra"),
        ("has(params.spec.on) ? 1 : 2", "Extra"),
        ("object.x in params.spec.names", "Extra"),
        ("params.spec.names.exists(n, n == 'a')", "Extra"),
        ("params.spec.a == 'b'", "Extra"),
        ("object.spec.params", "Extra"),
    ],
)
def test_a_text_or_an_answer_from_elsewhere_is_none(expression: str, parameter: str) -> None:
    assert not takes_objects(expression, parameter)


def test_a_maps_key_that_is_computed_makes_no_literal() -> None:
    assert read_literal("Object{spec: Object.spec{nodeSelector: {'a': 'b'}}}") == {"spec": {"nodeSelector": {"a": "b"}}}
    with pytest.raises(NotALiteralError):
        read_literal("Object{spec: Object.spec{nodeSelector: {object.metadata.name: 'b'}}}")


def test_every_value_that_a_choice_may_give_is_read() -> None:
    assert read_choices("Object{a: 1}") == [{"a": 1}]
    assert read_choices("x in ['?', ':'] ? Object{a: '?'} : Object{b: ':'}") == [{"a": "?"}, {"b": ":"}]
    assert read_choices("x ? Object{a: 1} : y && z ? Object{b: [2]} : Object{c: 3}") == [{"a": 1}, {"b": [2]}, {"c": 3}]


@pytest.mark.parametrize(
    "expression",
    [
        "x ? Object{a: 1} : object.b",
        "x ? object.b : Object{a: 1}",
        "x ? Object{a: 1}",
        "x ? y ? Object{a: 1} : Object{b: 1} : Object{c: 1}",
        "x ? Object{a: 1} : Object{b: 1} + Object{c: 1}",
        "x ? (y ? Object{a: 1} : Object{b: 1}) : Object{c: 1}",
        "Object{a: x ? 1 : 2}",
        "x ? Object{a: 1} : ",
        "object.?a.orValue(1)",
    ],
)
def test_a_choice_with_a_computed_value_is_no_literal(expression: str) -> None:
    with pytest.raises(NotALiteralError):
        read_choices(expression)
