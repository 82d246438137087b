"""What the simulator itself asks of its control plane: is it ready, which nodes are there."""

import socket
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import httpx2
from lightkube import ApiError, Client, KubeConfig, codecs
from lightkube.resources.core_v1 import Node, ServiceAccount

from simulator.errors import SimulatorError
from simulator.nodes import KIND_ANNOTATION, NodeKind, manifest
from simulator.pki import Identity, Pki

_TIMEOUT_SECONDS = 5.0
_CONFLICT = 409


def answers(url: str, pki: Pki, identity: Identity) -> bool:
    """Whether a GET of `url` succeeds at once."""
    return get(url, pki, identity) is not None


def get(url: str, pki: Pki, identity: Identity) -> httpx2.Response | None:
    """The answer to a GET, None where nobody answers or the answer is no success."""
    try:
        trusted = ssl.create_default_context(cafile=pki.authority)
        trusted.load_cert_chain(*pki.client(identity))
        response = httpx2.get(url, verify=trusted, trust_env=False, timeout=_TIMEOUT_SECONDS)
    except (httpx2.HTTPError, OSError):
        return None
    return response if response.is_success else None


def store_answers(path: Path) -> bool:
    """Whether etcd is healthy, by its socket."""
    # A socket's path has at most 104 bytes (macOS): this one is short whatever the folder's and TMPDIR's are. Only this
    # user enters the folder that is made there.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="kai-anywhere-") as folder:
        short = Path(folder, "simulator")
        short.symlink_to(path.parent)
        # httpx2 leaves a socket open that was refused.
        with socket.socket(socket.AF_UNIX) as connected, suppress(OSError, HTTPException):
            connected.settimeout(_TIMEOUT_SECONDS)
            connected.connect(str(short / path.name))
            connection = HTTPConnection("etcd")
            connection.sock = connected
            connection.request("GET", "/health")
            return connection.getresponse().status == HTTPStatus.OK
    return False


@contextmanager
def client(kubeconfig: Path) -> Iterator[Client]:
    """A client for the simulator's kubeconfig, deaf to proxies of the environment."""
    with closing(Client(config=KubeConfig.from_file(kubeconfig), trust_env=False)) as connected:
        yield connected


def create_nodes(api: Client, nodes: Mapping[str, NodeKind]) -> list[str]:
    """Create the nodes that do not exist and return their names; existing ones keep whatever others did to them.

    Raises:
        SimulatorError: a node of that name exists as another kind.
    """
    created = []
    for name, kind in nodes.items():
        try:
            api.create(codecs.from_dict(manifest(name, kind)))
            created.append(name)
        except ApiError as error:
            if error.status.code != _CONFLICT:
                raise
            node = api.get(Node, name)
            node_kind = ((node.metadata and node.metadata.annotations) or {}).get(KIND_ANNOTATION)
            if node_kind != kind:
                raise SimulatorError(
                    f"Node {name} already exists as {node_kind or 'a node that the simulator did not make'}, not as "
                    f"{kind}. Choose another name for the new one."
                ) from error
    return created


def list_nodes(api: Client) -> list[Node]:
    """All nodes, by name."""
    return sorted(api.list(Node), key=lambda node: (node.metadata and node.metadata.name) or "")


def is_ready(node: Node) -> bool:
    """Whether the node's Ready condition is True."""
    conditions = (node.status and node.status.conditions) or []
    return any(condition.type == "Ready" and condition.status == "True" for condition in conditions)


def has_default_service_account(api: Client) -> bool:
    """Whether pods can be created: the controller manager has given the default namespace its service account."""
    try:
        api.get(ServiceAccount, "default", namespace="default")
    except ApiError:
        return False
    return True
