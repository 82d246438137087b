"""Malformed objects, wrong types, depth and size: a finding or a pass, never an exception."""

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pulumi_policy.proxy import unknown_checking_proxy

from policy.cel import NotALiteralError, read_literal
from policy.judge import judge
from policy.reading import MAX_DEPTH, Hole
from policy.rules import RULES
from policy.stack_platform import stack_facts
from policy.texts import RefusedTextError, parse
from tests.policy.objects import STRICT, TEGRA, UNKNOWN, Json, findings, pod, reservation_pod
from tests.policy.test_cluster import COMPLIANT

_KEYS = st.one_of(
    st.sampled_from(
        [
            *sorted({key.rpartition(".")[2].rpartition(":")[2].strip("=") for rule in RULES for key in rule.reads}),
            *["metadata", "kind", "apiVersion", "name", "labels", "annotations", "op", "path", "value", "level"],
            *["type", "template"],
            *["webhooks", "clientConfig", "service", "mutations", "matchConditions", "data"],
        ]
    ),
    st.text(max_size=8),
    st.integers(),
    st.none(),
    st.booleans(),
)
_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        [
            *(UNKNOWN, "privileged", "true", "*", "Object{a: [", "apiVersion: v1\nkind: [", "NVIDIA_VISIBLE_DEVICES"),
            *("kai-resource-reservation", "kai-anywhere-reservation-overrides", "jetson-1", "/a/~1b/0", "/", "Pod"),
        ]
    ),
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_KEYS, inner, max_size=5)),
    max_leaves=40,
)
_TOKENS = st.sampled_from(
    [*COMPLIANT, "kubernetes:core/v1:Pod", "kubernetes:core/v1:PodList", "kubernetes:x/v1:Thing", "a:b:C", "", ":::"]
)
_SETTINGS = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@_SETTINGS
@given(token=_TOKENS, props=st.dictionaries(_KEYS, _VALUES, max_size=6))
def test_anything_at_all_is_judged(token: str, props: dict[Any, Any]) -> None:
    for stack in (STRICT, TEGRA):
        for finding in judge(token, "x", unknown_checking_proxy(props), stack, RULES).findings:
            assert finding.message()


def _paths(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [place for key, item in items for place in _paths(item, (*path, key))]


_OBJECTS = [*COMPLIANT.items(), ("kubernetes:core/v1:Pod", pod()), ("kubernetes:core/v1:Pod", reservation_pod())]


@_SETTINGS
@given(data=st.data())
def test_a_compliant_object_with_anything_in_one_place_is_judged(data: st.DataObject) -> None:
    token, compliant = data.draw(st.sampled_from(_OBJECTS))
    props = json.loads(json.dumps(compliant))
    *parents, last = data.draw(st.sampled_from(_paths(props)))
    node: Any = props
    for step in parents:
        node = node[step]
    node[last] = data.draw(_VALUES)
    for stack in (STRICT, TEGRA):
        for finding in findings(token, props, stack):
            assert finding.message()


@_SETTINGS
@given(text=st.text(max_size=200))
def test_any_text_is_a_manifest_or_none(text: str) -> None:
    with contextlib.suppress(RefusedTextError):
        assert isinstance(parse(text)[0], list)


@_SETTINGS
@given(text=st.text(alphabet="Object{}[]:,\"'.spec 01truefals\\", max_size=80))
def test_any_expression_is_a_literal_or_none(text: str) -> None:
    with contextlib.suppress(NotALiteralError):
        read_literal(text)


@_SETTINGS
@given(text=st.one_of(st.text(max_size=80), _VALUES.map(lambda value: json.dumps(value, default=str, skipkeys=True))))
def test_any_settings_are_read(text: str) -> None:
    stack_facts(text, {})


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 200])
def test_depth_that_nobody_judges_is_a_finding(depth: int) -> None:
    props: Json = {}
    node = props
    for _ in range(depth):
        node["spec"] = {}
        node = node["spec"]
    node["privileged"] = True
    result = findings("kubernetes:x/v1:Thing", props)
    assert result
    assert {finding.found for finding in result} == {Hole.TOO_DEEP.value}


@pytest.mark.parametrize(
    "text",
    [
        " " * 200_000 + "!",
        "kubectl " + "apply " * 40_000,
        "kubectl apply -f" + " " * 200_000,
        "kubectl " + "curl " * 40_000,
        "kubectl " + "docker " * 40_000,
        "kubectl " + "base64 -d " * 40_000,
        "apiVersion: <<a\nkubectl apply <<a\n" * 10_000,
        '"' * 99_999,
        "helm template " * 8_000,
        "helm template a https://example.com/a " * 3_000,
        "podman kube play " * 6_000,
        "kubectl --overrides patch " * 4_000,
        "kubectl get --raw /api/v1/nodes/" * 3_000,
        "kubectl get -l " + "pod-security.kubernetes.io/" * 4_000,
        "kubectl pod-security.kubernetes.io/enforce-version " * 2_000,
        "kubectl create role --verb=get,list --resource=a,b " * 2_000,
        "kubectl create rolebinding -n kube-system --clusterrole " * 2_000,
    ],
)
def test_long_text_is_judged_in_time(text: str) -> None:
    begin = time.perf_counter()
    assert findings("kubernetes:core/v1:ConfigMap", {"data": {"a": text}}) == ()
    assert time.perf_counter() - begin < 10, "a pattern that goes back over its text takes minutes here"


@pytest.mark.parametrize(
    "line",
    [
        *("on: push", "80: web", "~: a", "1.5: a", "2026-01-01: a"),
        *("a: !!bool maybe", 'a: !!int ""', 'a: !!float ""', "a: !!timestamp never"),
    ],
)
def test_a_manifest_with_keys_and_values_of_any_type_is_judged(line: str) -> None:
    text = f"{line}\napiVersion: v1\nkind: Pod\nspec: {{hostPID: true}}\n"
    assert [finding.rule for finding in findings("kubernetes:core/v1:ConfigMap", {"data": {"a": text}})] == [
        "host-access"
    ]


def test_a_number_of_thousands_of_digits_is_judged() -> None:
    for number in (f"0x{'f' * 5000}", "9" * 5000, f'"{"9" * 5000}"'):
        text = f"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - ports:\n    - hostPort: {number}\n"
        result = findings("kubernetes:core/v1:ConfigMap", {"data": {"a": text}})
        assert "host-access" in {finding.rule for finding in result}
        assert all(len(str(finding)) < 2_000 for finding in result)


def test_a_huge_object_is_judged() -> None:
    props = {"data": {f"key-{number}": "x" * 100 for number in range(20_000)}, "privileged": True}
    assert [finding.path for finding in findings("kubernetes:core/v1:ConfigMap", props)] == ["privileged"]
