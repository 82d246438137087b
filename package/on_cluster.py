"""What the resource of many nodes' labels does on the cluster that its stack is bound to."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from cluster.access.binding import home
from cluster.access.client import Cluster
from cluster.access.connection import UP_TIMEOUT_SECONDS
from cluster.errors import ClusterError
from cluster.labelling import read_labels, release_labels, set_labels
from manifests.objects import Manifest

Nodes = Mapping[str, Manifest]


def write(
    kubeconfig: str, labelled: Nodes, manager: str, gone: Nodes, former: str
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Label nodes, then let go of others; where the field manager is a new one, no label goes in between.

    Args:
        kubeconfig: the connection, as the Kubernetes provider has it.
        labelled: the nodes to label.
        manager: as whom.
        gone: the nodes to let go of, as they were set.
        former: as whom.

    Returns:
        The problems of both, by node.

    Raises:
        ClusterError: if the cluster can't be asked, or is another one.
    """
    with _bound(kubeconfig) as cluster:
        return (
            set_labels(cluster, labelled, manager=manager).problems,
            release_labels(cluster, gone, manager=former).problems,
        )


def release(kubeconfig: str, nodes: Nodes, manager: str) -> Mapping[str, str]:
    """Let go of nodes; the problems by node.

    Raises:
        ClusterError: if the cluster can't be asked, or is another one.
    """
    with _bound(kubeconfig) as cluster:
        return release_labels(cluster, nodes, manager=manager).problems


def read(kubeconfig: str, nodes: Nodes) -> dict[str, Manifest]:
    """The same nodes as they are now.

    Raises:
        ClusterError: if the cluster can't be asked, or is another one.
    """
    with _bound(kubeconfig) as cluster:
        return read_labels(cluster, nodes)


@contextmanager
def _bound(kubeconfig: str) -> Iterator[Cluster]:
    file = home() / kubeconfig.removeprefix("~/")
    if not file.is_file():
        raise ClusterError(
            f"This machine has no connection to the stack's cluster yet: there is no {file}. Nothing was changed.\n"
            "Run `kai-anywhere preflight` or `pulumi preview` here once: both write it."
        )
    with closing(Cluster.open(str(file), timeout_seconds=UP_TIMEOUT_SECONDS)) as cluster:
        _identify(cluster, file)
        yield cluster


def _identify(cluster: Cluster, file: Path) -> None:
    uid = cluster.uid()
    if uid != file.name:
        raise ClusterError(
            f"Another cluster answers at {cluster.server}: its UID is {uid}, the stack's is {file.name}. Nothing was "
            "changed.\nRun `kai-anywhere preflight` or `pulumi preview` with the right context."
        )
