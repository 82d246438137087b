"""The recorded graph of random settings, their hosts included."""

import pulumi

from components.kai_anywhere import KaiAnywhere, KaiAnywhereArgs
from testbed.stacks import Json, parse
from tests.support.recording_monitor import Graph, record
from tests.unit.components.programs import CLUSTER_UID, KUBECONFIG


def graph_of(stack: Json) -> Graph:
    """A stack's first preview."""
    settings = parse(stack)
    names = sorted({name for host in settings.hosts.values() for name in host.secret_names})

    def program() -> None:
        secrets = {name: pulumi.Output.secret(f"the value of {name}") for name in names}
        KaiAnywhere("kai-anywhere", KaiAnywhereArgs(settings, CLUSTER_UID, KUBECONFIG, secrets))

    return record(program, state={"outputs": {}})
