"""`up`, `preview`, `preflight`, `repair`, `down` and `reset`."""

import shutil
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import typer

import simulator
from cluster.access.client import Cluster
from cluster.errors import ClusterError
from cluster.preflight.run import run_preflight
from operations import engine
from operations.lifecycle import sharing, summary
from operations.options import Stack, asking
from operations.stack_file import read_stack_file
from operations.target import ROOT, Target, alone, folder, open_target
from simulator.api import client

_SUMMARY_WIDTH = 110


def up(stack: Stack = "jetson") -> None:
    """Install the stack: on your cluster after you said yes, on the simulator at once."""
    with open_target(stack) as target:
        engine.up(target)
        _tell(target)


def repair(stack: Stack = "jetson") -> None:
    """Put back what was changed outside of Pulumi: compare with the stack's own cluster, then install again."""
    with open_target(stack) as target:
        engine.repair(target)
        _tell(target)


def preview(stack: Stack = "jetson") -> None:
    """Show what `up` would change."""
    with open_target(stack) as target:
        engine.check_context(target)
        engine.select_stack(target)
        engine.bind_cluster(target)
        engine.pulumi(target, "preview", "--stack", stack)


def down(stack: Stack = "jetson") -> None:
    """Remove the stack; the simulator is stopped and keeps its data."""
    with open_target(stack, start=False) as target:
        asks = _asks(target)
        engine.destroy(_with_passphrase(target) if asks else target, ask=_destroys if asks else None)
        if target.simulated:
            simulator.down(folder(stack) / "cluster")
            typer.echo(f"The simulator of stack '{stack}' is stopped. `make reset STACK={stack}` forgets its data.")


def reset(stack: Stack = "jetson") -> None:
    """Stop the stack's simulator and forget it, with the stack's state."""
    existed = any((folder(stack) / name).exists() for name in ("cluster", "project", "state"))
    if existed:
        # The folder itself stays, with the lock of commands that wait for one another.
        with alone(stack) as place:
            simulator.reset(place / "cluster")
            for name in ("project", "state"):
                shutil.rmtree(place / name, ignore_errors=True)
    typer.echo(f"The simulator of stack '{stack}' {'is gone, with its data' if existed else 'was never started'}.")


def preflight(stack: Stack = "jetson") -> None:
    """Check the cluster against the stack; change nothing."""
    with open_target(stack) as target:
        engine.check_context(target)
        state = engine.deployed_state(target)
        result = run_preflight(target.settings, state, preview=False, stack=target.qualified_name, folder=target.folder)
        for warning in result.warnings:
            typer.echo(f"warning: {warning}")
        if target.settings.hosts_alone:
            typer.echo(f"Stack '{stack}' prepares hosts alone, so no cluster was asked. Only `up` asks the hosts.")
            return
        place = "simulator" if target.simulated else "cluster"
        typer.echo(f"The {place} is ready for stack '{stack}'. {result.checked}")
        for what in target.simulated:
            typer.echo(what)


def _asks(target: Target) -> bool:
    """Whether somebody sits there who has not answered yet."""
    return sys.stdin.isatty() and sys.stdout.isatty() and not engine.skips_confirmations(target)


def _with_passphrase(target: Target) -> Target:
    """The stack with its passphrase, for which pulumi would ask before the preview and could not ask after a yes."""
    has_passphrase = (
        target.simulated or {"PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"} & target.environment.keys()
    )
    if has_passphrase or "encryptionsalt" not in read_stack_file(target.project / f"Pulumi.{target.stack}.yaml"):
        return target
    with asking():
        # One that is empty counts too.
        passphrase = typer.prompt("Passphrase of the stack's secrets", default="", show_default=False, hide_input=True)
    return replace(target, environment=dict(target.environment) | {"PULUMI_CONFIG_PASSPHRASE": passphrase})


def _destroys() -> bool:
    with asking():
        return typer.confirm("Destroy all of this?")


def _tell(target: Target) -> None:
    typer.echo()
    if target.settings.hosts_alone:
        typer.echo(summary.of_hosts(target.stack, engine.checkpoint(target).outputs))
        return
    try:
        typer.echo(_summary(target))
    except ClusterError as error:
        # The API server of a small board may be busy with what has just come.
        typer.echo(f"Stack '{target.stack}' is up. What runs where can't be told now: {error}")
    if target.runs_kai and target.settings.platform.jetsons:
        with client(Path(str(target.settings.cluster.kubeconfig))) as api:
            typer.echo(sharing.share(api, ROOT, width=_width()))


def _summary(target: Target) -> str:
    with closing(Cluster.connect(target.settings.cluster)) as connection:
        return summary.render(
            stack=target.stack,
            server=connection.server,
            version=connection.version().git,
            settings=target.settings,
            nodes=connection.nodes(),
            outputs=engine.checkpoint(target).outputs,
            simulated=target.simulated,
            runs_kai=target.runs_kai,
            kubeconfig=connection.kubeconfig,
            context="" if connection.chosen.is_current else connection.context,
            width=_width(),
        )


def _width() -> int:
    """Of a summary: a narrow terminal's own."""
    return min(_SUMMARY_WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else _SUMMARY_WIDTH
