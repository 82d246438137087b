"""Stack files read without the engine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.stack import StackConfigError
from operations.errors import OperationError
from operations.stack_file import (
    SIMULATED_MEMORY_MIB,
    for_simulator,
    raw_settings,
    read_layers,
    read_settings,
    read_stack_file,
    settings_of,
    with_settings,
)
from testbed.stacks import STACK_FILES


def test_settings_are_read_from_a_file() -> None:
    assert read_settings(STACK_FILES / "Pulumi.jetson.yaml").platform.kind == "tegra"
    assert read_settings(STACK_FILES / "Pulumi.x86.yaml").platform.kind == "x86"


def test_a_stack_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    for name in ("edge", "lab"):
        (tmp_path / f"Pulumi.{name}.yaml").touch()
    with pytest.raises(OperationError, match=r"There is no Pulumi\.roof\.yaml.*\nStacks: edge, lab\. .*STACK="):
        read_stack_file(tmp_path / "Pulumi.roof.yaml")


@pytest.mark.parametrize("others", [["jetson"], []])
def test_who_works_where_the_stacks_file_is_hears_that_another_folder_was_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: list[str]
) -> None:
    checkout, theirs = tmp_path / "kai-anywhere", tmp_path / "clusters"
    for folder, names in ((checkout, others), (theirs, ["prod"])):
        folder.mkdir()
        for name in names:
            (folder / f"Pulumi.{name}.yaml").touch()
    monkeypatch.chdir(theirs)
    with pytest.raises(OperationError) as refused:
        read_stack_file(checkout / "Pulumi.prod.yaml")
    assert f"\nOnly {checkout} was looked into, and not {theirs}, which has a Pulumi.prod.yaml:" in str(refused.value)
    assert "docs/teams.md, The commands on your machine" in str(refused.value)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OperationError) as refused:
        read_stack_file(checkout / "Pulumi.prod.yaml")
    assert "was looked into" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("config: [1", "is not YAML"),
        ("config: 2026-13-01", "is not YAML: '2026-13-01' in line 1 is a date"),
        ("- a", "is not a stack file"),
        ("config: [a]", "is not a stack file"),
    ],
)
def test_a_file_that_is_no_stack_file_is_said_to_be_none(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "Pulumi.odd.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(OperationError, match=rf"Pulumi\.odd\.yaml {says}"):
        read_stack_file(file)


def test_a_file_without_settings_says_where_to_copy_them_from(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.bare.yaml"
    file.write_text("encryptionsalt: v1:x\n", encoding="utf-8")
    with pytest.raises(StackConfigError, match=r"Copy it from Pulumi\.jetson\.yaml or Pulumi\.x86\.yaml"):
        read_settings(file)


def test_a_stack_file_of_another_ending_is_named_where_the_stack_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.berlin.yml").write_text("config: {}\n", encoding="utf-8")
    with pytest.raises(OperationError, match=r"has Pulumi\.berlin\.yml: nothing here reads"):
        read_settings(tmp_path / "Pulumi.berlin.yaml")


def test_a_stack_file_that_is_a_link_to_nowhere_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.prod.yaml").symlink_to("stacks/prod.yaml")
    with pytest.raises(OperationError, match=r"^Pulumi\.prod\.yaml leads to stacks/prod\.yaml, which is not there\.$"):
        read_stack_file(tmp_path / "Pulumi.prod.yaml")


def test_changed_settings_leave_everything_else_as_it_was() -> None:
    content = read_stack_file(STACK_FILES / "Pulumi.jetson.yaml")
    changed = with_settings(content | {"encryptionsalt": "v1:x"}, {"kai": {"namespace": "other"}})
    settings, before = (c["config"]["kai-anywhere:settings"] for c in (changed, content))
    assert changed["encryptionsalt"] == "v1:x"
    assert settings["kai"] == before["kai"] | {"namespace": "other"}
    assert {k: v for k, v in settings.items() if k != "kai"} == {k: v for k, v in before.items() if k != "kai"}
    assert before["kai"]["namespace"] == "kai-scheduler", "the original is not touched"


def test_a_simulator_gets_the_settings_without_hosts_and_nothing_else() -> None:
    content = read_stack_file(STACK_FILES / "Pulumi.jetson.yaml")
    settings = content["config"]["kai-anywhere:settings"]
    real: dict[str, Any] = {
        "secretsprovider": "awskms://alias/stacks",
        "encryptedkey": "AQICAHh...",
        "config": {
            "kai-anywhere:settings": settings | {"hosts": {"jetson-1": {"local": True}}},
            "kai-anywhere:jetson-key": {"secure": "AAABAH..."},
        },
    }
    simulated = for_simulator(real)
    kept = {section: value for section, value in settings.items() if section != "hosts"}
    assert simulated == {"config": {"kai-anywhere:settings": kept}}
    assert "hosts" in real["config"]["kai-anywhere:settings"], "the given content must not change"


def test_a_simulator_does_not_get_the_way_to_the_real_cluster() -> None:
    content = read_stack_file(STACK_FILES / "Pulumi.jetson.yaml")
    real = with_settings(content, {"cluster": {"kubeconfig": "~/.kube/prod", "context": "prod"}})
    assert for_simulator(real) == for_simulator(content)


@pytest.mark.parametrize("said", [{}, {"gpu_count": 1}])
def test_memory_that_a_host_would_be_asked_for_is_a_fixed_one(said: object, tmp_path: Path) -> None:
    content = read_stack_file(STACK_FILES / "Pulumi.jetson.yaml")
    settings = content["config"]["kai-anywhere:settings"]
    nodes = settings["platform"]["tegra_nodes"] | {"jetson-9": said}
    measured = with_settings(content, {"platform": {"tegra_nodes": nodes}, "hosts": {"jetson-9": {"local": True}}})
    file = tmp_path / "Pulumi.lab.yaml"
    file.write_text(yaml.safe_dump(for_simulator(measured)), encoding="utf-8")
    jetsons = read_settings(file).platform.jetsons
    assert jetsons["jetson-9"].gpu_memory_mib == SIMULATED_MEMORY_MIB
    assert jetsons["jetson-1"].gpu_memory_mib == settings["platform"]["tegra_nodes"]["jetson-1"]["gpu_memory_mib"]


def test_a_key_that_stands_twice_is_refused_as_pulumi_does(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.twice.yaml"
    file.write_text("config:\n  kai-anywhere:settings:\n    kai: {}\n    cluster: {}\n    kai: {}\n", encoding="utf-8")
    with pytest.raises(OperationError, match=r"key 'kai' stands in lines 3 and 5: remove one"):
        read_stack_file(file)


def test_a_secret_anywhere_in_the_settings_is_refused_and_a_key_of_that_name_is_not_taken_for_one() -> None:
    for settings in ({"secure": "v1:x"}, {"kai": {"queues": [{"secure": "v1:x"}]}}):
        with pytest.raises(StackConfigError, match="a secret stands inside of kai-anywhere:settings"):
            settings_of({"config": {"kai-anywhere:settings": settings}}, "Pulumi.a.yaml")
    queues: dict[str, dict[str, Any]] = {"kai": {"queues": {"secure": {}}}}
    content = read_stack_file(STACK_FILES / "Pulumi.jetson.yaml")
    assert "secure" in settings_of(with_settings(content, queues), "Pulumi.a.yaml").kai.queues


def test_the_same_key_in_two_mappings_is_no_duplicate(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.fine.yaml"
    file.write_text("config: {a: {name: 1}, b: {name: 2}}\n", encoding="utf-8")
    assert read_stack_file(file) == {"config": {"a": {"name": 1}, "b": {"name": 2}}}


def test_a_file_in_another_encoding_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.latin.yaml"
    file.write_bytes(b"config:\n  a: caf\xe9\n")
    with pytest.raises(OperationError, match=r"Pulumi\.latin\.yaml is not UTF-8: byte 0xe9 in line 2\."):
        read_stack_file(file)


def test_a_stack_file_that_no_program_can_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.lab.yaml").symlink_to("Pulumi.lab.yaml")
    with pytest.raises(OperationError, match=r"Pulumi\.lab\.yaml can't be read: Too many levels of symbolic links\."):
        read_settings(tmp_path / "Pulumi.lab.yaml")


def test_a_plain_key_beside_the_settings_is_refused_and_a_secret_is_not() -> None:
    content = read_stack_file(STACK_FILES / "Pulumi.jetson.yaml")
    beside = {"kai-anywhere:lab-key": {"secure": "v1:x"}, "aws:region": "eu-west-1"}
    content["config"] |= beside
    assert settings_of(content, "Pulumi.jetson.yaml").platform.kind == "tegra"
    content["config"]["kai-anywhere:setings"] = {}
    with pytest.raises(StackConfigError, match=r"nothing reads kai-anywhere:setings\."):
        settings_of(content, "Pulumi.jetson.yaml")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The file of a site that builds upon the Jetson stack."""
    (tmp_path / "bases").mkdir()
    base = (STACK_FILES / "Pulumi.jetson.yaml").read_text(encoding="utf-8")
    (tmp_path / "bases" / "jetson.yaml").write_text(base, encoding="utf-8")
    own = {"hosts": {"jetson-1": {"local": True}}, "kai": {"timeout_seconds": 900}}
    config = {"kai-anywhere:base": "bases/jetson.yaml", "kai-anywhere:settings": own}
    file = tmp_path / "Pulumi.berlin.yaml"
    file.write_text(yaml.safe_dump({"secretsprovider": "awskms://x", "config": config}), encoding="utf-8")
    return file


def test_every_reader_of_a_site_sees_its_base(site: Path) -> None:
    whole = read_stack_file(site)
    settings = whole["config"]["kai-anywhere:settings"]
    assert "kai-anywhere:base" not in whole["config"], "what is copied elsewhere must not ask for the base again"
    assert whole["secretsprovider"] == "awskms://x"
    assert settings["platform"]["kind"] == "tegra"
    assert raw_settings(site) == settings == read_layers(site).merged
    assert read_settings(site).kai.timeout_seconds == 900
    assert settings_of(for_simulator(whole), "x").kai.timeout_seconds == 900
    assert for_simulator(whole)["config"].keys() == {"kai-anywhere:settings"}


def test_what_one_reader_changes_no_other_one_sees(site: Path) -> None:
    read_stack_file(site)["config"]["kai-anywhere:settings"]["platform"]["kind"] = "x86"
    assert raw_settings(site)["platform"]["kind"] == "tegra"


def test_a_wrong_line_of_a_base_is_named_with_its_file(site: Path) -> None:
    base = site.parent / "bases" / "jetson.yaml"
    text = base.read_text(encoding="utf-8")
    base.write_text(text.replace("kind: tegra", "kind: tegra\n      kinds: x", 1), encoding="utf-8")
    with pytest.raises(StackConfigError, match=r"Pulumi\.berlin\.yaml with bases/jetson\.yaml: 1 setting is wrong"):
        read_settings(site)


@pytest.mark.parametrize("read", [read_stack_file, raw_settings])
def test_a_base_that_is_not_there_is_an_error_of_the_file(site: Path, read: Callable[[Path], object]) -> None:
    (site.parent / "bases" / "jetson.yaml").unlink()
    with pytest.raises(OperationError, match=r"^Pulumi\.berlin\.yaml: there is no bases/jetson\.yaml\. There are: no"):
        read(site)
