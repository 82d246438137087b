"""Whatever pod comes: the patch leads from it to the mutated pod, and a second pass has no patch."""

import copy
import json
from collections.abc import Callable
from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.admission.errors import RefusalError
from agents.admission.patch import difference
from agents.admission.pods import read_pod
from agents.admission.proof import apply
from testbed.admission.objects import ENDPOINTS, NAMESPACE, mutations
from testbed.stacks import Json
from tests.support.pods.reservation_cases import CASES, case_pod

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no failure."""
MUTATIONS = mutations()
_NAMES = st.sampled_from(
    ["resource-reservation", "a", "b", "LD_LIBRARY_PATH", "GVIRTUS_CONFIG", "dev-nvidia", "gvirtus-config"]
)
_VALUES = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5)
_PATHS = st.sampled_from(["/dev", "/run/gvirtus/properties.json", "/~1/~0", "/x"])
_ENTRY = st.fixed_dictionaries({"name": _NAMES}, optional={"value": st.text(max_size=3), "more~/": _VALUES})
_CONTAINER = st.fixed_dictionaries(
    {"name": _NAMES},
    optional={
        "env": st.none() | st.lists(_ENTRY, max_size=4),
        "volumeMounts": st.none() | st.lists(st.fixed_dictionaries({"mountPath": _PATHS, "name": _NAMES}), max_size=3),
        "securityContext": st.none()
        | st.dictionaries(st.sampled_from(["privileged", "runAsUser"]), _VALUES, max_size=2),
        "other": _VALUES,
    },
)
PODS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "labels": st.just({"app": NAMESPACE, "gvirtus.io/enabled": "true"}) | st.none(),
                "annotations": st.none()
                | st.dictionaries(st.sampled_from(["gvirtus.io/backend", "é"]), st.just("far")),
            },
        ),
        "spec": st.fixed_dictionaries(
            {"containers": st.lists(_CONTAINER, min_size=1, max_size=3)},
            optional={
                "nodeName": st.sampled_from(["jetson-1", "x86-1"]) | st.none(),
                "initContainers": st.none() | st.lists(_CONTAINER, max_size=2),
                "volumes": st.none() | st.lists(_ENTRY, max_size=3),
                "runtimeClassName": st.text(max_size=3),
            },
        ),
    }
)


def _both(pod: Any) -> list[Any]:  # noqa: ANN401 - a pod
    results = [MUTATIONS["reservation"].apply(pod, {})[0]] if _has_kais_container(pod) else []
    try:
        results.append(MUTATIONS["gvirtus"].apply(pod, ENDPOINTS)[0])
    except RefusalError:
        return results
    return results


def _has_kais_container(pod: Any) -> bool:  # noqa: ANN401 - a pod
    return any(container["name"] == "resource-reservation" for container in pod["spec"]["containers"])


@given(PODS)
@UNHURRIED
def test_the_patch_applied_gives_the_mutated_pod(generated: Json) -> None:
    pod = read_pod(json.dumps(generated).encode())
    for changed in _both(pod):
        patch = difference(pod, changed)
        applied = pod if patch is None else jsonpatch.apply_patch(pod, json.loads(patch))
        assert msgspec.json.encode(applied, order="sorted") == msgspec.json.encode(changed, order="sorted")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.strip("_").replace("_", "-"))
def test_every_case_of_a_reservation_pod_has_its_patch(case: Callable[[Json], None]) -> None:
    created = case_pod(case)
    created["spec"]["nodeName"] = "jetson-1"
    pod = read_pod(json.dumps(created).encode())
    try:
        changed, _ = MUTATIONS["reservation"].apply(pod, {})
    except RefusalError:
        return
    patch = difference(pod, changed)
    applied = pod if patch is None else jsonpatch.apply_patch(pod, json.loads(patch))
    assert applied == changed


def test_an_entry_that_gives_its_place_to_another_one_leaves_none_of_its_fields_behind() -> None:
    before = {"env": [{"name": "a", "valueFrom": {"x": 1}}, {"name": "b", "value": "1"}]}
    after = {"env": [{"name": "b", "value": "1"}, {"name": "a", "valueFrom": {"x": 1}}, {"name": "c"}]}
    patch = difference(before, after)
    assert patch is not None
    assert jsonpatch.apply_patch(before, json.loads(patch)) == after


@given(PODS)
@UNHURRIED
def test_a_second_pass_has_no_patch(generated: Json) -> None:
    pod = read_pod(json.dumps(generated).encode())
    for index, changed in enumerate(_both(pod)):
        again = _both(changed)
        if len(again) > index:
            assert difference(changed, again[index]) is None


@pytest.mark.parametrize(("before", "after"), [(False, 0), (1, True), (1, 1.5), (None, False)])
def test_values_that_python_takes_for_equal_are_told_apart(before: object, after: object) -> None:
    patch = difference({"a": before}, {"a": after})
    assert patch is not None
    assert json.loads(patch) == [{"op": "replace", "path": "/a", "value": after}]


def test_equal_pods_have_no_patch_whatever_the_order_of_their_keys() -> None:
    assert difference({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}) is None


_DOCUMENT = st.recursive(
    _VALUES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "0", "-", "", "~/"]), inner, max_size=3)
    ),
    max_leaves=8,
)
_OPERATION = st.fixed_dictionaries(
    {
        "op": st.sampled_from(["add", "replace"]),
        "path": st.lists(st.sampled_from(["a", "0", "1", "-", "", "~0~1", "~1"]), max_size=3).map(
            lambda names: "".join(f"/{name}" for name in names)
        ),
        "value": _DOCUMENT,
    }
)


@given(_DOCUMENT, st.lists(_OPERATION, max_size=3))
@settings(UNHURRIED, max_examples=500)
def test_what_the_proof_makes_of_a_patch_a_general_library_makes_of_it(document: Any, patch: list[Json]) -> None:  # noqa: ANN401 - JSON
    try:
        ours = apply(copy.deepcopy(document), copy.deepcopy(patch))
    except RuntimeError:
        return
    theirs = jsonpatch.apply_patch(document, patch)
    assert msgspec.json.encode(ours, order="sorted") == msgspec.json.encode(theirs, order="sorted")


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/list/0", "value": 1},
        {"op": "test", "path": "/list/0", "value": 1},
        {"op": "move", "path": "/x", "from": "/list"},
        {"op": "add", "path": "/list/0", "value": 1},
        {"op": "add", "path": "/missing/x", "value": 1},
        {"op": "add", "path": "/text/x", "value": 1},
        {"op": "add", "path": "list/-", "value": 1},
        {"op": "replace", "path": "/missing", "value": 1},
        {"op": "replace", "path": "/list/-", "value": 1},
        {"op": "replace", "path": "/list/2", "value": 1},
        {"op": "replace", "path": "/list/-1", "value": 1},
        {"op": "replace", "path": "/list/00", "value": 1},
        {"op": "replace", "path": "/list/+1", "value": 1},
        {"op": "replace", "path": "/list/\u0661", "value": 1},
        {"op": "replace", "path": "/text/0", "value": 1},
    ],
    ids=lambda operation: f"{operation['op']} {operation['path']}",
)
def test_a_patch_that_leads_nowhere_or_is_of_another_kind_proves_nothing(operation: Json) -> None:
    with pytest.raises(RuntimeError, match="leads nowhere, or is not known here"):
        apply({"list": [1, 2], "text": "word"}, [operation])


def test_a_patch_that_leads_elsewhere_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.admission.patch._place", lambda path, key: f"{path}/{key}")
    with pytest.raises(RuntimeError):
        difference({"a/b": 1, "a": {}}, {"a/b": 2, "a": {}})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("null", "Expected `object`"),
        ("{}", "required field `spec`"),
        ('{"spec": {"containers": {}}}', r"Expected `array \| null`"),
        ('{"spec": {"containers": [{}]}}', "required field `name`"),
        ('{"spec": {"containers": [], "nodeName": 1}}', r"Expected `str \| null`.*nodeName"),
        ('{"metadata": {"labels": {"a": 1}}, "spec": {"containers": []}}', "Expected `str`"),
        ("[" * 100_000, "recursion|Expected"),
    ],
)
def test_what_is_no_pod_is_refused_with_the_place(text: str, says: str) -> None:
    with pytest.raises(RefusalError, match=says) as caught:
        read_pod(text.encode())
    assert caught.value.code == 400
