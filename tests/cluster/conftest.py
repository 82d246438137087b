"""One cluster with one real node for all tests here; what they leave in it goes with it."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

import simulator
from config.gvirtus import GvirtusSettings
from config.stack import StackSettings
from manifests.gvirtus import backends as gvirtus
from manifests.reservation import RUNTIME_CLASS
from testbed.simulated import start
from testbed.stacks import changed, parse
from testbed.stacks import gvirtus as gvirtus_stack
from testbed.waiting import eventually
from tests.support.gvirtus.cases import TEAM, namespace, post
from tests.support.pods import stand_ins_image
from tests.support.pods.images import BASE_IMAGE, Builder
from tests.support.pods.real_node import NAME, RealNode, missing, patch, real_node
from tests.support.pods.runs import available
from tests.support.pods.stand_ins_image import STAND_INS_IMAGE

_BACKEND_GPU = "nvidia.com/gpu.shared"
"""The node stands for two: a frontend, whose `nvidia.com/gpu` is a device plugin's, and a backend's node, whose GPU
has another name."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[simulator.ControlPlane]:
    """A simulator of these tests' own: its simulated nodes take no more pods."""
    if reason := missing():
        pytest.skip(reason)
    with start(tmp_path_factory.mktemp("cluster") / "simulator") as control_plane:
        yield control_plane


@dataclass(frozen=True)
class Images:
    """Images of these tests.

    Attributes:
        builder: to build more with.
        agents: the name of agents/Containerfile's.
    """

    builder: Builder
    agents: str


@pytest.fixture(scope="module")
def images(cluster: simulator.ControlPlane, request: pytest.FixtureRequest) -> Images:
    """Asked for by name, since what a whole session shares would be made before anything here can say that it skips."""
    assert cluster.version
    builder, agents = request.getfixturevalue("agents_image")
    return Images(builder, agents)


@pytest.fixture(scope="module")
def node(
    cluster: simulator.ControlPlane, images: Images, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealNode]:
    """The real node with every image, and the runtime class that the stack's pods name."""
    archives = [*stand_ins_image.build(images.builder, BASE_IMAGE), images.builder.archive(images.agents)]
    # The GPU Operator's, for which any runtime will do here.
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": RUNTIME_CLASS}}
    with real_node(tmp_path_factory.mktemp("node") / "node", cluster) as joined:
        for archive in archives:
            joined.import_image(archive)
        post(joined.api, runtime | {"handler": "runc"})
        yield joined


@dataclass(frozen=True)
class Remote:
    """Remote GPUs without their carrier.

    Attributes:
        settings: of the stack.
        gvirtus: their section.
        address: the ClusterIP of the backend's Service.
    """

    settings: StackSettings
    gvirtus: GvirtusSettings
    address: str


@pytest.fixture(scope="module")
def remote(node: RealNode) -> Remote:
    """A backend as the stack makes it, its image a stand-in: it is ready when the kubelet's own probes say so."""
    api = node.api
    backend = {
        "image": STAND_INS_IMAGE,
        "node_selector": {"kubernetes.io/hostname": NAME},
        "gpu_resource": _BACKEND_GPU,
        "cpu": "50m",
        "memory": "256Mi",
    }
    stack = changed(gvirtus_stack(), "gvirtus.backends", {"gpu-a": backend})
    settings = parse(changed(stack, "gvirtus.frontends", {"nodes": [NAME], "gpus_per_node": 2}))
    section = settings.gvirtus
    assert section is not None
    patch(api, f"/api/v1/nodes/{NAME}/status", {"status": {"capacity": {_BACKEND_GPU: "1"}}})
    post(api, namespace(TEAM, {}))
    post(api, gvirtus.backends_namespace(section))
    post(api, gvirtus.network_policy(section))
    service = post(api, gvirtus.service(section, "gpu-a"))
    deployment = post(api, gvirtus.deployment(settings, section, "gpu-a"))
    account = f"/api/v1/namespaces/{TEAM}/serviceaccounts/default"
    eventually(lambda: api.get(account).is_success)
    available(api, deployment)
    return Remote(settings, section, api.get(service).json()["spec"]["clusterIP"])
