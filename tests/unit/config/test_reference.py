"""The reference has every setting as the models have it, and the editors' schema takes what they take."""

import copy
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import hypothesis
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

from config.model import Settings
from config.reference import (
    ANY_NAME,
    Setting,
    UnknownSettingError,
    find,
    models_schema,
    part_schema,
    settings,
    stack_file_schema,
    text_of,
)
from config.stack import SETTINGS_KEY, StackConfigError, StackSettings
from config.yaml_text import load_yaml
from testbed.stacks import STACK_FILES, STACKS, Json, changed, jetson, parse, x86
from tests.support.hosts.settings import full_host, jetson_with_host
from tests.support.json_schema import judge
from tests.support.values import paths_of

ALL = settings()
FULL = {name: stack() for name, stack in STACKS.items()} | {"hosts": jetson_with_host(full_host())}


@cache
def _judge() -> Any:  # noqa: ANN401 - see there
    return judge(stack_file_schema())


def _file(stack: object) -> Json:
    return {"config": {f"kai-anywhere:{SETTINGS_KEY}": stack}}


def _quoted(path: tuple[str, ...]) -> str:
    return "".join(f'["{part}"]' for part in path)


@pytest.mark.parametrize("name", FULL)
def test_every_key_of_a_stack_is_found(name: str) -> None:
    for path in paths_of(FULL[name]):
        assert find(_quoted(path)), path


def _models(base: type[BaseModel] = Settings) -> Iterator[type[BaseModel]]:
    for model in base.__subclasses__():
        if model.__module__.startswith("config."):
            yield model
            yield from _models(model)


def test_every_field_of_every_model_is_a_setting() -> None:
    names = {setting.key.rpartition(".")[2] for setting in ALL}
    assert {name for model in _models() for name in model.model_fields} == names - {ANY_NAME}


@pytest.mark.parametrize("setting", ALL, ids=lambda setting: setting.key)
def test_every_setting_says_what_it_is_for(setting: Setting) -> None:
    assert setting.description.endswith((".", ")")), setting
    assert len(setting.description) > 4


def test_every_default_is_what_holds_without_the_setting() -> None:
    minimal = {"cluster": {"distribution": "k3s"}, "platform": {"kind": "x86"}}
    said: Any = parse(minimal).model_dump(mode="json")
    assert said["gvirtus"] is None
    backends = {"a": {"image": "a:1", "node": "gpu-1"}}
    remote: Any = parse(minimal | {"gvirtus": {"backends": backends, "frontends": {"nodes": ["cpu-1"]}}}).gvirtus
    said["gvirtus"] = remote.model_dump(mode="json")
    compared = 0
    for setting in ALL:
        if setting.shape == "section" or ANY_NAME in setting.key or setting.required or setting.only_with:
            continue
        value = said
        for part in setting.key.split("."):
            value = value[part]
        assert value == setting.default, setting.key
        compared += 1
    assert compared > 40


def test_every_example_is_taken() -> None:
    shapes = models_schema()
    shapes["$defs"][StackSettings.__name__] = shapes
    taken = 0
    for model in _models():
        for name, field in model.model_fields.items():
            shape = shapes["$defs"].get(model.__name__, {}).get("properties", {}).get(name, {})
            inner = shape.get("anyOf", [shape])[0]
            examples = [*shape.get("examples", ()), *inner.get("examples", ())]
            examples += [[example] for example in inner.get("items", {}).get("examples", ())]
            for value in examples:
                TypeAdapter(field.rebuild_annotation()).validate_json(json.dumps(value), strict=True)
                taken += 1
    assert taken > 15


@pytest.mark.parametrize(
    ("key", "type_in_words"),
    [
        ("platform.tegra_nodes.jetson-1.gpu_memory_mib", "integer, MiB, from 1024 to 1048575"),
        ("kai.timeout_seconds", "integer, seconds, from 30 to 7200"),
        ("reservation.carrier", "one of auto, policy, webhook"),
        ("gvirtus.frontends.nodes", "list of node names (at least 1)"),
        ("platform.tegra_nodes.jetson-1.driver_library_paths", "list of absolute paths (from 1 to 8)"),
        ("kai.queues", "mapping of names to sections"),
        ("kai.queues.robots.gpu.quota", "number, at least -1"),
        ("gpu_operator.toolkit_env", "mapping of names to text"),
        ("platform.kind", "one of tegra, x86"),
        ("cluster.mutating_policies", "v1beta1"),
    ],
)
def test_a_type_is_told_in_words(key: str, type_in_words: str) -> None:
    assert {setting.type for setting in find(key)} == {type_in_words}


@pytest.mark.parametrize(
    ("key", "same"),
    [
        ("settings.kai.queues", "kai.queues"),
        ("kai-anywhere:settings.kai.queues", "kai.queues"),
        ('hosts["gpu-1.example.com"].local', "hosts.<name>.local"),
        ("hosts.<name>.local", "hosts.<name>.local"),
        ("cluster.adopt[0]", "cluster.adopt"),
        ("kai.scheduler.args.v", "kai.scheduler.args"),
    ],
)
def test_a_key_is_read_as_pulumi_writes_it(key: str, same: str) -> None:
    assert [setting.key for setting in find(key)] == [same]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *(("1.36", '"1.36"'), ("true", '"true"'), ("own", "own"), (True, "true"), (["a"], '["a"]'), (-1, "-1")),
        *(("a: b", '"a: b"'), ("", '""'), ("08", '"08"'), ("2026-01-15", '"2026-01-15"'), ("#x", '"#x"')),
        *(("a\nb", '"a\\nb"'), ("\x1b[31m", '"\\u001b[31m"')),
    ],
)
def test_a_value_is_written_so_that_yaml_reads_it_back(value: object, text: str) -> None:
    assert text_of(value) == text
    assert load_yaml(text) == value


def test_what_only_one_variant_has_says_so_and_what_all_have_does_not() -> None:
    assert [setting.only_with for setting in find("platform.tegra_nodes")] == ["platform.kind: tegra"]
    assert [setting.only_with for setting in find("platform.container_runtime_mode")] == [None]
    assert [setting.only_with for setting in find("admission.certificates.lifetime_seconds")] == [
        "admission.certificates.kind: own",
        "admission.certificates.kind: stack",
    ]


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("kai.cdi_enable", "kai.cdi_enabled"),
        ("cdi_enabled", "kai.cdi_enabled"),
        ("hosts.jetson-1.ssh.addres", "hosts.<name>.ssh.address"),
        ("platform.nodes", "platform.tegra_nodes"),
    ],
)
def test_an_unknown_key_names_near_ones(key: str, near: str) -> None:
    with pytest.raises(UnknownSettingError, match=f"Did you mean {near}"):
        find(key)


@pytest.mark.parametrize("key", ["", "kai.timeout_seconds.deeper", "kai..queues..", "hosts.a.b.c.d", "nothing-like-it"])
def test_what_is_no_key_is_refused(key: str) -> None:
    if key == "kai..queues..":
        assert find(key)
        return
    with pytest.raises(UnknownSettingError, match="There is no setting"):
        find(key)


@pytest.mark.parametrize("name", FULL)
def test_the_schema_takes_every_stack(name: str) -> None:
    parse(FULL[name])
    _judge().validate(_file(FULL[name]))


@pytest.mark.parametrize("path", sorted(STACK_FILES.glob("Pulumi.*.yaml")), ids=lambda path: path.name)
def test_the_schema_takes_the_tests_own_stack_files(path: Any) -> None:  # noqa: ANN401 - a path
    _judge().validate(yaml.safe_load(path.read_text(encoding="utf-8")))


def test_what_pulumi_writes_beside_the_settings_is_taken() -> None:
    file = _file(x86()) | {
        "encryptionsalt": "v1:salt",
        "encryptedkey": "key",
        "secretsprovider": "awskms://alias/key",
        "environment": ["team"],
    }
    file["config"] |= {"kai-anywhere:lab-key": {"secure": "v1:cipher"}, "kubernetes:context": "lab"}
    _judge().validate(file)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kai.cdi_enable", False),
        ("colour", "red"),
        ("platform.colour", "red"),
        ("kai.timeout_seconds", "600"),
        ("kai.timeout_seconds", 29),
        ("kai.timeout_seconds", 7201),
        ("kai.queues.robots.gpu.quota", -2),
        ("kai.queues.robots.gpu.quota", "1"),
        ("kai.default_queue", "yes"),
        ("platform.kind", "arm"),
        ("platform.tegra_nodes", {}),
        ("platform.tegra_nodes.jetson-1.gpu_memory_mib", 28),
        ("platform.tegra_nodes.jetson-1.gpu_memory_mib", 1024**2),
        ("reservation.carrier", "letter"),
        ("reservation.supplemental_groups", [0]),
        ("gpu_operator.toolkit_env", {"lower": "case"}),
        ("gpu_operator.images.registry", "two words"),
        ("hosts", []),
        ("cluster", {}),
    ],
)
def test_the_schema_refuses_what_the_models_refuse(key: str, value: object) -> None:
    wrong = changed(jetson(), key, value)
    with pytest.raises(StackConfigError):
        parse(wrong)
    assert not _judge().is_valid(_file(wrong))


@cache
def _part() -> Any:  # noqa: ANN401 - as above
    return judge(part_schema())


@pytest.mark.parametrize("name", FULL)
def test_the_schema_of_parts_takes_every_stack_and_every_piece_of_it(name: str) -> None:
    _part().validate(_file(FULL[name]))
    for section, said in FULL[name].items():
        _part().validate(_file({section: said}))
        for key, value in said.items() if isinstance(said, dict) else ():
            _part().validate(_file({section: {key: value}}))


def test_a_stack_with_a_base_needs_no_more_than_its_own_lines() -> None:
    file = _file({"kai": {"timeout_seconds": 900}})
    file["config"]["kai-anywhere:base"] = "bases/jetson.yaml"
    _part().validate(file)
    assert not _judge().is_valid(file), "the other schema is for whole stacks"
    file["config"]["kai-anywhere:base"] = "../jetson.yaml"
    assert not _part().is_valid(file)


@pytest.mark.parametrize(
    ("key", "value"),
    [("kai.cdi_enable", False), ("colour", "red"), ("kai.timeout_seconds", "600"), ("platform.kind", "arm")],
)
def test_the_schema_of_parts_refuses_wrong_keys_and_values(key: str, value: object) -> None:
    assert not _part().is_valid(_file(changed(jetson(), key, value)))


@pytest.mark.parametrize(
    "file",
    [{}, {"config": {}}, _file(x86()) | {"gvirtus": {}}, {"config": {}, "encryptionsalt": "v1:salt"}],
    ids=["empty", "without settings", "a section at the beginning of a line", "after stack init"],
)
def test_the_schema_refuses_a_file_that_is_no_stack(file: Json) -> None:
    assert not _judge().is_valid(file)


def _at(value: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON
    for part in path:
        value = value[part]
    return value


_scalars = st.none() | st.booleans() | st.integers(-2, 2**21) | st.floats(-2, 9) | st.text(max_size=4)
_DELETED = object()
_ALIKE: dict[str, list[object]] = {}
"""What the full stacks have in a key, by its last word."""
for _stack in FULL.values():
    for _path in paths_of(_stack):
        _ALIKE.setdefault(_path[-1], []).append(_at(_stack, _path))


@st.composite
def _changed_stacks(draw: st.DrawFn) -> Json:
    """A full stack, of which some keys are deleted, or have what another stack has there or in a key of that name."""
    stack = copy.deepcopy(FULL[draw(st.sampled_from(sorted(FULL)))])
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(sorted(paths_of(stack))))
        value = draw(st.just(_DELETED) | st.sampled_from(_ALIKE[path[-1]]) | _scalars)
        section = _at(stack, path[:-1])
        if value is _DELETED:
            del section[path[-1]]
        else:
            section[path[-1]] = copy.deepcopy(value)
    return stack


_TAKEN: list[Json] = []


@hypothesis.settings(max_examples=400, deadline=None)
@given(_changed_stacks())
def _what_the_models_take_is_taken_by_the_schema(stack: Json) -> None:
    try:
        parse(stack)
    except StackConfigError:
        return
    _TAKEN.append(stack)
    _judge().validate(_file(stack))


def test_whatever_the_models_take_the_schema_takes() -> None:
    _TAKEN.clear()
    _what_the_models_take_is_taken_by_the_schema()
    assert len(_TAKEN) > 20, "too few of the changed stacks were taken for this to say anything"
