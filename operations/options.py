"""Options that several commands have."""

from typing import Annotated

import typer

from operations.stacks import check_stack_name


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
