"""The command line: `python -m simulator up|status|down|reset`."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import simulator
from simulator import DEFAULT_FOLDER, NodeKind, SimulatorError, Status, programs
from simulator.layout import Layout
from simulator.operands import loop
from simulator.pods import images
from simulator.pods import loop as pod_loop
from toolchain import ToolchainError

app = typer.Typer(
    help="A real control plane with simulated nodes, for machines with no cluster and no GPU.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
Folder = Annotated[Path, typer.Option(help="Where all data of the simulator lies.")]


@app.command()
def up(
    folder: Folder = DEFAULT_FOLDER,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of the API server (default: a free one, kept).")
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=KIND", help=f"A further node, repeatable; kinds: {', '.join(NodeKind)}."),
    ] = None,
    kai_programs: Annotated[
        str | None,
        typer.Option(help="Run KAI's programs: a folder of them, or `images` (default: as the last time)."),
    ] = None,
) -> None:
    """Start the simulator, or start again what died of it."""
    plane = simulator.up(folder, port=port, nodes=dict(map(_parse_node, node or ())), kai_programs=kai_programs)
    typer.echo(
        f"Kubernetes {plane.version} is ready on {plane.server}\n\n"
        f"{simulator.simulated(simulator.status(folder).kai_programs)}\n\n"
        f"Use it with: export KUBECONFIG={shlex.quote(str(plane.kubeconfig))}"
    )


@app.command()
def status(folder: Folder = DEFAULT_FOLDER) -> None:
    """Show what runs; exits 1 where not everything does."""
    state = simulator.status(folder)
    _show(state)
    if not state.running:
        raise typer.Exit(1)


@app.command()
def down(folder: Folder = DEFAULT_FOLDER) -> None:
    """Stop the simulator and keep its data."""
    simulator.down(folder)
    typer.echo(f"The simulator in {folder} is stopped; its data is kept.")


@app.command()
def reset(folder: Folder = DEFAULT_FOLDER) -> None:
    """Stop the simulator and delete its data."""
    simulator.reset(folder)
    typer.echo(f"The simulator in {folder} is gone.")


@app.command(hidden=True)
def operands(kubeconfig: Annotated[Path, typer.Option()], *, kai: Annotated[bool, typer.Option()] = True) -> None:
    """Play the operators' pods until stopped; `up` starts this."""
    loop.run(kubeconfig, with_kai=kai)


@app.command(programs.PODS, hidden=True)
def pods(
    folder: Annotated[Path, typer.Option()],
    server: Annotated[str, typer.Option()],
    kai_programs: Annotated[str, typer.Option()],
    port: Annotated[int, typer.Option()],
) -> None:
    """Run KAI's pods as processes until stopped; `up` starts this where it has the programs."""
    pod_loop.run(Layout.of(folder), server, images.programs_of(kai_programs), port)


def _parse_node(text: str) -> tuple[str, NodeKind]:
    name, _, kind = text.partition("=")
    if kind not in set(NodeKind):
        raise SimulatorError(
            f"--node {text} does not say which node to add. Write NAME=KIND, where KIND is one of "
            f"{', '.join(NodeKind)}; for example --node {name or 'jetson-2'}=jetson"
        )
    return name, NodeKind(kind)


def _show(state: Status) -> None:
    processes = Table("Process", "State", "PID", "Port", title=f"Simulator in {state.folder}", title_justify="left")
    for process in state.processes:
        processes.add_row(
            process.name, "alive" if process.alive else "not running", str(process.pid or ""), str(process.port or "")
        )
    nodes = Table("Node", "Kind", "State", "nvidia.com/gpu", title="Nodes", title_justify="left")
    for node in state.nodes:
        nodes.add_row(node.name, node.kind or "not ours", "Ready" if node.ready else "not Ready", str(node.gpus))
    console = Console(soft_wrap=True, markup=False, emoji=False)
    console.print(processes)
    if state.version is None:
        console.print("No API server answers. Start it with: python -m simulator up")
        return
    console.print(nodes)
    console.print(
        f"Kubernetes {state.version}, kubeconfig {state.kubeconfig}\n\n{simulator.simulated(state.kai_programs)}"
    )


def main() -> None:
    """Run a command; what a person has to act on is printed without a traceback."""
    try:
        app()
    except (SimulatorError, ToolchainError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
