"""What several commands have: options, and how they ask at a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from operations.exit_status import ExitStatus
from operations.stacks import check_stack_name


@contextmanager
def asking() -> Iterator[None]:
    """A question at the terminal: Ctrl-C there ends the command as everywhere else."""
    try:
        yield
    except typer.Abort:
        # On the line of the question.
        typer.echo(err=True)
        raise typer.Exit(ExitStatus.INTERRUPTED) from None


def stack_name(name: str | None) -> str | None:
    """What was said, checked: commands make and remove folders of that name.

    Raises:
        OperationError: it is no stack name.
    """
    if name is not None:
        check_stack_name(name)
    return name


Stack = Annotated[
    str,
    typer.Option("--stack", callback=stack_name, help="The stack: its settings stand in Pulumi.<stack>.yaml."),
]
Context = Annotated[str | None, typer.Option("--context", help="A context of the kubeconfig, in place of the stack's.")]
SimulatorOnly = Annotated[
    bool, typer.Option("--simulator", help="On the simulator, whichever cluster KUBECONFIG or the settings name.")
]
