"""The programs that only tests need, in the toolchain's own terms, beside the Go modules that they are built of.

The modules `actionlint` and `pod-security-fixtures` hold a tool and data of other tests.
"""

from pathlib import Path

from toolchain.official import Asset, ChecksumFile, Download, Platform
from toolchain.program import Program, VersionCheck, VersionRange, unpublished
from toolchain.programs import (
    KUBE_SERVER_CHECK,
    KUBERNETES_VERSION,
    kubernetes_package,
    kubernetes_release,
    kubernetes_variables,
)
from toolchain.recipe import Recipe

# renovate: datasource=go depName=sigs.k8s.io/node-feature-discovery
NFD_VERSION = "0.18.3"
# renovate: datasource=go depName=github.com/NVIDIA/nvidia-container-toolkit
NVIDIA_CTK_VERSION = "1.20.1"
# renovate: datasource=go depName=github.com/containerd/containerd/v2
CONTAINERD_VERSION = "2.4.2"
# renovate: datasource=go depName=github.com/moby/moby/v2
DOCKERD_VERSION = "2.0.0-beta.6"
# Its Go module counts 3.16.0 as 0.316.0.
# renovate: datasource=github-releases depName=prometheus/prometheus
PROMETHEUS_VERSION = "3.16.0"

ROOM = Path(__file__).parent

_TOOLKIT = "github.com/NVIDIA/nvidia-container-toolkit"

NVIDIA_CTK = Program(
    "nvidia-ctk",
    Recipe(
        name="nvidia-ctk",
        version=NVIDIA_CTK_VERSION,
        folder="nvidia-container-toolkit",
        packages=(("nvidia-ctk", f"{_TOOLKIT}/cmd/nvidia-ctk"),),
        variables=((f"{_TOOLKIT}/internal/info.version", NVIDIA_CTK_VERSION),),
        # It loads NVML with dlopen.
        cgo=True,
        minutes=1,
        go_cache_mib=500,
        result_mib=15,
        room=ROOM,
    ),
    # Drop-in files came with 1.18, in the right folder since 1.18.1.
    VersionCheck(("--version",), VersionRange((1, 18, 1), (2, 0, 0))),
    unpublished("NVIDIA publishes packages for Linux distributions only"),
)

_CONTAINERD = "github.com/containerd/containerd/v2"


def _containerd_archive(platform: Platform) -> Download | str:
    if platform.system != "linux":
        return "containerd is published for linux only"
    archive = f"containerd-static-{CONTAINERD_VERSION}-linux-{platform.processor}.tar.gz"
    url = f"https://github.com/containerd/containerd/releases/download/v{CONTAINERD_VERSION}/{archive}"
    asset = Asset(url, ChecksumFile(f"{url}.sha256sum"), ("containerd",))
    return Download("containerd", CONTAINERD_VERSION, (asset,))


CONTAINERD = Program(
    "containerd",
    Recipe(
        name="containerd",
        version=CONTAINERD_VERSION,
        folder="containerd",
        packages=(("containerd", f"{_CONTAINERD}/cmd/containerd"),),
        variables=((f"{_CONTAINERD}/version.Version", f"v{CONTAINERD_VERSION}"),),
        # They need C libraries, and nothing here has such a file system.
        tags=("no_btrfs", "no_zfs"),
        minutes=1,
        go_cache_mib=1000,
        result_mib=45,
        room=ROOM,
    ),
    # 2.3 was the first to merge files of different versions.
    VersionCheck(("--version",), VersionRange((2, 3, 0), (3, 0, 0))),
    _containerd_archive,
)

_DOCKER = "github.com/moby/moby/v2"

DOCKERD = Program(
    "dockerd",
    Recipe(
        # Docker Engine 29's code: the first that is a Go module of its own.
        name="dockerd",
        version=DOCKERD_VERSION,
        folder="docker",
        packages=(("dockerd", f"{_DOCKER}/cmd/dockerd"),),
        variables=((f"{_DOCKER}/dockerversion.Version", DOCKERD_VERSION),),
        minutes=4,
        go_cache_mib=2000,
        result_mib=90,
        room=ROOM,
    ),
    # Docker's own numbers: `--validate` came with 23.0. Its Go module counts from 2.0.
    VersionCheck(("--version",), VersionRange((23, 0, 0))),
    unpublished("Docker publishes its archives without checksums"),
)

_NODE_SERVERS = ("kubelet", "kube-proxy")
_KUBE_NODE = Recipe(
    name="kube-node",
    version=KUBERNETES_VERSION,
    # The toolchain's: kubelet and API server are of one version.
    folder="kubernetes",
    packages=tuple(map(kubernetes_package, _NODE_SERVERS)),
    variables=kubernetes_variables(KUBERNETES_VERSION),
    minutes=3,
    go_cache_mib=2000,
    result_mib=120,
)


def _node_server(name: str) -> Program:
    """One that may be older than the API server, never newer; our tests want the one they were written against."""
    return Program(name, _KUBE_NODE, KUBE_SERVER_CHECK, kubernetes_release("kube-node", _NODE_SERVERS, servers=True))


KUBELET, KUBE_PROXY = map(_node_server, _NODE_SERVERS)

_NFD = "sigs.k8s.io/node-feature-discovery"
_NFD_PROGRAMS = ("nfd-master", "nfd-worker")
_NODE_FEATURE_DISCOVERY = Recipe(
    name="node-feature-discovery",
    version=NFD_VERSION,
    folder="node-feature-discovery",
    packages=tuple((name, f"{_NFD}/cmd/{name}") for name in _NFD_PROGRAMS),
    variables=(
        (f"{_NFD}/pkg/version.version", f"v{NFD_VERSION}"),
        # Where a container finds the host's folders, as in the official image: /host-sys, /host-etc.
        (f"{_NFD}/pkg/utils/hostpath.pathPrefix", "/host-"),
    ),
    minutes=3,
    go_cache_mib=1500,
    result_mib=130,
    room=ROOM,
)


def _nfd_program(name: str) -> Program:
    return Program(
        name,
        _NODE_FEATURE_DISCOVERY,
        VersionCheck(("-version",), VersionRange((0, 18, 0), (0, 19, 0))),
        unpublished("Node Feature Discovery publishes images only"),
    )


NFD_MASTER, NFD_WORKER = map(_nfd_program, _NFD_PROGRAMS)


def _prometheus_archive(platform: Platform) -> Download:
    base = f"https://github.com/prometheus/prometheus/releases/download/v{PROMETHEUS_VERSION}"
    archive = f"prometheus-{PROMETHEUS_VERSION}.{platform.system}-{platform.processor}.tar.gz"
    asset = Asset(f"{base}/{archive}", ChecksumFile(f"{base}/sha256sums.txt"), ("promtool",))
    return Download("promtool", PROMETHEUS_VERSION, (asset,))


PROMTOOL = Program(
    "promtool",
    Recipe(
        name="promtool",
        version=PROMETHEUS_VERSION,
        folder="prometheus",
        packages=(("promtool", "github.com/prometheus/prometheus/cmd/promtool"),),
        variables=(("github.com/prometheus/common/version.Version", PROMETHEUS_VERSION),),
        # Every cloud's SDK is for finding targets there, of which rules know nothing.
        tags=("remove_all_sd",),
        minutes=4,
        go_cache_mib=2000,
        result_mib=90,
        room=ROOM,
    ),
    VersionCheck(("--version",), VersionRange((3, 0, 0), (4, 0, 0))),
    _prometheus_archive,
)

HOSTS = (NVIDIA_CTK, CONTAINERD, DOCKERD)
"""What the tests of the host agent need: what it calls on a host."""

NODE = (KUBELET, KUBE_PROXY, NFD_MASTER, NFD_WORKER)
"""What a real node beside the simulated ones needs, and what the GPU Operator would bring to it."""

ALL = (*HOSTS, *NODE, PROMTOOL)
