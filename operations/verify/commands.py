"""`kai-anywhere verify`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer

import simulator
from cluster.access.answers.nodes import Node
from cluster.access.client import Cluster
from cluster.errors import ClusterError, ClusterUnreachableError
from cluster.reservation_pods import shared_nodes
from config.kai import DEFAULT_QUEUE, GpuSharingMode
from config.stack import StackSettings
from manifests.objects import namespace
from operations.doctor.commands import Only, Skip, Wait, facts_of, look
from operations.doctor.diagnosis import Choice
from operations.errors import OperationError
from operations.new_files import check_new
from operations.options import Context, Stack
from operations.reading import Place, open_place, project_folder, qualified_name
from operations.scratch import Scratch
from operations.target import folder
from operations.verify import before, components, reservation_pods, sharing
from operations.verify.cuda import VectorAddition, image_for
from operations.verify.evidence import OPTION, Installation, write_evidence
from operations.verify.evidence import evidence as evidence_of
from operations.verify.sharing import IMAGE, LABEL, Sharing
from operations.verify.steps import Outcome, Report, Step, lines_of
from toolchain.progress import say

NAMESPACE = "kai-anywhere-verify"
_RIGHTS = (
    ("get", "namespaces", ""),
    ("create", "namespaces", ""),
    ("delete", "namespaces", ""),
    ("list", "pods", ""),
    ("create", "pods", NAMESPACE),
    ("delete", "pods", NAMESPACE),
)


@dataclass(frozen=True)
class Workload:
    """What is started.

    Attributes:
        queue: of the pods.
        image: of those that share a GPU.
        cuda_image: of the vector addition; None for NVIDIA's, where that runs.
    """

    queue: str
    image: str
    cuda_image: str | None = None


def verify(  # noqa: PLR0913 - every option of the command
    *,
    stack: Stack = "jetson",
    context: Context = None,
    node: Annotated[list[str] | None, typer.Option(help="Verify only this node; repeatable.")] = None,
    only: Only = None,
    skip: Skip = None,
    wait: Wait = 0,
    queue: Annotated[str, typer.Option(help="The queue of the pods that share a GPU.")] = DEFAULT_QUEUE,
    image: Annotated[str, typer.Option(help="What these pods run: anything that does not end.")] = IMAGE,
    cuda_image: Annotated[
        str | None,
        typer.Option(help="An image that adds vectors on these nodes and prints 'Test PASSED', for Jetsons."),
    ] = None,
    workload: Annotated[
        bool, typer.Option("--workload/--no-workload", help="Whether to start pods; without pods nothing is changed.")
    ] = True,
    evidence: Annotated[
        Path | None,
        typer.Option(help="Write the outcome and the boards' versions into a file, without names and secrets."),
    ] = None,
    board: Annotated[str, typer.Option(help="What you call the board, for --evidence.")] = "",
    jetpack: Annotated[str, typer.Option(help="Its JetPack or L4T, for --evidence.")] = "",
    pre: Annotated[
        bool, typer.Option("--pre", help="Before the install: verify that it can begin. Nothing is changed.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print it as JSON; its schema is docs/verify.schema.json.")
    ] = False,
) -> None:
    """Verify that the stack does its work: components, what reservation pods get, and that pods share a GPU as planned.

    The pods that it starts use no GPU memory, and are gone afterwards with their namespace, kai-anywhere-verify.
    """
    narrowed = {"--node": node, "--only": only, "--skip": skip, "--wait": wait, OPTION: evidence}
    if pre and (option := next((name for name, value in narrowed.items() if value), None)):
        raise typer.BadParameter(f"--pre looks at the whole cluster before the install: leave {option} out.")
    if (board or jetpack) and not evidence:
        raise typer.BadParameter(f"{'--board' if board else '--jetpack'} is for {OPTION}.")
    if evidence:
        check_new(evidence, option=OPTION)
    with open_place(stack, context) as place:
        done: list[Step] = []
        if pre:
            say("what preflight and doctor check")
            with _steps_shown_at_a_failure(done):
                done += before.verify(
                    place.cluster,
                    place.stack,
                    qualified_name(place, stack),
                    facts_of(place, stack),
                    project_folder(place),
                )
            _end(Report(steps=tuple(done)), as_json=as_json)
        seen_nodes, unseen = _seen(place.cluster)
        nodes = _nodes(seen_nodes, place.stack, node or ()) if not unseen else []
        say("what doctor checks")
        facts, diagnosis = look(
            partial(facts_of, place, stack), Choice(frozenset(only or ()), frozenset(skip or ())), wait_seconds=wait
        )
        stands = components.verify(diagnosis)
        done.append(stands)
        if unseen:
            done.append(Step(name=reservation_pods.NAME, outcome=Outcome.SKIPPED, says=unseen))
        with _steps_shown_at_a_failure(done):
            for name in nodes:
                say(f"{name}: what a reservation pod gets")
                done.append(reservation_pods.verify(place.cluster, place.stack, name))
            if workload and nodes and stands.outcome is Outcome.FAILED:
                says = "not tried, since components failed: see above."
                done.append(Step(name=sharing.NAME, outcome=Outcome.SKIPPED, says=says))
            elif workload and nodes:
                done += _shared(place, stack, [seen_nodes[name] for name in nodes], Workload(queue, image, cuda_image))
        report = Report(steps=tuple(done))
        if evidence:
            installation = Installation(
                place.stack, facts, place.cluster.version().git, place.simulated, board, jetpack
            )
            write_evidence(evidence, evidence_of(report, seen_nodes.values(), installation, datetime.now(UTC).date()))
    _end(report, as_json=as_json)


@contextmanager
def _steps_shown_at_a_failure(done: Sequence[Step]) -> Iterator[None]:
    """Tell what was verified where the block fails at something else: it may have taken minutes, and be the cause."""
    try:
        yield
    except (ClusterError, OperationError):
        for step in done:
            typer.echo("\n".join(lines_of(step)), err=True)
        raise


def _end(report: Report, *, as_json: bool) -> NoReturn:
    typer.echo(report.model_dump_json(indent=2) if as_json else report.text())
    raise typer.Exit(report.status)


def _seen(cluster: Cluster) -> tuple[dict[str, Node], str]:
    """The nodes, and what to say where the user may not see them.

    Raises:
        ClusterUnreachableError: if the API server does not answer.
    """
    try:
        return cluster.nodes(), ""
    except ClusterUnreachableError:
        raise
    except ClusterError as error:
        return {}, f"nodes can't be read, so nothing is tried on any. {str(error).splitlines()[0]}"


def _nodes(seen_nodes: Mapping[str, Node], settings: StackSettings, named: Sequence[str]) -> list[str]:
    """The nodes whose GPUs KAI shares, or those of them that were named."""
    shared = shared_nodes(settings, seen_nodes)
    for name in named:
        if name not in shared:
            raise OperationError(
                f"KAI shares no GPU of a node '{name}'. Nodes whose GPUs it shares: {', '.join(shared) or 'none'}."
            )
    return [name for name in shared if not named or name in named]


def _shared(place: Place, stack: str, nodes: Sequence[Node], workload: Workload) -> Iterator[Step]:
    """The workload, on one node after the other."""
    if place.stack.kai.gpu_sharing_mode is GpuSharingMode.DISABLED:
        says = "kai.gpu_sharing_mode is 'disabled', so KAI refuses pods with fractions. --no-workload leaves this out."
        yield Step(name=sharing.NAME, outcome=Outcome.SKIPPED, says=says)
        return
    if place.simulated and simulator.status(folder(stack) / "cluster").kai_programs is None:
        says = "KAI is emulated on this simulator, so nobody would schedule the pods (docs/simulator.md)."
        yield Step(name=sharing.NAME, outcome=Outcome.SKIPPED, says=says)
        return
    if lacking := [
        f"{verb} {what}" for verb, what, where in _RIGHTS if not place.cluster.allows(verb, what, namespace=where)
    ]:
        says = f"this user may not {', '.join(lacking)}."
        yield Step(name=sharing.NAME, outcome=Outcome.SKIPPED, says=says)
        return
    with _namespace(place.cluster) as scratch:
        trial = Sharing(scratch, place.stack, workload.image, workload.queue, say, logs=not place.simulated)
        addition = VectorAddition(scratch, workload.queue, say)
        for node in nodes:
            shared = trial.verify(node.name)
            yield shared
            if shared.outcome is Outcome.HELD and not place.simulated:
                yield addition.verify(node, image_for(node, workload.cuda_image))


@contextmanager
def _namespace(cluster: Cluster) -> Iterator[Scratch]:
    scratch = Scratch(cluster, NAMESPACE, LABEL, "verification")
    scratch.stop_at_somebody_elses()
    with scratch.clean():
        made = namespace(NAMESPACE, pod_security="restricted")
        made["metadata"]["labels"] |= {LABEL: "true"}
        if refused := cluster.create(made):
            raise OperationError(f"The cluster does not take the namespace '{NAMESPACE}': {refused.message}")
        yield scratch
