"""`kai-anywhere doctor` and `kai-anywhere doctor pod NAME`."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer
from rich.console import Console

import toolchain
from cluster.access.kubeconfig import for_its_cluster
from cluster.access.lists import Unseen
from cluster.errors import ClusterUnreachableError
from config.stack import StackSettings
from operations.doctor import pod as one_pod
from operations.doctor.check import Category, Check, Severity
from operations.doctor.checks import CHECKS, OF_HOSTS_ALONE
from operations.doctor.diagnosis import Choice, Diagnosis, codes, diagnose
from operations.doctor.facts import Facts, Source
from operations.doctor.hosts.answer import HostLookError, HostReport
from operations.doctor.hosts.secrets import read_secrets
from operations.doctor.reading import read_facts
from operations.doctor.rendering import render, render_pod
from operations.doctor.report import exit_status, pod_report, report
from operations.errors import OperationError
from operations.exit_status import ExitStatus
from operations.options import stack_name
from operations.reading import Place, hosts_without_cluster, open_place, qualified_name
from operations.target import check_exported_options, own_project
from toolchain.programs import LANGUAGE_PYTHON, PULUMI

_AGAIN_SECONDS = 2.0

app = typer.Typer(
    name="doctor",
    invoke_without_command=True,
    help="Say what is wrong with the cluster: the cause first, with evidence and a remedy. Changes nothing.",
)

Stack = Annotated[
    str | None,
    typer.Option("--stack", callback=stack_name, help="A stack: its cluster or simulator, and what should be there."),
]
Context = Annotated[str | None, typer.Option("--context", help="A context of the kubeconfig.")]
Only = Annotated[
    list[Category] | None,
    typer.Option("--only", metavar="CATEGORY", help=f"A category of checks, repeatable: {', '.join(Category)}."),
]
Skip = Annotated[
    list[Category] | None,
    typer.Option("--skip", metavar="CATEGORY", help="A category of checks to leave out; repeatable."),
]
Wait = Annotated[
    int, typer.Option("--wait", metavar="SECONDS", help="Look again until nothing fails, at most so long.", min=0)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON; its schema is docs/doctor.schema.json.")]


@app.callback()
def doctor(  # noqa: PLR0913 - the options of a command
    ctx: typer.Context,
    *,
    stack: Stack = None,
    context: Context = None,
    only: Only = None,
    skip: Skip = None,
    suppress: Annotated[
        list[str] | None,
        typer.Option("--suppress", metavar="CODE", help="A check that is not reported, such as KA0406; repeatable."),
    ] = None,
    fail_on: Annotated[
        Severity, typer.Option("--fail-on", help="From which severity on the exit status is 3.")
    ] = Severity.ERROR,
    wait: Wait = 0,
    hosts: Annotated[
        bool, typer.Option("--hosts", help="Ask the stack's hosts too, over SSH. Needs --stack and its passphrase.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Look at everything."""
    if ctx.invoked_subcommand is not None:
        _refuse_options_before(ctx, ctx.invoked_subcommand)
        return
    hosts = hosts or Category.HOSTS in (only or [])
    if hosts and stack is None:
        raise typer.BadParameter("--hosts asks the hosts of a stack: name it with --stack.")
    choice = Choice(frozenset(only or ()), frozenset(skip or ()), frozenset(_valid_codes(suppress or [])))
    tell = partial(_tell, fail_on=fail_on, as_json=as_json)
    alone = hosts_without_cluster(stack, context) if hosts else None
    if not any(choice.runs(check) for check in (CHECKS if alone is None else OF_HOSTS_ALONE)):
        raise typer.BadParameter("--only and --skip leave no check that could be done: choose other categories.")
    if alone is not None:
        read = _and_hosts(partial(Facts, settings=alone), str(stack), alone)
        diagnosed = look(read, choice, wait_seconds=wait, fail_on=fail_on, checks=OF_HOSTS_ALONE)
        raise typer.Exit(tell(*diagnosed, where=f"the hosts of stack '{stack}'"))
    with open_place(stack, context) as place:
        read = partial(facts_of, place, stack)
        read = _and_hosts(read, str(stack), place.stack) if hosts else read
        diagnosed = look(read, choice, wait_seconds=wait, fail_on=fail_on)
        cluster = place.cluster
        where = f"the cluster at {cluster.server} (context '{cluster.context}')"
        there = partial(for_its_cluster, chosen=cluster.chosen)
        status = tell(*diagnosed, where=where, server=cluster.server, context=cluster.context, there=there)
    raise typer.Exit(status)


def _tell(  # noqa: PLR0913 - what was looked at, and how it is told
    facts: Facts,
    diagnosis: Diagnosis,
    *,
    where: str,
    server: str = "",
    context: str = "",
    there: Callable[[str], str] = str,
    fail_on: Severity,
    as_json: bool,
) -> ExitStatus:
    """Print what the checks say; their exit status."""
    status = exit_status(diagnosis, fail_on)
    if as_json:
        document = report(facts, diagnosis, server=server, context=context, status=status)
        typer.echo(document.model_dump_json(indent=2))
    else:
        render(_console(), diagnosis, where=where, there=there)
    return status


@app.command("pod")
def pod(
    name: Annotated[str, typer.Argument(help="The pod.")],
    *,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Its namespace.")] = "default",
    stack: Stack = None,
    context: Context = None,
    as_json: AsJson = False,
) -> None:
    """Say in one sentence why a pod does not run as it must, with evidence. Exit status 0 where it does, else 3."""
    with open_place(stack, context) as place:
        facts = facts_of(place, stack, namespace)
        selected = one_pod.find_pod(facts, name, namespace)
        diagnosis = diagnose(facts)
        verdict = one_pod.explain(facts, diagnosis, selected)
        status = ExitStatus.WELL if verdict.runs else ExitStatus.FAILED
        cluster = place.cluster
        if as_json:
            document = pod_report(
                facts, diagnosis, verdict, server=cluster.server, context=cluster.context, status=status
            )
            typer.echo(document.model_dump_json(indent=2))
        else:
            render_pod(_console(), verdict, facts, there=partial(for_its_cluster, chosen=cluster.chosen))
    raise typer.Exit(status)


def _refuse_options_before(ctx: typer.Context, command: str) -> None:
    """Refuse what the command behind would not see: another cluster would be looked at than the one that was named."""
    for option in ctx.command.params:
        source = ctx.get_parameter_source(option.name) if option.name else None
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(
                f"{option.opts[0]} stands before `{command}`, which does not see it. Its own options stand behind it: "
                f"kai-anywhere doctor {command} --help"
            )


def _valid_codes(suppressed: list[str]) -> list[str]:
    all_codes = {check.code for check in CHECKS}
    for code in suppressed:
        if code not in all_codes:
            raise typer.BadParameter(f"--suppress {code}: no check has this code. docs/troubleshooting.md has all.")
    return suppressed


def _console() -> Console:
    return Console(highlight=False)


def facts_of(place: Place, stack: str | None, namespace: str = "") -> Facts:
    """Everything that checks ask for, of the cluster and of what the stack says; a namespace, if one is asked about."""
    name = qualified_name(place, stack) if stack else ""
    return read_facts(place.cluster, place.settings, name, namespace)


def hosts_of(stack: str, settings: StackSettings) -> dict[str, HostReport]:
    """What the hosts of a stack say.

    Raises:
        HostLookError: if none of them can be asked.
        OperationError: if the stack has none, or somebody has exported options of pulumi.
    """
    if not settings.hosts:
        raise OperationError(f"Stack '{stack}' declares no hosts: docs/hosts.md says how. Leave --hosts out.")
    check_exported_options()
    environment = toolchain.environment((PULUMI, LANGUAGE_PYTHON))
    # It brings all of Pulumi, which other commands need not wait for.
    from operations.doctor.hosts.asking import ask  # noqa: PLC0415

    return ask(settings, read_secrets(stack, settings.hosts, own_project(), environment), environment)


def _and_hosts(read: Callable[[], Facts], stack: str, settings: StackSettings) -> Callable[[], Facts]:
    """Facts with what the hosts of a stack say, or why none of them could be asked."""

    def read_with_hosts() -> Facts:
        facts = read()
        try:
            return replace(facts, hosts=hosts_of(stack, settings))
        except HostLookError as error:
            return replace(facts, hosts={}, unseen={**facts.unseen, Source.HOSTS: Unseen(Source.HOSTS, str(error))})

    return read_with_hosts


def look(
    read: Callable[[], Facts],
    choice: Choice,
    *,
    wait_seconds: int,
    fail_on: Severity = Severity.ERROR,
    checks: Sequence[Check] = CHECKS,
) -> tuple[Facts, Diagnosis]:
    """Look, again and again while something fails and there is time.

    A cluster that does not answer any more only costs time, as where its API server starts again after an install.

    Args:
        read: reads the facts, anew at each look.
        choice: the checks.
        wait_seconds: how long at most; each look that fails says the codes on standard error.
        fail_on: from which severity on a check fails.
        checks: what is chosen from.
    """
    begin = time.monotonic()
    answered = False
    while True:
        try:
            facts = read()
        except ClusterUnreachableError as error:
            left = begin + wait_seconds - time.monotonic()
            if not answered or left <= 0:
                raise
            why = str(error).splitlines()[0]
        else:
            answered = True
            diagnosis = diagnose(facts, choice, checks)
            left = begin + wait_seconds - time.monotonic()
            if exit_status(diagnosis, fail_on) is not ExitStatus.FAILED or left <= 0:
                return facts, diagnosis
            why = ", ".join(codes(diagnosis.problems))
        typer.echo(f"{int(time.monotonic() - begin)} of {wait_seconds} s: {why}", err=True)
        time.sleep(min(_AGAIN_SECONDS, left))
