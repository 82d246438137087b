"""`make bench`: every benchmark in one run, as JSON and as a page of Markdown with plots.

`python -m benchmarks.report [SECTION...]` measures some of them. `BENCH=quick` takes fewer rounds. What can't be
measured here is listed with the reason; the exit status is 1 where a goal is not met or a benchmark failed.
"""

import argparse
import datetime as dt
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import carriers, doctor, hosts, installation, machine, plots, policy, preview, status, webhook
from benchmarks.result import QUICK, Result, goal_in_words, show, tell
from testbed.stacks import ROOT

FOLDER = ROOT / "benchmarks" / "results"
SECTIONS: Mapping[str, tuple[str, Callable[[], Iterable[Result]]]] = {
    "preview": ("Preview and no-op up", preview.results),
    "installation": ("Up from nothing", installation.results),
    "policy": ("The policy pack", policy.results),
    "carriers": ("A pod's creation by carrier", carriers.results),
    "webhook": ("The admission server", webhook.results),
    "status": ("status on many nodes", status.results),
    "doctor": ("doctor on many nodes", doctor.results),
    "hosts": ("Many hosts", hosts.results),
}


@dataclass(frozen=True)
class Report:
    """A whole run.

    Attributes:
        machine: what measured, by name.
        sections: results by the section's title.
        not_measured: reasons by the section's title.
        warning: of a machine that had other work.
        quick: whether fewer rounds were taken.
    """

    machine: Mapping[str, str]
    sections: Mapping[str, list[Result]]
    not_measured: Mapping[str, str] = field(default_factory=dict)
    warning: str | None = None
    quick: bool = False

    def document(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "machine": dict(self.machine),
            "warning": self.warning,
            "quick": self.quick,
            "sections": {name: [result.document() for result in results] for name, results in self.sections.items()},
            "not_measured": dict(self.not_measured),
        }

    def results(self) -> list[Result]:
        """Of all sections."""
        return [result for results in self.sections.values() for result in results]

    def page(self) -> str:
        """The same for people."""
        lines = ["# Benchmarks", ""]
        if self.quick:
            lines += ["Quick: few rounds. Take these numbers for a look only.", ""]
        if self.warning:
            lines += [f"**{self.warning}**", ""]
        lines += [*machine.rows(self.machine), ""]
        if any(result.goal for result in self.results()):
            lines += ["![Each result as a share of its goal](goals.svg)", ""]
        for name, results in self.sections.items():
            lines += [f"## {name}", "", "| | Median | Least to most | Rounds | Goal | Of |", "| --- " * 6 + "|"]
            lines += [_row(result) for result in results]
            lines.append("")
        if any(len(result.series) > 1 for result in self.results()):
            lines += ["![Processor seconds by number of nodes](growth.svg)", ""]
        if self.not_measured:
            lines += ["## Not measured", ""]
            lines += [f"- {name}: {reason}" for name, reason in self.not_measured.items()]
            lines.append("")
        return "\n".join(lines)

    def write(self, folder: Path) -> list[Path]:
        """Write document, page and plots; what was written."""
        folder.mkdir(parents=True, exist_ok=True)
        files = {"results.json": json.dumps(self.document(), indent=1) + "\n", "report.md": self.page()}
        if any(result.goal for result in self.results()):
            files["goals.svg"] = plots.goals(self.results())
        if drawn := plots.growth(self.results()):
            files["growth.svg"] = drawn
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        return [folder / name for name in files]


def _row(result: Result) -> str:
    least, most = result.spread
    goal = goal_in_words(result).removeprefix("goal ")
    of = ", ".join(f"{name} {value}" for name, value in result.parts.items())
    cells = (
        result.name,
        f"{show(result.median)} {result.unit}",
        f"{show(least)} to {show(most)}",
        str(len(result.values)),
        goal,
        of,
    )
    return f"| {' | '.join(cells)} |"


def take(sections: Mapping[str, tuple[str, Callable[[], Iterable[Result]]]]) -> Report:
    """Measure sections one after the other; one that fails leaves the others."""
    described = machine.describe()
    before = os.getloadavg()[0]
    measured: dict[str, list[Result]] = {}
    missing: dict[str, str] = {}
    for title, results in sections.values():
        sys.stdout.write(f"\n{title}\n")
        try:
            measured[title] = tell(results())
        except SystemExit as error:
            missing[title] = str(error.code)
        except Exception as error:  # noqa: BLE001 - an hour of the other sections is not lost to one
            traceback.print_exc()
            missing[title] = f"{type(error).__name__}: {error}"
    described["Measured"] = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    warning = machine.warning(before, os.getloadavg()[0], os.cpu_count() or 1)
    return Report(described, measured, missing, warning, QUICK)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description="Measure, and write a report.")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; all without one")
    parser.add_argument("--out", type=Path, default=FOLDER, help="the report's folder (default: benchmarks/results)")
    chosen = parser.parse_args(arguments)
    if unknown := sorted(set(chosen.sections) - set(SECTIONS)):
        parser.error(f"{', '.join(unknown)}: unknown; there are {', '.join(SECTIONS)}")
    report = take({name: SECTIONS[name] for name in chosen.sections or SECTIONS})
    if report.warning:
        sys.stdout.write(f"\n{report.warning}\n")
    for name, reason in report.not_measured.items():
        sys.stdout.write(f"Not measured: {name}: {reason}\n")
    for path in report.write(chosen.out):
        sys.stdout.write(f"{path}\n")
    missed = [result.name for result in report.results() if result.met is False]
    return 1 if missed or report.not_measured else 0


if __name__ == "__main__":
    sys.exit(main())
