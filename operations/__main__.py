"""The commands of people and of the Makefile.

`kai-anywhere` (bin/) runs them from any folder, `python -m operations` from the checkout.
"""

import errno
import io
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import simulator
import toolchain
from cluster.access.client import Cluster
from cluster.errors import ClusterError
from cluster.preflight.run import run_preflight
from config.stack import StackConfigError
from operations import engine, policy_check, sharing, summary
from operations.bundle.commands import bundle
from operations.charts import images as stack_images
from operations.charts import update as chart_update
from operations.charts.files import read_chart
from operations.charts.helm import Helm
from operations.charts.registry import Registries
from operations.docs_site import docs_site
from operations.doctor.commands import app as doctor_app
from operations.errors import OperationError
from operations.exit_status import ExitStatus
from operations.fleet.commands import app as fleet_app
from operations.init.commands import init
from operations.options import Stack
from operations.plan.commands import plan
from operations.privilege_probe import run as privilege_probe
from operations.privilege_probe.host import ask_host
from operations.pull_request.commands import SimulatorOnly
from operations.pull_request.commands import app as pull_request_app
from operations.release import release
from operations.rollback.commands import rollback
from operations.settings.commands import app as settings_app
from operations.stack_file import read_settings, read_stack_file, settings_of, stack_names
from operations.stacks import stacks
from operations.status.commands import status
from operations.target import ROOT, Target, folder, names_cluster, open_target
from operations.verify.commands import verify
from operations.version import version_text
from simulator.api import client
from toolchain.progress import say
from toolchain.registry import Crane

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(pull_request_app)
app.add_typer(settings_app)
app.add_typer(doctor_app, name="doctor")
app.add_typer(fleet_app)
app.command()(init)
app.command()(plan)
app.command()(status)
app.command()(verify)
app.command()(bundle)
app.command()(rollback)
app.command()(stacks)
app.command()(release)
app.command()(docs_site)

_SUMMARY_WIDTH = 110
_REFUSALS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM})


def _say_version(value: bool) -> None:
    if value:
        typer.echo(version_text())
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_say_version,
            help="Say the version, and where each program comes from.",
        ),
    ] = False,
) -> None:
    """Fractional GPU sharing with the KAI scheduler: install it, and look at it."""


@app.command()
def up(stack: Stack = "jetson") -> None:
    """Install the stack: on your cluster after you said yes, on the simulator at once."""
    with open_target(stack) as target:
        _up(target)


@app.command()
def repair(stack: Stack = "jetson") -> None:
    """Put back what was changed outside of Pulumi: compare with the stack's own cluster, then install again."""
    with open_target(stack) as target:
        _up(target, "--refresh")


@app.command()
def preview(stack: Stack = "jetson") -> None:
    """Show what `up` would change."""
    with open_target(stack) as target:
        engine.check_context(target)
        engine.select_stack(target)
        engine.bind_cluster(target)
        engine.pulumi(target, "preview", "--stack", stack)


@app.command()
def down(stack: Stack = "jetson") -> None:
    """Remove the stack; the simulator is stopped and keeps its data."""
    with open_target(stack, start=False) as target:
        engine.destroy(target)
        if target.simulated:
            simulator.down(folder(stack) / "cluster")
            typer.echo(f"The simulator of stack '{stack}' is stopped. `make reset STACK={stack}` forgets its data.")


@app.command()
def reset(stack: Stack = "jetson") -> None:
    """Stop the stack's simulator and forget it, with the stack's state."""
    # The folder itself stays, with the lock of commands that wait for one another.
    existed = any((folder(stack) / name).exists() for name in ("cluster", "project", "state"))
    simulator.reset(folder(stack) / "cluster")
    for name in ("project", "state"):
        shutil.rmtree(folder(stack) / name, ignore_errors=True)
    typer.echo(f"The simulator of stack '{stack}' {'is gone, with its data' if existed else 'was never started'}.")


@app.command()
def preflight(stack: Stack = "jetson") -> None:
    """Check the cluster against the stack; change nothing."""
    with open_target(stack) as target:
        engine.check_context(target)
        state = engine.deployed_state(target)
        result = run_preflight(target.settings, state, preview=False, stack=target.qualified_name)
        for warning in result.warnings:
            typer.echo(f"warning: {warning}")
        if target.settings.hosts_alone:
            typer.echo(f"Stack '{stack}' prepares hosts alone, so no cluster was asked. Only `up` asks the hosts.")
            return
        place = "simulator" if target.simulated else "cluster"
        typer.echo(f"The {place} is ready for stack '{stack}'. {result.checked}")
        for what in target.simulated:
            typer.echo(what)


@app.command()
def policy(
    *,
    stack: Annotated[
        list[str] | None, typer.Option("--stack", help="A stack; every stack of the checkout without it.")
    ] = None,
    pack: Annotated[Path, typer.Option(help="The pack's executable.")] = policy_check.PACK.executable,
    pack_config: Annotated[
        Path | None, typer.Option(help="For --policy-pack-config; by default made of the stack's settings.")
    ] = None,
    on_simulator: SimulatorOnly = False,
) -> None:
    """Run the policy pack on previews, and prove that it was in force."""
    chosen = replace(
        policy_check.PACK, executable=pack.absolute(), configuration=pack_config.absolute() if pack_config else None
    )
    results = []
    for name in stack or stack_names(ROOT):
        with open_target(name, simulator_only=on_simulator) as target:
            engine.check_context(target)
            engine.select_stack(target)
            results.append(policy_check.judged(target, chosen))
    typer.echo(policy_check.render(results))
    refused = [result.stack for result in results if any(finding.level == "mandatory" for finding in result.findings)]
    if refused:
        raise OperationError(f"The policy pack refuses {', '.join(refused)}: each finding says what to do.")
    typer.echo("Every policy refused its canary, and nothing in these stacks.")


@app.command()
def update(chart: Annotated[Path, typer.Option(help="A newer chart's folder or archive.")]) -> None:
    """Check a newer chart against what the stacks pass to it; change nothing."""
    stacks = {}
    for name in stack_names(ROOT):
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


@app.command()
def images(
    *,
    stack: Stack = "jetson",
    chart: Annotated[
        list[Path] | None, typer.Option(help="A chart's folder or archive, in place of what the stack says.")
    ] = None,
    lock: Annotated[Path | None, typer.Option(help="Where to write them; images.STACK.lock.json without it.")] = None,
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
    all_images = stack_images.images(settings, chart or (), ROOT, Helm.installed())
    if ask:
        all_images = stack_images.with_digests(all_images, Registries(Crane.installed()).content)
    content = stack_images.lock(stack, all_images)
    file = lock or ROOT / f"images.{stack}.lock.json"
    try:
        file.write_text(content, encoding="utf-8")
    except OSError as error:
        raise OperationError(f"{file} can't be written: {error.strerror}. Choose another one with --lock.") from error
    typer.echo(content if as_json else stack_images.table(all_images), nl=not as_json)


@app.command()
def probe_privilege(  # noqa: PLR0913 - every option of the command
    *,
    stack: Stack = "jetson",
    node: Annotated[str, typer.Option(help="The Jetson, as `kubectl get nodes` prints it.")],
    group: Annotated[
        list[int] | None,
        typer.Option(
            help="A group of the device files; by default those of reservation.supplemental_groups, else 44.", min=1
        ),
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="KAI's resource reservation, in place of what the stack says.")
    ] = None,
    hosts: Annotated[
        bool,
        typer.Option(
            "--hosts",
            help="Ask the Jetson too, over SSH, which toolkit, L4T, CDI and CSV files the answer holds for. Needs the "
            "stack's passphrase.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the answer as JSON; its schema is docs/probe-privilege.schema.json.")
    ] = False,
) -> None:
    """Find out how much of its Jetson KAI's reservation pod needs: pods on the node, one after the other."""
    settings = read_settings(ROOT / f"Pulumi.{stack}.yaml")
    privilege_probe.check_stack(settings, node)
    if not names_cluster(settings):
        raise OperationError(
            "No cluster is named, and the simulator's nodes run no pods. Give KUBECONFIG to probe a board."
        )
    chosen = image or privilege_probe.kai_image(settings)
    host_answers = ask_host(stack, settings, node) if hosts else {}
    cluster = Cluster.connect(settings.cluster)
    try:
        groups = privilege_probe.device_groups(settings, group or ())
        result = privilege_probe.Probe(cluster, settings, node, chosen, groups, say, host_answers).run()
    finally:
        cluster.close()
    typer.echo(result.json() if as_json else result.text())
    raise typer.Exit(result.status)


def _up(target: Target, *options: str) -> None:
    engine.up(target, *options)
    typer.echo()
    if target.settings.hosts_alone:
        typer.echo(summary.of_hosts(target.stack, engine.outputs(target)))
        return
    typer.echo(_summary(target))
    if target.runs_kai and target.settings.platform.jetsons:
        with client(Path(str(target.settings.cluster.kubeconfig))) as api:
            typer.echo(sharing.share(api, ROOT, width=_width()))


def _summary(target: Target) -> str:
    connection = Cluster.connect(target.settings.cluster)
    try:
        return summary.render(
            stack=target.stack,
            server=connection.server,
            version=connection.version().git,
            settings=target.settings,
            nodes=connection.nodes(),
            outputs=engine.outputs(target),
            simulated=target.simulated,
            runs_kai=target.runs_kai,
            kubeconfig=connection.kubeconfig,
            width=_width(),
        )
    finally:
        connection.close()


def _width() -> int:
    """Of a summary: a narrow terminal's own."""
    return min(_SUMMARY_WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else _SUMMARY_WIDTH


def main() -> None:
    """Run a command; a failure is a text on stderr, not a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        # As bin/kai-anywhere leaves it while modules are imported: an interrupt then ends the process, without words.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What others write into a cluster may have letters that the locale's encoding lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="kai-anywhere")
    except (
        OperationError,
        StackConfigError,
        ClusterError,
        simulator.SimulatorError,
        toolchain.ToolchainError,
    ) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(ExitStatus.COULD_NOT_RUN)
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise
        where = error.filename or "The output"
        sys.stderr.write(f"{where} can't be written or read: {error.strerror}. Make room, or give the right to it.\n")
        sys.exit(ExitStatus.COULD_NOT_RUN)
    except SystemExit as end:
        if end.code == ExitStatus.INTERRUPTED:
            say("Interrupted. The same command goes on from what is there.")
        raise


if __name__ == "__main__":
    main()
