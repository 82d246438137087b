"""`update` and `images`: what a chart takes, and what a stack pulls."""

from pathlib import Path
from typing import Annotated

import typer

from operations.charts import images as stack_images
from operations.charts import update as chart_update
from operations.charts.files import read_chart
from operations.charts.helm import Helm
from operations.charts.registry import Registries
from operations.errors import OperationError
from operations.new_files import check_writable, write_whole
from operations.options import Stack
from operations.stack_file import every_stack, read_settings, read_stack_file, settings_of
from operations.target import ROOT, own_project
from toolchain.registry import Crane


def update(chart: Annotated[Path, typer.Option(help="A newer chart's folder or archive.")]) -> None:
    """Check a newer chart against what the stacks pass to it; change nothing."""
    stacks = {}
    for name in every_stack(ROOT):
        file = ROOT / f"Pulumi.{name}.yaml"
        stacks[name] = read_settings(file)
        stacks[f"{name} with every option"] = settings_of(
            chart_update.with_every_option(read_stack_file(file)), file.name
        )
    facts = ROOT / "tests" / "data" / "charts"
    report = chart_update.check(read_chart(chart), stacks, facts, Helm.installed())
    typer.echo(report.text())
    if not report.fits:
        raise OperationError("The chart does not fit this program; what is missing stands above.")


def images(
    *,
    stack: Stack = "jetson",
    chart: Annotated[
        list[Path] | None, typer.Option(help="A chart's folder or archive, in place of what the stack says.")
    ] = None,
    lock: Annotated[Path | None, typer.Option(help="The lock file; by default images.STACK.lock.json.")] = None,
    ask: Annotated[bool, typer.Option("--digests/--no-digests", help="Ask the registries for digests.")] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what the lock file holds; its schema is docs/images.schema.json.")
    ] = False,
) -> None:
    """Print every image of the stack, and write them with their digests into a lock file."""
    settings = read_settings(ROOT / f"Pulumi.{stack}.yaml")
    if settings.hosts_alone:
        raise OperationError(
            f"Stack '{stack}' prepares hosts alone (installs: hosts), so no node pulls an image for it."
        )
    file = lock or ROOT / f"images.{stack}.lock.json"
    check_writable(file, option="--lock")
    all_images = stack_images.images(settings, chart or (), own_project(), Helm.installed())
    if ask:
        all_images = stack_images.with_digests(all_images, Registries(Crane.installed()).content)
    content = stack_images.lock(stack, all_images)
    try:
        write_whole(file, content)
    except OSError as error:
        raise OperationError(f"{file} can't be written: {error.strerror}. Choose another one with --lock.") from error
    typer.echo(content if as_json else stack_images.table(all_images), nl=not as_json)
