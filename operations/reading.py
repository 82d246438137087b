"""The cluster that a command looks at and does not change: the reader's own, or a stack's simulator that runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import simulator
from cluster.access.client import Cluster
from cluster.errors import ClusterUnreachableError
from config.stack import StackSettings
from operations.errors import OperationError
from operations.stack_file import project_of, read_settings
from operations.target import ROOT, folder, names_cluster, own_project


@dataclass(frozen=True)
class Place:
    """A cluster, and what should run there.

    Attributes:
        cluster: the connection.
        settings: what the stack says; None where no stack was named and none is needed.
        simulated: whether it is a stack's simulator.
    """

    cluster: Cluster
    settings: StackSettings | None
    simulated: bool

    @property
    def stack(self) -> StackSettings:
        """What the stack says.

        Raises:
            LookupError: the command that asks names no stack.
        """
        if self.settings is None:
            raise LookupError("no stack was named")
        return self.settings


@contextmanager
def open_place(stack: str | None, context: str | None = None) -> Iterator[Place]:
    """Connect: to the context that was named, to the stack's own cluster, to KUBECONFIG, or to the stack's simulator.

    Args:
        stack: its name; without one, the cluster alone is looked at.
        context: a context of the kubeconfig, in place of what the stack says.

    Raises:
        OperationError: the stack is to be on its simulator, and that does not run; or nothing says which cluster.
        ClusterError: there is no such cluster, or it can't be used.
        StackConfigError: the stack's settings are wrong.
    """
    settings = read_settings(ROOT / f"Pulumi.{stack}.yaml") if stack else None
    simulated = settings is not None and not context and not names_cluster(settings)
    kubeconfig = settings.cluster.kubeconfig if settings else None
    context = context or (settings.cluster.context if settings else None)
    if simulated and settings is not None and settings.hosts_alone:
        raise OperationError(
            f"Stack '{stack}' prepares hosts alone (installs: hosts), so there is no simulator to look at. Name the "
            f"cluster of these hosts: KUBECONFIG, or --context. `kai-anywhere doctor --hosts --stack {stack}` asks the "
            "hosts alone."
        )
    if simulated:
        state = simulator.status(folder(str(stack)) / "cluster")
        if not state.running:
            raise OperationError(
                f"Stack '{stack}' has no simulator that runs. Start it with `make up STACK={stack}`, or name a "
                "cluster: KUBECONFIG, or --context."
            )
        kubeconfig = str(state.kubeconfig)
    try:
        cluster = Cluster.open(kubeconfig, context)
    except ClusterUnreachableError as error:
        if stack:
            raise
        raise OperationError(f"{error}\nOr name a stack with --stack: its own cluster, or its simulator.") from error
    try:
        yield Place(cluster, settings, simulated)
    finally:
        cluster.close()


def project_folder(place: Place) -> Path:
    """The folder of the project that is run there: a simulator's is always this checkout."""
    return ROOT if place.simulated else own_project()


def qualified_name(place: Place, stack: str) -> str:
    """A stack as project/name, as its field managers have it."""
    return f"{project_of(project_folder(place))}/{stack}"


def hosts_without_cluster(stack: str | None, context: str | None) -> StackSettings | None:
    """The settings of a stack that prepares hosts alone, where nobody names a cluster to look at as well; else None.

    Raises:
        StackConfigError: the stack's settings are wrong.
    """
    settings = read_settings(ROOT / f"Pulumi.{stack}.yaml") if stack else None
    if settings is None or not settings.hosts_alone or context or names_cluster(settings):
        return None
    return settings
