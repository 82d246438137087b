"""Whether KAI's programs run on the simulator: what is said, and what can be had where nothing is."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import simulator
from manifests import kai
from operations import kai_programs
from operations.errors import OperationError
from operations.kai_programs import NAMES, choose
from testbed.stacks import changed, jetson, parse
from toolchain import ToolchainError

NEW = simulator.Status(Path("/simulator"), Path("/simulator/kubeconfig"), (), None, ())
EMULATING = replace(NEW, exists=True)
RUNNING = replace(NEW, exists=True, kai_programs="images")
SETTINGS = parse(jetson())


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Nothing is said; KAI's programs run here, and every registry has them. Gives what was fetched."""
    fetched: list[tuple[str, str]] = []
    monkeypatch.delenv("KAI_PROGRAMS", raising=False)
    monkeypatch.setattr("simulator.no_programs", lambda: None)
    monkeypatch.setattr("toolchain.registry_reachable", lambda _: True)
    monkeypatch.setattr("toolchain.program_of", lambda *image: fetched.append(image))
    return fetched


def test_programs_of_a_folder_need_each_other_and_kais_own_chart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("KAI_PROGRAMS", str(tmp_path))
    for name in NAMES[1:]:
        shutil.copy("/bin/true", tmp_path / name)
    with pytest.raises(ToolchainError, match="has no program admission"):
        choose(SETTINGS, NEW, official_chart=True)
    shutil.copy("/bin/true", tmp_path / NAMES[0])
    assert choose(SETTINGS, NEW, official_chart=True) == str(tmp_path)
    with pytest.raises(OperationError, match=r"kai\.chart\.source"):
        choose(SETTINGS, NEW, official_chart=False)


def test_programs_of_images_are_those_of_the_stacks_own_tag(
    monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, str]]
) -> None:
    monkeypatch.setenv("KAI_PROGRAMS", "images")
    settings = changed(jetson(), "kai.images.registry", "registry.example.com/kai")
    assert choose(parse(changed(settings, "kai.image_tag", "mine")), NEW, official_chart=True) == "images"
    assert asked == [(f"registry.example.com/kai/{name}:mine", "images") for name in NAMES]
    with pytest.raises(OperationError, match=r"Set kai\.image_tag"):
        choose(parse(changed(settings, "kai.chart", {"source": "./chart"})), NEW, official_chart=True)


def test_without_a_word_the_images_are_taken_where_they_can_be_had(
    asked: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert choose(SETTINGS, NEW, official_chart=True) == "images"
    assert [image for image, _ in asked] == [kai.image(SETTINGS, name) for name in NAMES]
    said = capsys.readouterr().err
    assert said.startswith(f"KAI's programs run, out of their images at {kai.REGISTRY}.")
    assert "KAI_PROGRAMS=emulated" in said


def _refuse(*_: object) -> None:
    raise ToolchainError("The program can't be had.", why="ghcr.io shows it only to those who log in", remedy="none")


@pytest.mark.parametrize(
    ("instead", "setting", "official_chart", "reason"),
    [
        ({"simulator.no_programs": lambda: "they need Linux"}, None, True, "can't be run here, they need Linux"),
        ({}, None, False, "its own chart can't be reached"),
        ({}, {"source": "./chart"}, True, "the settings do not tell the tag"),
        ({"toolchain.registry_reachable": lambda _: False}, None, True, f"{kai.REGISTRY}, can't be reached"),
        ({"toolchain.program_of": _refuse}, None, True, "ghcr.io shows it only to those who log in"),
    ],
)
def test_where_they_can_not_be_had_kai_is_emulated_and_a_line_says_why_and_what_is_not_checked(  # noqa: PLR0913, PLR0917 - fixtures
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    instead: Mapping[str, object],
    setting: Mapping[str, str] | None,
    official_chart: bool,
    reason: str,
) -> None:
    for name, stand_in in instead.items():
        monkeypatch.setattr(name, stand_in)
    settings = SETTINGS if setting is None else parse(changed(jetson(), "kai.chart", setting))
    assert choose(settings, NEW, official_chart=official_chart) is None
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("KAI is emulated: ")
    assert reason in said
    assert said.endswith(simulator.NOT_CHECKED)


def test_what_was_decided_for_a_simulator_stays(
    asked: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    for there in (EMULATING, RUNNING):
        assert choose(SETTINGS, there, official_chart=True) is None
    assert choose(SETTINGS, EMULATING, official_chart=False) is None
    assert asked == []
    assert capsys.readouterr().err == ""


def test_programs_that_run_are_not_given_our_own_chart() -> None:
    with pytest.raises(OperationError, match=r"can't be reached now\. .*kai\.chart\.source.*make reset"):
        choose(SETTINGS, RUNNING, official_chart=False)


def test_emulation_can_be_asked_for(monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, str]]) -> None:
    monkeypatch.setenv("KAI_PROGRAMS", kai_programs.EMULATED)
    for there in (NEW, EMULATING):
        assert choose(SETTINGS, there, official_chart=True) is None
    with pytest.raises(OperationError, match=r"runs KAI's programs\. Forget it with `make reset`"):
        choose(SETTINGS, RUNNING, official_chart=True)
    assert asked == []
