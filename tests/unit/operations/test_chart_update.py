"""`make update`: a newer chart is checked before it is pinned."""

import tarfile
from pathlib import Path

import pytest
import yaml

from operations.chart_update import Chart, check, read_chart
from operations.errors import OperationError
from testbed.stacks import jetson, parse, x86
from tests.support.charts import FACTS, official_chart

STACKS = {"jetson": parse(jetson()), "x86": parse(x86())}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """KAI's chart."""
    return official_chart(tmp_path / "kai-scheduler", "kai-scheduler")


def _edit(folder: Path, old: str, new: str) -> Chart:
    for file in folder.rglob("*"):
        if file.is_file():
            file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    return read_chart(folder)


@pytest.mark.parametrize("name", ["kai-scheduler", "gpu-operator"])
def test_the_pinned_version_fits_and_nothing_changed(tmp_path: Path, name: str) -> None:
    report = check(read_chart(official_chart(tmp_path / name, name)), STACKS, FACTS)
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
