"""A chart is read from its folder and from its archive, and what is none is refused."""

import tarfile
from pathlib import Path

import pytest

from operations.charts.files import read_chart
from operations.errors import OperationError
from testbed.stacks import ROOT

FOLDER = ROOT / "simulator" / "charts" / "kai-scheduler"


def test_an_archive_is_read_as_its_folder_is(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "chart.tgz", "w:gz") as archive:
        archive.add(FOLDER, "kai-scheduler")
    packed, unpacked = read_chart(tmp_path / "chart.tgz"), read_chart(FOLDER)
    assert (packed.name, packed.version, packed.values) == (unpacked.name, unpacked.version, unpacked.values)
    assert sorted(packed.text) == sorted(unpacked.text)


def test_the_values_of_a_sub_chart_count_below_its_name(tmp_path: Path) -> None:
    (tmp_path / "charts" / "sub").mkdir(parents=True)
    (tmp_path / "Chart.yaml").write_text("name: outer\nversion: 1.0.0\n", encoding="utf-8")
    (tmp_path / "charts" / "sub" / "values.yaml").write_text("a: 1\nb: 2\n", encoding="utf-8")
    (tmp_path / "values.yaml").write_text("sub: {b: 3}\n", encoding="utf-8")
    assert read_chart(tmp_path).values == {"sub": {"a": 1, "b": 3}}


def test_what_is_no_chart_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="make update CHART=path"):
        read_chart(tmp_path / "nothing")
    with pytest.raises(OperationError, match=r"needs Chart\.yaml"):
        read_chart(tmp_path)
    (tmp_path / "file").write_text("text", encoding="utf-8")
    with pytest.raises(OperationError, match="neither a folder nor a chart archive"):
        read_chart(tmp_path / "file")


@pytest.mark.parametrize("size", [50, 1000])
def test_an_archive_that_was_cut_off_on_its_way_is_refused(tmp_path: Path, size: int) -> None:
    archive = tmp_path / "chart.tgz"
    with tarfile.open(archive, "w:gz") as written:
        written.add(ROOT / "simulator" / "charts" / "gpu-operator", "gpu-operator")
    archive.write_bytes(archive.read_bytes()[:size])
    with pytest.raises(OperationError, match=r"chart\.tgz can't be read to its end: .*\. Fetch it anew\."):
        read_chart(archive)
