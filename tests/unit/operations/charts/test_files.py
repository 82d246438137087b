"""A chart is read from its folder and from its archive, and what is none is refused."""

import shutil
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
    with pytest.raises(OperationError, match=r"There is no .*nothing\. Give a chart's folder or archive\."):
        read_chart(tmp_path / "nothing")
    with pytest.raises(OperationError, match=r"needs Chart\.yaml"):
        read_chart(tmp_path)
    (tmp_path / "file").write_text("text", encoding="utf-8")
    with pytest.raises(OperationError, match="neither a folder nor a chart archive"):
        read_chart(tmp_path / "file")


def test_a_chart_in_the_home_folder_is_found_whoever_expands_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copytree(FOLDER, tmp_path / "chart")
    assert read_chart(Path("~/chart")).path == tmp_path / "chart"


def test_a_folder_without_a_chart_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large").touch()
    monkeypatch.setattr(Path, "read_text", lambda *_args, **_kwargs: pytest.fail("it was read"))
    with pytest.raises(OperationError, match="Give a chart's folder or archive"):
        read_chart(tmp_path)


@pytest.mark.parametrize(
    ("values", "read"),
    [
        ("sub:\n  # b: 3\n", {"sub": {"b": 2}}),
        ("sub: none\n", {"sub": {"b": 2}}),
        ("until: 2026-13-45\n", {"until": "2026-13-45", "sub": {"b": 2}}),
        ("since: 2026-11-26\n", {"since": "2026-11-26", "sub": {"b": 2}}),
    ],
)
def test_values_are_read_as_helm_reads_them(tmp_path: Path, values: str, read: dict[str, object]) -> None:
    (tmp_path / "charts" / "sub").mkdir(parents=True)
    (tmp_path / "Chart.yaml").write_text("name: outer\nversion: 1.0.0\n", encoding="utf-8")
    (tmp_path / "charts" / "sub" / "values.yaml").write_text("b: 2\n", encoding="utf-8")
    (tmp_path / "values.yaml").write_text(values, encoding="utf-8")
    assert read_chart(tmp_path).values == read


@pytest.mark.parametrize("values", ["[1, 2]", "text", "a: " + "9" * 5000, "[" * 900 + "]" * 900, "{[1]: 2}"])
def test_values_that_no_chart_has_are_refused(tmp_path: Path, values: str) -> None:
    (tmp_path / "Chart.yaml").write_text("name: outer\nversion: 1.0.0\n", encoding="utf-8")
    (tmp_path / "values.yaml").write_text(values, encoding="utf-8")
    with pytest.raises(OperationError, match=r"is not a Helm chart: it needs Chart\.yaml"):
        read_chart(tmp_path)


@pytest.mark.parametrize("size", [50, 1000])
def test_an_archive_that_was_cut_off_on_its_way_is_refused(tmp_path: Path, size: int) -> None:
    archive = tmp_path / "chart.tgz"
    with tarfile.open(archive, "w:gz") as written:
        written.add(ROOT / "simulator" / "charts" / "gpu-operator", "gpu-operator")
    archive.write_bytes(archive.read_bytes()[:size])
    with pytest.raises(OperationError, match=r"chart\.tgz can't be read to its end: .*\. Fetch it anew\."):
        read_chart(archive)
