"""`make update`: a newer chart is checked before it is pinned."""

import json
import tarfile
from pathlib import Path

import pytest
import yaml

from operations.chart_update import NAMES, Chart, check, read_chart
from operations.errors import OperationError
from tests.support.stacks import ROOT, Json, changed, jetson, parse, x86

FACTS = ROOT / "tests" / "data" / "charts"
STACKS = {"jetson": parse(jetson()), "x86": parse(x86())}


def _official(folder: Path, name: str) -> Path:
    """A chart with the value paths of the official one at the pinned version, as far as they are known here."""
    facts = json.loads((FACTS / f"{name}.json").read_text(encoding="utf-8"))
    below = {
        f"{sub}.{path}": kind for sub, of in facts["subcharts"].items() for path, kind in of["value_paths"].items()
    }
    values: Json = {}
    for path, kind in (below | facts["value_paths"]).items():
        values = changed(
            values, path, {"string": "x", "boolean": True, "integer": 1, "number": 0.5, "array": []}.get(kind, {})
        )
    folder.mkdir()
    (folder / "Chart.yaml").write_text(f"name: {name}\nversion: {facts['version']}\n", encoding="utf-8")
    (folder / "values.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    templates = [f"{{{{ .Values.{path} }}}}" for path in facts["template_only_value_paths"]]
    (folder / "templates.yaml").write_text("\n".join([*templates, *NAMES[name]]), encoding="utf-8")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """KAI's chart."""
    return _official(tmp_path / "kai-scheduler", "kai-scheduler")


def _edit(folder: Path, old: str, new: str) -> Chart:
    for file in folder.rglob("*"):
        if file.is_file():
            file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    return read_chart(folder)


@pytest.mark.parametrize("name", ["kai-scheduler", "gpu-operator"])
def test_the_pinned_version_fits_and_nothing_changed(tmp_path: Path, name: str) -> None:
    report = check(read_chart(_official(tmp_path / name, name)), STACKS, FACTS)
    assert report.missing == ()
    assert report.absent == ()
    assert [change for change in report.changes if "is gone" in change or " was " in change] == []
    assert "It has what the stacks pass to it." in report.text()


def test_a_renamed_value_is_found(folder: Path) -> None:
    report = check(_edit(folder, "placementStrategy", "placement"), STACKS, FACTS)
    assert "scheduler.placementStrategy: no such value (stack jetson)" in report.missing
    assert "scheduler.placementStrategy is gone" in report.changes
    assert "scheduler.placement is new (string)" in report.changes
    assert not report.fits
    assert "Do not pin it" in report.text()


def test_a_value_of_another_type_is_found(folder: Path) -> None:
    values = yaml.safe_load((folder / "values.yaml").read_text(encoding="utf-8"))
    values["scheduler"]["placementStrategy"] = ["binpack"]
    (folder / "values.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    report = check(read_chart(folder), STACKS, FACTS)
    assert "scheduler.placementStrategy: array, where string is passed (stack jetson)" in report.missing
    assert "scheduler.placementStrategy was string, is array" in report.changes


def test_a_renamed_label_is_found(folder: Path) -> None:
    report = check(_edit(folder, "kai-resource-reservation", "kai-reservation"), STACKS, FACTS)
    assert report.absent == ("kai-resource-reservation",)


def test_an_archive_is_read_as_its_folder_is(folder: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "chart.tgz", "w:gz") as archive:
        archive.add(folder, "kai-scheduler")
    packed, unpacked = read_chart(tmp_path / "chart.tgz"), read_chart(folder)
    assert (packed.name, packed.version, packed.values) == (unpacked.name, unpacked.version, unpacked.values)
    assert check(packed, STACKS, FACTS) == check(unpacked, STACKS, FACTS)


def test_the_values_of_a_sub_chart_count_below_its_name(folder: Path) -> None:
    (folder / "charts" / "sub").mkdir(parents=True)
    (folder / "charts" / "sub" / "values.yaml").write_text("a: 1\nb: 2\n", encoding="utf-8")
    (folder / "values.yaml").write_text("sub: {b: 3}\n", encoding="utf-8")
    assert read_chart(folder).values == {"sub": {"a": 1, "b": 3}}


def test_another_chart_is_refused_with_those_that_are_used() -> None:
    with pytest.raises(OperationError, match="'nginx'; this program uses gpu-operator and kai-scheduler"):
        check(Chart("nginx", "1.0.0", {}, ""), STACKS, FACTS)


def test_what_is_no_chart_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="make update CHART=path"):
        read_chart(tmp_path / "nothing")
    with pytest.raises(OperationError, match=r"needs Chart\.yaml"):
        read_chart(tmp_path)
    (tmp_path / "file").write_text("text", encoding="utf-8")
    with pytest.raises(OperationError, match="neither a folder nor a chart archive"):
        read_chart(tmp_path / "file")
