"""Options that several commands have."""

from typing import Annotated

import typer

Stack = Annotated[str, typer.Option("--stack", help="The stack: its settings stand in Pulumi.<stack>.yaml.")]
Context = Annotated[str | None, typer.Option("--context", help="A context of the kubeconfig, in place of the stack's.")]
