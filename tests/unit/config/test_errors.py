"""How a stack's mistakes are told: all at once, nothing guessed, nothing but one exception class."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.stack import StackConfigError, parse_settings
from testbed.stacks import FILE, STACKS, assert_refused, changed, jetson, refusal, x86


def test_a_missing_key_says_where_to_copy_it_from() -> None:
    with pytest.raises(StackConfigError) as caught:
        parse_settings(None, file=FILE)
    text = str(caught.value)
    assert text.startswith(f"{FILE}: the key kai-anywhere:settings is missing")
    assert "Copy it from Pulumi.jetson.yaml or Pulumi.x86.yaml" in text


def test_text_that_is_no_json_is_an_error_of_the_settings() -> None:
    with pytest.raises(StackConfigError, match="Invalid JSON"):
        parse_settings("{", file=FILE)


def test_a_list_is_no_settings() -> None:
    with pytest.raises(StackConfigError, match="must be a mapping"):
        parse_settings("[]", file=FILE)


def test_several_problems_are_reported_together() -> None:
    stack = changed(jetson(), "cluster.distribution", "eks")
    stack = changed(stack, "platform.tegra_nodes.jetson-1.gpu_memory_mib", 128)
    stack = changed(stack, "gpu_operator.cdi", "true")
    stack = changed(stack, "kai.queues.robots.quota", 1)
    lines = refusal(stack).splitlines()
    assert lines[0] == f"{FILE}: 4 settings are wrong. Nothing was changed."
    assert [line.strip() for line in lines if line.startswith("  kai-anywhere:")] == [
        "kai-anywhere:settings.cluster.distribution",
        "kai-anywhere:settings.platform.tegra_nodes.jetson-1.gpu_memory_mib",
        "kai-anywhere:settings.gpu_operator.cdi",
        "kai-anywhere:settings.kai.queues.robots",
    ]


@pytest.mark.parametrize("section", ["cluster", "platform"])
def test_a_required_section_is_named(section: str) -> None:
    stack = x86()
    del stack[section]
    assert_refused(stack, section, "required, but missing")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("gpu_operator.cdi", "true", "valid boolean"),
        ("gpu_operator.install", 1, "valid boolean"),
        ("kai.default_queue", "yes", "valid boolean: write true or false without quotes"),
        ("kai.timeout_seconds", "600", "valid integer"),
        ("kai.timeout_seconds", 600.0, "valid integer"),
        ("kai.timeout_seconds", "10m", "valid integer: write digits alone, without a unit"),
        ("kai.queues.research.memory.quota", "8Gi", "as memory, '8Gi' is 8589.934592"),
        ("kai.images.pull_secrets", "login", "must be a list: `- item` lines below this key, or [item]"),
        ("kai.images.registry", "https://registry.example.com", ": leave out https://"),
        ("kai.queues.research.gpu.quota", "1", "valid number"),
        ("kai.image_tag", 0.17, "put it in quotes"),
        ("kai.namespace", 7, "put it in quotes"),
    ],
)
def test_nothing_is_read_as_what_it_is_not(key: str, value: object, says: str) -> None:
    assert_refused(changed(x86(), key, value), key, says, found=value)


@pytest.mark.parametrize(
    ("key", "value", "option"),
    [
        ("kai.queues.research.gpu.quota", "0.5", "--type float"),
        ("kai.timeout_seconds", "600.0", "--type int"),
        ("kai.default_queue", "True", "--type bool"),
        ("kai.scheduler.args", {"v": 4}, "--type string"),
    ],
)
def test_what_pulumi_wrote_as_another_type_names_the_option(key: str, value: object, option: str) -> None:
    refused = refusal(changed(x86(), key, value))
    assert option in refused
    assert ("pulumi config rm --path, then" in refused) == isinstance(value, str)


def test_an_item_that_is_a_mapping_is_not_told_to_be_put_in_quotes() -> None:
    refused = refusal(changed(x86(), "kai.images.pull_secrets", [{"name": "login"}]))
    assert "kai.images.pull_secrets.0" in refused
    assert "must be a text" in refused
    assert "quotes" not in refused


def test_a_list_whose_items_are_wrong_is_not_called_empty_too() -> None:
    profile = {"sharing": "kai", "nodes": ["GPU-7"]}
    [problem] = [
        line for line in refusal(changed(x86(), "node_profiles", {"a": profile})).splitlines() if "problem" in line
    ]
    assert "not a Kubernetes object name" in problem


def test_settings_are_frozen() -> None:
    parsed = parse_settings(json.dumps(x86()), file=FILE)
    with pytest.raises(ValueError, match="frozen"):
        parsed.kai = parsed.kai  # type: ignore[misc]  # that it is refused is the point


_scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12)
_json = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def _paths(value: object, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(value, dict):
        return [prefix]
    return [prefix, *(path for key in value for path in _paths(value[key], (*prefix, key)))]


@st.composite
def _broken_stacks(draw: st.DrawFn) -> object:
    """A compliant stack with one place replaced by anything."""
    stack: Any = STACKS[draw(st.sampled_from(sorted(STACKS)))]()
    path = draw(st.sampled_from(_paths(stack)))
    replacement = draw(_json)
    return changed(stack, ".".join(path), replacement) if path else replacement


def _returns_or_explains(text: str) -> None:
    try:
        said = str(parse_settings(text, file=FILE).platform.kind)
    except StackConfigError as error:
        said = str(error)
    assert said.startswith((f"{FILE}: ", "tegra", "x86"))


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(_broken_stacks())
def test_whatever_stands_in_one_place_is_accepted_or_explained(stack: object) -> None:
    _returns_or_explains(json.dumps(stack))


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(_json.map(json.dumps) | st.text(max_size=40))
def test_whatever_the_settings_are_they_are_accepted_or_explained(text: str) -> None:
    _returns_or_explains(text)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("platform.kind", "jetson", "must be one of 'tegra', 'x86'. A Jetson is 'tegra'"),
        ("platform.kind", "arm64", "must be one of 'tegra', 'x86'"),
        ("platform", "tegra", "must be a mapping: `key: value` lines, indented below this key"),
        ("platform.tegra_nodes.jetson-1", 30, "must be a mapping: `key: value` lines, indented below this key"),
    ],
)
def test_what_is_of_the_wrong_kind_is_told_in_our_words(key: str, value: object, says: str) -> None:
    assert_refused(changed(jetson(), key, value), key, says, found=value)


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("platform", "empty: indent what belongs to this key below it, write {} or [] for nothing at all"),
        ("platform.tegra_nodes.jetson-1", "empty: indent what belongs to this key below it"),
        ("cluster.adopt", "empty: indent what belongs to this key below it"),
        ("kai.namespace", "empty: write a value, or remove the key"),
    ],
)
def test_a_key_left_empty_says_what_to_write(key: str, says: str) -> None:
    assert_refused(changed(jetson(), key, None), key, says, "remove the key")


@pytest.mark.parametrize(
    ("key", "value"),
    [("platform.tegra_nodes", {}), ("platform.tegra_nodes.jetson-1.driver_library_paths", [])],
)
def test_a_collection_that_needs_entries_is_not_empty(key: str, value: object) -> None:
    assert_refused(changed(jetson(), key, value), key, "at least 1 item is required, but there is none")


def test_a_key_beside_the_settings_that_nothing_reads_is_refused() -> None:
    with pytest.raises(StackConfigError) as caught:
        parse_settings(json.dumps(jetson()), file=FILE, other_keys=["settings", "setings"])
    assert str(caught.value).splitlines() == [
        f"{FILE}: nothing reads kai-anywhere:setings. Nothing was changed.",
        "Move what belongs to the settings below kai-anywhere:settings, or remove it: pulumi config rm setings",
    ]


def test_a_section_that_lost_its_indentation_is_refused() -> None:
    with pytest.raises(StackConfigError) as caught:
        parse_settings(json.dumps(jetson()), file=FILE, top_level_keys=["config", "encryptionsalt", "gvirtus"])
    assert str(caught.value).splitlines() == [
        f"{FILE}: gvirtus at the beginning of a line is not a setting of this program. Nothing was changed.",
        "Indent it by four spaces, below kai-anywhere:settings.",
    ]


def test_a_misspelt_key_of_the_settings_is_recognized() -> None:
    with pytest.raises(StackConfigError) as caught:
        parse_settings(None, file=FILE, other_keys=["setings", "lab-key"])
    assert str(caught.value).endswith("Is kai-anywhere:setings meant for it?")
