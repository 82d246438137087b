"""`kai-anywhere fleet`: many clusters, one stack each."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
import yaml
from pydantic import BaseModel, ValidationError
from rich.console import Console

from operations import engine
from operations.errors import OperationError
from operations.exit_status import ExitStatus
from operations.fleet import operator as operator_objects
from operations.fleet import table
from operations.fleet.file import read_fleet
from operations.fleet.order import Outcome, Step, judge, step_called, steps
from operations.fleet.report import Report
from operations.fleet.states import read_sites
from operations.stack_file import project_of
from operations.stacks import COMMIT, FLEET_FILE, check_stack_name, listed
from operations.target import ROOT, open_target

app = typer.Typer(name="fleet", no_args_is_help=True, help="Many clusters, one stack each: order, roll-out, states.")

Folder = Annotated[
    Path,
    typer.Option(
        "--folder", help="The folder with the files Pulumi.<site>.yaml and fleet.yaml.", show_default="this checkout"
    ),
]
_MOST_WAVES = 6
"""The canary and five waves: the jobs of rollout.yml."""
_MOST_SITES = 256
"""The most jobs that GitHub makes of one matrix."""
_RESULT_BYTES = 10_000
_WIDTH = 160
"""Where the output is no terminal."""


class _Result(BaseModel, extra="forbid", frozen=True, strict=True):
    """What the update of a site leaves for the gate of its wave."""

    site: str
    outcome: str


@app.command()
def plan(folder: Folder = ROOT) -> None:
    """Print the order in which the sites are updated."""
    typer.echo(table.waves(_steps(folder)))


@app.command()
def matrix(folder: Folder = ROOT) -> None:
    """Print the waves as JSON, for the jobs of GitHub Actions."""
    every = _steps(folder)
    if len(every) > _MOST_WAVES:
        raise OperationError(
            f"{FLEET_FILE} has {len(every) - 1} waves; the workflow has {_MOST_WAVES - 1} after the canary. Put some "
            "of them together."
        )
    for step in every:
        if len(step.sites) > _MOST_SITES:
            raise OperationError(
                f"{FLEET_FILE}: wave '{step.name}' has {len(step.sites)} sites; GitHub runs at most {_MOST_SITES} jobs "
                "of one matrix. Split it."
            )
    typer.echo(json.dumps([asdict(step) for step in every]))


@app.command()
def update(
    site: Annotated[str, typer.Argument(help="The site: its settings stand in Pulumi.<site>.yaml.")],
    out: Annotated[Path, typer.Option("--out", help="The folder that gets the result.")] = Path("rollout"),
) -> None:
    """Update one site without asking, and leave the result for the gate."""
    check_stack_name(site)
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"{site}.json"
    file.write_text(_Result(site=site, outcome=Outcome.FAILED).model_dump_json(), encoding="utf-8")
    # In a job whose KUBECONFIG is missing, the gate would count a new simulator as the site.
    with open_target(site, start=False) as target:
        engine.check_protection(target)
        engine.up(target, "--yes", "--skip-preview", "--non-interactive")
    file.write_text(_Result(site=site, outcome=Outcome.UPDATED).model_dump_json(), encoding="utf-8")
    typer.echo(f"Site '{site}' is updated.")


@app.command()
def gate(
    wave: Annotated[str, typer.Option(help="The wave's name; that of the first is 'canary'.")],
    results: Annotated[Path, typer.Option(help="The folder with what `fleet update` left.")],
    folder: Folder = ROOT,
) -> None:
    """Fail unless a wave's results let the next one begin."""
    step = step_called(_steps(folder), wave)
    verdict = judge(step, _outcomes(results))
    text = table.verdict(verdict)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8") as page:
            page.write(f"```text\n{text}\n```\n")
    typer.echo(text)
    if not verdict.holds:
        raise typer.Exit(ExitStatus.FAILED)


@app.command(name="operator")
def operator_command(
    commit: Annotated[str, typer.Option(help="The repository's commit that the sites get.")],
    folder: Folder = ROOT,
) -> None:
    """Print the objects with which the Pulumi Kubernetes Operator updates the sites, wave by wave."""
    if not COMMIT.fullmatch(commit):
        raise OperationError(f"{commit!r} is no whole commit: git rev-parse HEAD prints one.")
    operator = read_fleet(folder).operator
    if operator is None:
        raise OperationError(f"{FLEET_FILE} has no section `operator`: docs/fleets.md shows one.")
    made = operator_objects.objects(operator, project_of(folder), _steps(folder), commit)
    text = yaml.safe_dump_all(made, sort_keys=False, explicit_start=True, width=120)
    typer.echo(operator_objects.how_to_apply(operator) + text, nl=False)


@app.command()
def status(
    *,
    site: Annotated[list[str] | None, typer.Argument(help="Sites; by default every one of the folder.")] = None,
    folder: Folder = ROOT,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print it as JSON; its schema is docs/fleet.schema.json.")
    ] = False,
) -> None:
    """Show what the states of all sites say, in one table. Asks no cluster, and changes nothing."""
    names = listed(folder)
    if unknown := sorted(set(site or ()) - set(names)):
        raise OperationError(f"There is no site {', '.join(unknown)}. There are: {', '.join(names)}.")
    waves = {name: step.name for step in _steps(folder) for name in step.sites} if _has_fleet(folder) else {}
    report = Report(sites=read_sites(sorted(set(site or names)), folder, waves))
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH).print(table.states(report))
    for reason in table.reasons(report):
        typer.echo(f"warning: {reason}", err=True)
    sys.stdout.flush()
    if any(reported.problems for reported in report.sites):
        raise typer.Exit(ExitStatus.WARNINGS)


def _has_fleet(folder: Path) -> bool:
    return (folder / FLEET_FILE).exists()


def _steps(folder: Path) -> tuple[Step, ...]:
    return steps(read_fleet(folder), listed(folder))


def _outcomes(results: Path) -> Mapping[str, Outcome]:
    """What the jobs left, by site; what can't be read is as if nothing was heard of the site."""
    outcomes: dict[str, Outcome] = {}
    for file in sorted(results.rglob("*.json")) if results.is_dir() else ():
        try:
            with file.open("rb") as content:
                result = _Result.model_validate_json(content.read(_RESULT_BYTES))
            outcomes[result.site] = Outcome(result.outcome)
        except (ValidationError, ValueError, OSError):
            typer.echo(f"warning: {file.name} is no result of a site.", err=True)
    return outcomes
