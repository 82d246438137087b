"""`kai-anywhere rollback`."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Annotated

import typer

from cluster.access.binding import bound_file
from cluster.access.client import Cluster
from cluster.errors import ClusterError
from operations import engine
from operations.errors import OperationError
from operations.exit_status import ExitStatus
from operations.options import Stack, asking
from operations.rollback.plan import Plan
from operations.rollback.planning import Choice, Planned, make_plan
from operations.rollback.reading import StackInCluster
from operations.rollback.steps import Rollback
from operations.status.words import count
from operations.target import Target, open_target
from toolchain.progress import say


def rollback(  # noqa: PLR0913 - every option of the command
    *,
    stack: Stack = "jetson",
    only_heal: Annotated[
        bool, typer.Option("--only-heal", help="Heal what a killed run left half done, and remove nothing else.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask: for scripts.")] = False,
    leave_pods: Annotated[
        bool, typer.Option("--leave-pods", help="Go on though pods use KAI; they are left as they are.")
    ] = False,
    remove_definitions: Annotated[
        bool,
        typer.Option("--remove-definitions", help="Remove the charts' CustomResourceDefinitions that have no object."),
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option(help="The UID of the namespace kube-system, where the stack does not remember its cluster."),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print the plan as JSON and change nothing; its schema is docs/rollback.schema.json."
        ),
    ] = False,
) -> None:
    """Undo what the stack made, in order and with checks, or heal what a killed run left; ask before anything changes.

    Shows first what it would do. Pods of yours are never deleted.
    """
    if as_json and yes:
        raise typer.BadParameter("--json only shows the plan; leave --yes out.")
    choice = Choice(only_heal, leave_pods, remove_definitions, cluster)
    with open_target(stack, start=False) as target, _connected(target, choice) as in_cluster:
        planned = make_plan(in_cluster, choice)
        plan = planned.plan
        typer.echo(plan.model_dump_json(indent=2) if as_json else plan.text())
        if as_json or dry_run or plan.empty or plan.blockers:
            raise typer.Exit(plan.status)
        _ask(plan, target, yes=yes)
        raise typer.Exit(_run(in_cluster, planned, choice))


@contextmanager
def _connected(target: Target, choice: Choice) -> Iterator[StackInCluster]:
    """The stack in its own cluster.

    Raises:
        OperationError: the cluster is another one, or can't be asked.
    """
    if target.settings.hosts_alone:
        raise OperationError(
            f"Stack '{target.stack}' prepares hosts alone (installs: hosts), so no cluster has anything of it. To give "
            f"the hosts back: kai-anywhere down --stack {target.stack}"
        )
    engine.check_context(target)
    engine.bind_cluster(target)
    remembered = engine.checkpoint(target)
    with closing(Cluster.connect(target.settings.cluster)) as connection:
        uid = connection.uid()
        if choice.cluster not in {None, uid}:
            raise OperationError(
                f"The cluster at {connection.server} (context '{connection.context}') is {uid}, not {choice.cluster}. "
                "Nothing was changed. Choose the right context."
            )
        yield StackInCluster(target, connection, remembered, uid)


def _ask(plan: Plan, target: Target, *, yes: bool) -> None:
    """Ask whoever sits there, as `up` does: on a simulator nobody.

    Raises:
        OperationError: nobody is there to ask, or the answer is no.
    """
    if yes or target.simulated:
        return
    if not _somebody_is_there():
        raise OperationError("Nothing was changed: there is nobody to ask. With --yes it is done without a question.")
    with asking():
        agreed = (
            typer.confirm("Heal?")
            if plan.only_heal
            else typer.prompt(f"Type the stack's name, {plan.stack}, to undo all of this", default="") == plan.stack
        )
    if not agreed:
        raise OperationError("Nothing was changed.")


def _somebody_is_there() -> bool:
    return sys.stdin.isatty()


def _run(stack: StackInCluster, planned: Planned, choice: Choice) -> int:
    work = Rollback(stack, say)
    try:
        work.take_over()
        work.heal(planned.half_done)
        if choice.only_heal:
            typer.echo("Healed. Next: pulumi up, or make up.")
            return ExitStatus.WELL
        work.remove_temporary()
        work.remove(planned.leftovers)
        work.destroy()
        work.remove(work.stack.beside_state())
        if choice.definitions:
            work.remove_definitions()
        after = make_plan(work.stack, choice).plan
    except (OperationError, ClusterError) as error:
        say(f"Stopped at: {work.step}\n{error}")
        _go_on(stack, work, choice)
        return ExitStatus.FAILED
    except KeyboardInterrupt:
        say(f"\nInterrupted at: {work.step}")
        _go_on(stack, work, choice)
        return ExitStatus.INTERRUPTED
    return _end(work, after, choice)


def _go_on(stack: StackInCluster, work: Rollback, choice: Choice) -> None:
    """What is done is done, and read anew by the next run: after `pulumi destroy`, the state forgot the cluster."""
    say(f"{count(len(work.done), 'change')} done, and not undone. To go on:")
    options = {
        "--only-heal": choice.only_heal,
        "--leave-pods": choice.leave_pods,
        "--remove-definitions": choice.definitions,
    }
    command = [
        "kai-anywhere",
        "rollback",
        "--stack",
        stack.target.stack,
        *(name for name, on in options.items() if on),
    ]
    say(f"  {shlex.join([*command, '--cluster', stack.uid])}")


def _end(work: Rollback, plan: Plan, choice: Choice) -> int:
    stack = plan.stack
    if work.left:
        typer.echo("Left, though it is the stack's:")
        for line in work.left:
            typer.echo(f"   {line}")
        _go_on(work.stack, work, choice)
        return ExitStatus.FAILED
    made = "is known to have made" if work.stack.doubtful_releases else "made"
    typer.echo(f"Everything that stack '{stack}' {made} is gone from the cluster at {plan.server}.")
    for line in plan.stays:
        typer.echo(f"Stays: {line.strip()}")
    typer.echo(
        "Not the stack's, and so left: labels that the GPU Operator and Node Feature Discovery wrote on nodes, and "
        "files of their pods there."
    )
    connection = bound_file(plan.cluster_uid)
    typer.echo(
        f"Next: make down STACK={stack} stops the simulator."
        if work.stack.target.simulated
        else f"Next: pulumi stack rm --preserve-config {stack}, and rm {connection} if no other stack is there."
    )
    return ExitStatus.WARNINGS if plan.unseen else ExitStatus.WELL
