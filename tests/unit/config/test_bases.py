"""Settings that build upon a base: what is merged, where each value stands, and what no base is."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.bases import Inherited, Layer, from_folder, inherited
from config.stack import StackConfigError, StackSettings, parse_settings
from testbed.stacks import jetson

JETSON = "bases/jetson.yaml"


def _base(folder: Path, name: str, settings: object, *, base: str | None = None, **others: object) -> None:
    config: dict[str, object] = {"kai-anywhere:settings": settings, **others}
    if base is not None:
        config["kai-anywhere:base"] = base
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"config": config}), encoding="utf-8")


def _read(folder: Path, settings: object, base: object = JETSON) -> Inherited:
    return inherited("Pulumi.berlin.yaml", settings, base, from_folder(folder))


def _parsed(whole: Inherited) -> StackSettings:
    return parse_settings(json.dumps(whole.merged), file=whole.title, origin=whole.origin)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with one base: the shipped Jetson stack."""
    _base(tmp_path, JETSON, jetson())
    return tmp_path


def test_a_stack_has_its_bases_settings_and_its_own_few_lines(site: Path) -> None:
    whole = _read(site, {"kai": {"scheduler": {"placement": "spread"}}})
    settings = _parsed(whole)
    assert settings.kai.scheduler.placement == "spread"
    assert settings.platform.jetsons.keys() == jetson()["platform"]["tegra_nodes"].keys()
    assert settings.kai.queues.keys() == jetson()["kai"]["queues"].keys()
    assert whole.title == f"Pulumi.berlin.yaml with {JETSON}"


def test_without_own_lines_a_stack_is_its_base(site: Path) -> None:
    assert _read(site, {}).merged == jetson()


def test_mappings_are_merged_and_lists_are_replaced() -> None:
    base = {"a": {"x": 1, "y": [1, 2]}, "b": 1, "c": {"z": 1}, "d": [1]}
    own = {"a": {"y": [3]}, "b": {"n": 1}, "c": {}, "d": None, "e": 1}
    merged = Inherited((Layer(JETSON, base), Layer("own", own))).merged
    assert merged == {"a": {"x": 1, "y": [3]}, "b": {"n": 1}, "c": {"z": 1}, "d": None, "e": 1}
    assert base["a"] == {"x": 1, "y": [1, 2]}, "a base is not touched"


def test_a_name_of_digits_is_the_same_in_both_files(site: Path) -> None:
    nodes = "{10: {gpu_memory_mib: 4000, gpu_count: 2}, 11: {gpu_memory_mib: 4000}}"
    text = f"config: {{kai-anywhere:settings: {{platform: {{tegra_nodes: {nodes}}}}}}}"
    (site / JETSON).write_text(text, encoding="utf-8")
    # As Pulumi hands it to the program, in JSON.
    whole = _read(site, {"platform": {"tegra_nodes": {"10": {"gpu_memory_mib": 5000}}}})
    assert whole.merged["platform"]["tegra_nodes"]["10"] == {"gpu_memory_mib": 5000, "gpu_count": 2}
    assert {key[-2:]: file for key, _, file in whole.values()} == {
        ("10", "gpu_memory_mib"): "Pulumi.berlin.yaml",
        ("10", "gpu_count"): JETSON,
        ("11", "gpu_memory_mib"): JETSON,
    }


def test_an_empty_key_is_a_mistake_with_a_base_too_and_removes_nothing(site: Path) -> None:
    with pytest.raises(StackConfigError, match=r"settings\.kai\n    file:    Pulumi\.berlin\.yaml\n.*: empty"):
        _parsed(_read(site, {"kai": None}))


def test_a_section_that_may_be_missing_is_taken_away_by_null(site: Path) -> None:
    _base(site, JETSON, jetson() | {"gvirtus": {"backends": {}}})
    assert _parsed(_read(site, {"gvirtus": None})).gvirtus is None


def test_a_base_builds_upon_another_one(site: Path) -> None:
    _base(site, "bases/eu.yaml", {"kai": {"timeout_seconds": 900}}, base=JETSON)
    whole = _read(site, {"kai": {"scheduler": {"placement": "spread"}}}, "bases/eu.yaml")
    settings = _parsed(whole)
    assert (settings.kai.timeout_seconds, settings.kai.scheduler.placement) == (900, "spread")
    assert whole.title == f"Pulumi.berlin.yaml with bases/eu.yaml and {JETSON}"
    assert [whole.origin(("kai", key)) for key in ("timeout_seconds", "namespace")] == ["bases/eu.yaml", JETSON]
    assert whole.origin(("kai", "scheduler", "placement")) == "Pulumi.berlin.yaml"
    assert whole.origin(("kai",)) is None, "all three have a part in it"


@pytest.mark.parametrize(
    ("own", "wrong", "file", "key"),
    [
        ({"kai": {"queus": {}}}, {}, "Pulumi.berlin.yaml", "kai"),
        ({}, {"kai": {"queus": {}}}, JETSON, "kai"),
        ({}, {"kai": {"timeout_seconds": "600"}}, JETSON, "kai.timeout_seconds"),
        ({"kai": {"timeout_seconds": -1}}, {"kai": {"timeout_seconds": "x"}}, "Pulumi.berlin.yaml", "kai.timeout_sec"),
        ({"platform": {"tegra_nodes": {"j": {"gpu_memory_mib": 1}}}}, {}, "Pulumi.berlin.yaml", "platform.tegra_nod"),
        ({}, {"gpu_operator": {"images": {"pull_secrets": [1]}}}, JETSON, "gpu_operator.images.pull_secrets.0"),
    ],
)
def test_an_error_names_the_file_in_which_the_wrong_line_stands(
    site: Path, own: dict[str, Any], wrong: dict[str, Any], file: str, key: str
) -> None:
    base = jetson()
    for section, keys in wrong.items():
        base[section] = base[section] | keys
    _base(site, JETSON, base)
    with pytest.raises(StackConfigError) as caught:
        _parsed(_read(site, own))
    lines = str(caught.value).splitlines()
    assert lines[0] == f"Pulumi.berlin.yaml with {JETSON}: 1 setting is wrong. Nothing was changed."
    assert lines[1].startswith(f"  kai-anywhere:settings.{key}")
    assert lines[2] == f"    file:    {file}"


def test_a_rule_between_files_names_no_single_one(site: Path) -> None:
    for own in ({"platform": {"kind": "x86"}}, {"gpu_operator": {"namespace": "kai-scheduler"}}):
        with pytest.raises(StackConfigError) as caught:
            _parsed(_read(site, own))
        assert "file:  " not in str(caught.value)


def test_a_stack_of_one_file_has_no_line_that_names_it() -> None:
    with pytest.raises(StackConfigError) as caught:
        parse_settings(json.dumps(jetson() | {"kai": None}), file="Pulumi.berlin.yaml")
    assert "file:  " not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        *("jetson.yaml", "../bases/jetson.yaml", "bases/../jetson.yaml", "/bases/jetson.yaml", "bases/a/b.yaml"),
        *("bases/.yaml", "bases/jetson.yml", "bases/..yaml", "bases/jetson.yaml\n", "", "https://x/bases/a.yaml"),
        *(1, ["bases/jetson.yaml"], {"secure": "v1:x"}),
    ],
)
def test_a_base_stands_in_its_one_folder(site: Path, name: object) -> None:
    with pytest.raises(StackConfigError, match=r"^Pulumi\.berlin\.yaml: kai-anywhere:base is the path of a file in"):
        _read(site, {}, name)


def test_a_base_that_is_not_there_names_those_that_are(site: Path) -> None:
    with pytest.raises(StackConfigError, match=r"there is no bases/jetsn\.yaml\. There are: bases/jetson\.yaml\."):
        _read(site, {}, "bases/jetsn.yaml")


def test_without_the_folder_there_are_none(tmp_path: Path) -> None:
    with pytest.raises(StackConfigError, match=r"there is no bases/jetson\.yaml\. There are: none\."):
        _read(tmp_path, {})


@pytest.mark.parametrize("link", ["file", "folder"])
def test_a_link_is_no_base(tmp_path: Path, link: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    _base(elsewhere.parent, "elsewhere/jetson.yaml", jetson())
    folder = tmp_path / "project"
    folder.mkdir()
    if link == "folder":
        (folder / "bases").symlink_to(elsewhere)
    else:
        (folder / "bases").mkdir()
        (folder / JETSON).symlink_to(elsewhere / "jetson.yaml")
    with pytest.raises(StackConfigError, match=r"bases/jetson\.yaml is a link, or stands behind one\."):
        _read(folder, {})


def test_bases_in_a_circle_are_shown(site: Path) -> None:
    _base(site, "bases/a.yaml", {}, base="bases/b.yaml")
    _base(site, "bases/b.yaml", {}, base="bases/a.yaml")
    with pytest.raises(StackConfigError, match=r"in a circle: bases/a\.yaml -> bases/b\.yaml -> bases/a\.yaml\."):
        _read(site, {}, "bases/a.yaml")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("config: [1", "is not YAML"),
        ("config:\n  kai-anywhere:settings: {}\n  kai-anywhere:settings: {}\n", "stands in lines 2 and 3"),
        ("- a", "is no base"),
        ("kai: {}", "is no base"),
        ("config: {kai-anywhere:settings: [1]}", "is no base"),
        ("config: {kai-anywhere:settings: {}, kai-anywhere:lab-key: {secure: v1:x}}", "nothing reads kai-anywhere:lab"),
        ("config: {kai-anywhere:settings: {}}\nencryptionsalt: v1:x", "nothing reads encryptionsalt"),
    ],
)
def test_what_is_no_base_is_said_to_be_none(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "bases").mkdir()
    (tmp_path / JETSON).write_text(content, encoding="utf-8")
    with pytest.raises(StackConfigError, match=rf"bases/jetson\.yaml:? .*{says}"):
        _read(tmp_path, {})


def test_a_base_in_another_encoding_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "bases").mkdir()
    (tmp_path / JETSON).write_bytes(b"config:\n  a: caf\xe9\n")
    with pytest.raises(StackConfigError, match=r"bases/jetson\.yaml is not UTF-8, in line 2\."):
        _read(tmp_path, {})


def test_a_stack_without_the_key_says_what_to_write(site: Path) -> None:
    with pytest.raises(StackConfigError, match=r"write kai-anywhere:settings: \{\}"):
        _read(site, None)


_KEYS = st.sampled_from("abc")
_TREES = st.recursive(
    st.integers() | st.none() | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=8,
)
_SETTINGS = st.dictionaries(_KEYS, _TREES, max_size=3)


@given(st.lists(_SETTINGS, min_size=1, max_size=4))
def test_every_value_is_the_one_of_the_file_that_is_named(settings: list[dict[str, Any]]) -> None:
    whole = Inherited(tuple(Layer(str(index), layer) for index, layer in enumerate(settings)))
    for key, value, file in whole.values():
        item: Any = settings[int(file)]
        for part in key:
            item = item[part]
        assert item == value
        for more_special in settings[int(file) + 1 :]:
            said: Any = more_special
            for part in key:
                said = said.get(part, ...) if isinstance(said, dict) else ...
            assert said is ... or (said == {} == value), "nobody later says it"


@given(_SETTINGS, _SETTINGS, _SETTINGS)
def test_merging_file_by_file_is_merging_all(
    first: dict[str, Any], second: dict[str, Any], third: dict[str, Any]
) -> None:
    def merged(*settings: dict[str, Any]) -> dict[str, Any]:
        return Inherited(tuple(Layer("x", setting) for setting in settings)).merged

    assert merged(first, second, third) == merged(merged(first, second), third)
    assert merged(first) == merged(first, {}) == merged({}, first)
