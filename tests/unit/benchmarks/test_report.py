"""What `make bench` says of numbers: medians, goals, the machine, plots, and what was not measured."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks import machine, plots, report
from benchmarks.report import Report
from benchmarks.result import Result, of_pairs

_FAST = Result("Fast <thing>", "x", (1.0, 3.0, 1.1), goal=1.2, parts={"this": "1.10 s", "that": "1.00 s"})
_SLOW = Result("Slow thing", "ms", (5.0,), goal=2.0)
_MANY = Result("Throughput", "x", (20.0, 30.0), goal=10.0, at_least=True)
_GROWTH = Result("doctor, growth", "exponent", (0.9,), goal=1.1, series=((100, 0.5), (1000, 4.0), (5000, 20.0)))
_PLAIN = Result("Only looked at", "s", (0.0123, 0.5, 1234.0))
_REPORT = Report({"Cores": "2"}, {"Times": [_FAST, _SLOW, _PLAIN], "Sizes": [_MANY, _GROWTH]}, {"Hosts": "no sshd"})


def test_the_median_counts_and_the_spread_is_told() -> None:
    assert _FAST.median == 1.1
    assert _FAST.spread == (1.0, 3.0)
    assert _FAST.line() == (
        "Fast <thing>: 1.10 x (goal at most 1.2, met); 1.00 to 3.00 in 3 rounds; this 1.10 s; that 1.00 s"
    )
    assert _SLOW.line() == "Slow thing: 5.00 ms (goal at most 2, not met); one round"


@pytest.mark.parametrize(
    ("result", "met"), [(_FAST, True), (_SLOW, False), (_MANY, True), (_PLAIN, None), (_GROWTH, True)]
)
def test_a_goal_is_met_from_its_own_side(result: Result, met: bool | None) -> None:
    assert result.met is met


def test_a_ratio_is_taken_pair_by_pair_so_that_a_machine_that_slows_down_does_not_change_it() -> None:
    steady = of_pairs("r", [(2.0, 1.0), (4.0, 2.0), (20.0, 10.0)], ("a", "b"))
    assert steady.values == (2.0, 2.0, 2.0)
    assert steady.parts == {"a": "4.00 s", "b": "2.00 s"}


def test_the_document_has_every_number() -> None:
    document = json.loads(json.dumps(_REPORT.document()))
    assert document["machine"] == {"Cores": "2"}
    assert document["not_measured"] == {"Hosts": "no sshd"}
    [fast, slow, plain] = document["sections"]["Times"]
    assert fast["values"] == [1.0, 3.0, 1.1]
    assert (fast["median"], fast["least"], fast["most"], fast["goal"], fast["met"]) == (1.1, 1.0, 3.0, 1.2, True)
    assert (slow["met"], plain["met"]) == (False, None)
    assert document["sections"]["Sizes"][1]["series"] == [[100, 0.5], [1000, 4.0], [5000, 20.0]]


def test_the_page_has_a_row_per_result_and_says_what_was_not_measured() -> None:
    page = _REPORT.page()
    assert "| Fast <thing> | 1.10 x | 1.00 to 3.00 | 3 | at most 1.2, met | this 1.10 s, that 1.00 s |" in page
    assert "| Slow thing | 5.00 ms | 5.00 to 5.00 | 1 | at most 2, not met |  |" in page
    assert "| Only looked at | 0.50 s | 0.01 to 1234 | 3 |  |  |" in page
    assert "- Hosts: no sshd" in page
    assert "(goals.svg)" in page
    assert "(growth.svg)" in page
    assert "Quick" not in page


def test_the_plot_of_growth_has_round_marks_around_all_that_was_measured() -> None:
    drawn = plots.growth([_GROWTH])

    assert re.findall(r">([\d.]+) s<", drawn) == ["0.5", "1", "2", "5", "10", "20"]
    assert ">doctor<" in drawn


def test_a_report_without_goals_has_no_plots(tmp_path: Path) -> None:
    written = Report({}, {"Times": [_PLAIN]}).write(tmp_path)
    assert [path.name for path in written] == ["results.json", "report.md"]
    assert ".svg" not in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_plots_are_whole_and_fit_light_and_dark_pages(tmp_path: Path) -> None:
    written = {path.name: path for path in _REPORT.write(tmp_path)}
    assert set(written) == {"results.json", "report.md", "goals.svg", "growth.svg"}
    for name in ("goals.svg", "growth.svg"):
        text = written[name].read_text(encoding="utf-8")
        assert ET.fromstring(text).tag.endswith("svg")  # noqa: S314 - our own
        assert "prefers-color-scheme:dark" in text
    goals = written["goals.svg"].read_text(encoding="utf-8")
    assert goals.count('class="good"') == 3
    assert goals.count('class="bad"') == 1
    assert "Fast &lt;thing&gt;" in goals
    assert "Only looked at" not in goals


def test_where_more_is_better_the_bar_is_short_too() -> None:
    drawn = plots.goals([_MANY, _SLOW])
    widths = [float(rect.get("width", "0")) for rect in ET.fromstring(drawn).iter() if "rect" in rect.tag]  # noqa: S314
    # 10 over a median of 25, and 5 over 2.
    assert widths[0] / widths[1] == pytest.approx(0.4 / 2.5, rel=0.01)


def test_a_section_that_fails_leaves_the_others_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> Iterator[Result]:
        yield _FAST
        raise RuntimeError("out of order")

    def needs_something() -> Iterator[Result]:
        sys.exit("This needs a server.")
        yield _FAST

    taken = report.take(
        {"a": ("First", fails), "b": ("Second", needs_something), "c": ("Third", lambda: iter([_SLOW]))}
    )
    assert taken.sections == {"Third": [_SLOW]}
    assert taken.not_measured == {"First": "RuntimeError: out of order", "Second": "This needs a server."}
    assert _SLOW.line() in capsys.readouterr().out
    assert {"Processor", "Cores", "Memory", "Python", "Pulumi", "Kubernetes", "Load before"} <= taken.machine.keys()


def test_the_command_measures_the_sections_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "SECTIONS", {"one": ("One", lambda: [_FAST]), "two": ("Two", lambda: [_SLOW])})
    assert report.main(["--out", str(tmp_path), "one"]) == 0
    assert list(json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["sections"]) == ["One"]
    assert report.main(["--out", str(tmp_path)]) == 1, "a goal is not met"
    with pytest.raises(SystemExit) as stopped:
        report.main(["three"])
    assert stopped.value.code == 2


def test_a_busy_machine_is_told_and_an_idle_one_is_not() -> None:
    assert machine.warning(0.2, 2.0, cores=2) is None
    warning = machine.warning(9.0, 8.0, cores=2)
    assert warning is not None
    assert "load was 9.0 on 2 cores" in warning
    assert warning in Report({}, {}, warning=warning).page()


def test_the_processor_is_named_where_the_system_does(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Thing 3000\nmodel name\t: Thing 3000\n", "utf-8")
    assert machine.processor(tmp_path / "cpuinfo") == "Thing 3000"
    assert machine.processor(tmp_path / "none")


def test_the_policy_pack_is_really_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The smallest section, for real: it needs neither cluster nor engine."""
    monkeypatch.setattr("benchmarks.policy.RESOURCES", 12)
    report.main(["policy", "--out", str(tmp_path)])
    sections = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["sections"]
    [results] = sections.values()
    assert [result["unit"] for result in results] == ["ms", "ms"]
    assert all(result["median"] > 0 for result in results)
