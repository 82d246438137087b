"""`policy`: the pack on previews of stacks."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from operations import engine, policy_check
from operations.errors import OperationError
from operations.options import SimulatorOnly
from operations.stack_file import every_stack
from operations.target import ROOT, open_target


def policy(
    *,
    stack: Annotated[
        list[str] | None, typer.Option("--stack", help="A stack, repeatable; by default every stack of the checkout.")
    ] = None,
    pack: Annotated[
        Path, typer.Option(help="The pack's executable.", show_default="policy/run of this checkout")
    ] = policy_check.PACK.executable,
    pack_config: Annotated[
        Path | None, typer.Option(help="The pack's configuration; by default made from the stack's settings.")
    ] = None,
    on_simulator: SimulatorOnly = False,
) -> None:
    """Run the policy pack on previews, and prove that it was in force."""
    chosen = replace(
        policy_check.PACK, executable=pack.absolute(), configuration=pack_config.absolute() if pack_config else None
    )
    results = []
    for name in stack or every_stack(ROOT):
        with open_target(name, simulator_only=on_simulator) as target:
            engine.check_context(target)
            # A check makes no stack in a person's own backend.
            if target.simulated:
                engine.select_stack(target)
            results.append(policy_check.judged(target, chosen))
    typer.echo(policy_check.render(results))
    refused = [result.stack for result in results if any(finding.level == "mandatory" for finding in result.findings)]
    if refused:
        raise OperationError(f"The policy pack refuses {', '.join(refused)}: each finding says what to do.")
    typer.echo("Every policy refused its canary, and nothing in these stacks.")
