"""`probe-privilege`."""

from contextlib import closing
from typing import Annotated

import typer

from cluster.access.client import Cluster
from operations.errors import OperationError
from operations.options import Stack
from operations.privilege_probe import run as privilege_probe
from operations.privilege_probe.host import ask_host
from operations.stack_file import read_settings
from operations.target import ROOT, names_cluster
from toolchain.progress import say


def probe_privilege(  # noqa: PLR0913 - every option of the command
    *,
    stack: Stack = "jetson",
    node: Annotated[str, typer.Option(help="The Jetson, as `kubectl get nodes` prints it.")],
    group: Annotated[
        list[int] | None,
        typer.Option(
            help="A group of device files, repeatable; by default those of reservation.supplemental_groups, else 44.",
            min=1,
        ),
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="The image of KAI's reservation pods, in place of what the stack says.")
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
    with closing(Cluster.connect(settings.cluster)) as cluster:
        groups = privilege_probe.device_groups(settings, group or ())
        result = privilege_probe.Probe(cluster, settings, node, chosen, groups, say, host_answers).run()
    typer.echo(result.json() if as_json else result.text())
    raise typer.Exit(result.status)
