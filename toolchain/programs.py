"""The programs: their names, the versions accepted on PATH, the versions obtained, and how Go builds them."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum, unique
from pathlib import Path
from types import MappingProxyType

# renovate: datasource=go depName=github.com/pulumi/pulumi/pkg/v3
PULUMI_VERSION = "3.259.0"
# Also pinned in pyproject.toml as the SDK `pulumi-kubernetes`. The newest provider that is published as a Go module
# too, so that a download and a build are the same version.
KUBERNETES_PROVIDER_VERSION = "4.25.0"
# The last sdk releases that contain the language host; later ones made it a module that is not published.
LANGUAGE_HOST_BUILT_VERSION = "3.78.1"
# The newest YAML language host that is published as a Go module.
LANGUAGE_YAML_BUILT_VERSION = "1.25.0"
# renovate: datasource=go depName=go.etcd.io/etcd/server/v3
ETCD_VERSION = "3.6.5"
# renovate: datasource=go depName=k8s.io/kubernetes
KUBERNETES_VERSION = "1.36.3"
# The oldest API server with MutatingAdmissionPolicy v1beta1, for tests. 1.36.3 can't play it: its own admission plugin
# reads v1, and with v1 switched off (--runtime-config, or --emulated-version) it never gets ready.
OLDER_KUBERNETES_VERSION = "1.34.1"
# renovate: datasource=go depName=sigs.k8s.io/kwok
KWOK_VERSION = "0.8.0"
# renovate: datasource=go depName=sigs.k8s.io/node-feature-discovery
NFD_VERSION = "0.18.3"
# renovate: datasource=go depName=github.com/NVIDIA/nvidia-container-toolkit
NVIDIA_CTK_VERSION = "1.20.1"
# renovate: datasource=go depName=github.com/containerd/containerd/v2
CONTAINERD_VERSION = "2.4.2"
# renovate: datasource=go depName=github.com/moby/moby/v2
DOCKERD_VERSION = "2.0.0-beta.6"
# renovate: datasource=go depName=helm.sh/helm/v4
HELM_VERSION = "4.3.1"
# renovate: datasource=go depName=github.com/google/go-containerregistry
CRANE_VERSION = "0.22.1"
# Its Go module counts 3.16.0 as 0.316.0.
# renovate: datasource=github-releases depName=prometheus/prometheus
PROMETHEUS_VERSION = "3.16.0"

Version = tuple[int, int, int]
_VERSION = re.compile(r"(?<![\w.])v?(\d+)\.(\d+)\.(\d+)")
_HERE = Path(__file__).parent
# A better estimate must not build anything anew.
_ESTIMATES = frozenset({"minutes", "go_cache_mib", "result_mib"})
# Came after the first builds: a recipe that does not use them keeps its entry.
_LATER = frozenset({"tags", "cgo"})


@unique
class Program(StrEnum):
    """A program that the toolchain yields; the value is the name of its executable."""

    PULUMI = "pulumi"
    LANGUAGE_PYTHON = "pulumi-language-python"
    LANGUAGE_YAML = "pulumi-language-yaml"
    LANGUAGE_NODEJS = "pulumi-language-nodejs"
    PACKAGE_HOST = "pulumi-language-python-packages"
    KUBERNETES_PROVIDER = "pulumi-resource-kubernetes"
    ETCD = "etcd"
    KUBE_APISERVER = "kube-apiserver"
    KUBE_APISERVER_1_34 = "kube-apiserver-1.34"
    KUBE_CONTROLLER_MANAGER = "kube-controller-manager"
    KUBE_SCHEDULER = "kube-scheduler"
    KWOK = "kwok"
    KUBECTL = "kubectl"
    KUBELET = "kubelet"
    KUBE_PROXY = "kube-proxy"
    NFD_MASTER = "nfd-master"
    NFD_WORKER = "nfd-worker"
    NVIDIA_CTK = "nvidia-ctk"
    CONTAINERD = "containerd"
    DOCKERD = "dockerd"
    HELM = "helm"
    CRANE = "crane"
    PROMTOOL = "promtool"


LANGUAGE_EXEC = "pulumi-language-python-exec"
"""The script that the language host starts; it lies in the host's folder or elsewhere on PATH."""

ENGINE = (Program.PULUMI, Program.LANGUAGE_PYTHON, Program.KUBERNETES_PROVIDER)
"""What `pulumi up` needs."""

KUBE_SERVERS = (Program.KUBE_APISERVER, Program.KUBE_CONTROLLER_MANAGER, Program.KUBE_SCHEDULER)
"""The servers that are always of one version and one source."""

SIMULATOR = (Program.ETCD, *KUBE_SERVERS, Program.KWOK, Program.KUBECTL)
"""What the simulated cluster needs."""

OLDER = (Program.KUBE_APISERVER_1_34,)
"""What the simulated cluster needs besides to be an older one."""

KUBE_NODE = (Program.KUBELET, Program.KUBE_PROXY)
"""Kubernetes' own servers of a node."""

NODE = (*KUBE_NODE, Program.NFD_MASTER, Program.NFD_WORKER)
"""What a real node beside the simulated ones needs, and what the GPU Operator would bring to it."""

YAML = (Program.LANGUAGE_YAML,)
"""What programs in YAML need."""

TYPESCRIPT = (Program.LANGUAGE_NODEJS,)
"""What programs in TypeScript need besides Node.js and npm."""

LANGUAGES = (*YAML, *TYPESCRIPT)
"""What programs in other languages than Python need."""

PACKAGES = (Program.PACKAGE_HOST,)
"""What stands in for `pulumi-language-python` where that is a build: today's CLI starts no package with 3.78.1."""

HOSTS = (Program.NVIDIA_CTK, Program.CONTAINERD, Program.DOCKERD)
"""What the tests of the host agent need: what it calls on a host."""

CHARTS = (Program.HELM,)
"""What renders a chart: the checks of charts and the list of images need it, an installation does not."""

REGISTRIES = (Program.CRANE,)
"""What asks registries for images: the list of images, and KAI's own programs on the simulator."""

MONITORING = (Program.PROMTOOL,)
"""What loads alert rules as Prometheus does, in tests."""


def parse_version(text: str) -> Version | None:
    """The first `1.2.3` or `v1.2.3` of a text; what follows the patch number is not looked at."""
    match = _VERSION.search(text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def show_version(version: Version) -> str:
    """`1.2.3`."""
    return ".".join(map(str, version))


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Versions from `minimum` on, up to but not including `below`."""

    minimum: Version
    below: Version | None = None

    def __contains__(self, version: Version) -> bool:
        return self.minimum <= version and (self.below is None or version < self.below)

    @property
    def text(self) -> str:
        """The range in words."""
        upper = f", below {show_version(self.below)}" if self.below else ""
        return f"{show_version(self.minimum)} or newer{upper}"


@dataclass(frozen=True, slots=True)
class VersionCheck:
    """How a program found on PATH is asked for its version, and what is accepted."""

    arguments: tuple[str, ...]
    accepted: VersionRange


_KUBE_SERVER = VersionCheck(("--version",), VersionRange((1, 36, 0), (1, 37, 0)))

VERSION_CHECKS: Mapping[Program, VersionCheck] = MappingProxyType(
    {
        Program.PULUMI: VersionCheck(("version",), VersionRange((3, 255, 0), (4, 0, 0))),
        # 3.5 is too old for the watches of Kubernetes 1.36 ("RequestWatchProgress is disabled").
        Program.ETCD: VersionCheck(("--version",), VersionRange((3, 6, 0), (4, 0, 0))),
        Program.KUBE_APISERVER: _KUBE_SERVER,
        Program.KUBE_APISERVER_1_34: VersionCheck(("--version",), VersionRange((1, 34, 0), (1, 35, 0))),
        Program.KUBE_CONTROLLER_MANAGER: _KUBE_SERVER,
        Program.KUBE_SCHEDULER: _KUBE_SERVER,
        # May be older than the API server, never newer; our tests want the one that they were written against.
        Program.KUBELET: _KUBE_SERVER,
        Program.KUBE_PROXY: _KUBE_SERVER,
        Program.NFD_MASTER: VersionCheck(("-version",), VersionRange((0, 18, 0), (0, 19, 0))),
        Program.NFD_WORKER: VersionCheck(("-version",), VersionRange((0, 18, 0), (0, 19, 0))),
        Program.KWOK: VersionCheck(("--version",), VersionRange((0, 7, 0))),
        # Kubernetes supports one minor version of skew to either side.
        Program.KUBECTL: VersionCheck(("version", "--client"), VersionRange((1, 35, 0), (1, 38, 0))),
        # Drop-in files came with 1.18, in the right folder since 1.18.1.
        Program.NVIDIA_CTK: VersionCheck(("--version",), VersionRange((1, 18, 1), (2, 0, 0))),
        # 2.3 was the first to merge files of different versions.
        Program.CONTAINERD: VersionCheck(("--version",), VersionRange((2, 3, 0), (3, 0, 0))),
        # Docker's own numbers: `--validate` came with 23.0. Its Go module counts from 2.0.
        Program.DOCKERD: VersionCheck(("--version",), VersionRange((23, 0, 0))),
        # The provider renders with Helm 4; Helm 3 renders these charts alike.
        Program.HELM: VersionCheck(("version",), VersionRange((3, 18, 0), (5, 0, 0))),
        # Before 0.21.8 `export` did not check a layer to its end.
        Program.CRANE: VersionCheck(("version",), VersionRange((0, 21, 8), (1, 0, 0))),
        Program.PROMTOOL: VersionCheck(("--version",), VersionRange((3, 0, 0), (4, 0, 0))),
    }
)
"""The programs that can tell their version; language hosts and the provider plugin can't."""


@dataclass(frozen=True, slots=True)
class ModuleFile:
    """A file taken out of a Go module's folder, at the version which the `go.mod` in `folder` selects."""

    folder: str
    module: str
    path: str

    @property
    def source(self) -> Path:
        """The folder with go.mod and go.sum."""
        return _HERE / self.folder


@dataclass(frozen=True, slots=True)
class Recipe:
    """How `go build` makes one or more programs from the modules pinned in one folder beside this file.

    With `cgo` the build needs a C compiler. `tags` are Go build tags.
    `embedded` files are laid beside the source before the build, `beside` ones, executable, beside the result.
    `minutes` is measured on two cores, modules fetched, with an empty Go cache, which grows by `go_cache_mib`.
    `result_mib` is the size of the executables.
    """

    name: str
    version: str
    folder: str
    packages: tuple[tuple[Program, str], ...]
    minutes: int
    go_cache_mib: int
    result_mib: int
    variables: tuple[tuple[str, str], ...] = ()
    tags: tuple[str, ...] = ()
    cgo: bool = False
    embedded: tuple[ModuleFile, ...] = ()
    beside: tuple[ModuleFile, ...] = ()

    @property
    def source(self) -> Path:
        """The folder with go.mod and go.sum."""
        return _HERE / self.folder

    @property
    def programs(self) -> tuple[Program, ...]:
        """What the recipe makes."""
        return tuple(program for program, _ in self.packages)

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the executables in the result."""
        return (*self.programs, *(Path(file.path).name for file in self.beside))

    @property
    def entry(self) -> str:
        """The cache entry's name: it changes with the recipe and with every pinned module."""
        folders = sorted({self.folder, *(file.folder for file in (*self.embedded, *self.beside))})
        pins = [
            (folder, str(name), (_HERE / folder / name).read_text(encoding="utf-8"))
            for folder in folders
            for name in module_files(_HERE / folder)
        ]
        recipe = {
            name: value
            for name, value in asdict(self).items()
            if name not in _ESTIMATES and (value or name not in _LATER)
        }
        return entry_name(self.name, self.version, recipe, pins)


def module_files(folder: Path) -> tuple[Path, ...]:
    """What a folder says to Go, relative to it: the pins, and its sources."""
    pins = [folder / name for name in ("go.mod", "go.sum") if (folder / name).exists()]
    return tuple(file.relative_to(folder) for file in (*pins, *sorted(folder.rglob("*.go"))))


def entry_name(name: str, version: str, *content: object) -> str:
    """`<name>-<version>-<first 12 hex digits of the SHA-256 over the content>`."""
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return f"{name}-{version}-{digest[:12]}"


_PULUMI_SDK = "github.com/pulumi/pulumi/sdk/v3"
_PROVIDER_MODULE = "github.com/pulumi/pulumi-kubernetes/provider/v4"
_NFD = "sigs.k8s.io/node-feature-discovery"
_TOOLKIT = "github.com/NVIDIA/nvidia-container-toolkit"
_CONTAINERD = "github.com/containerd/containerd/v2"
_DOCKER = "github.com/moby/moby/v2"
_CONTAINER_REGISTRY = "github.com/google/go-containerregistry"
_COMPONENT_BASE = "k8s.io/component-base/version"


def _kubernetes_variables(version: str) -> tuple[tuple[str, str], ...]:
    """Without these three, clients fail to parse the version that the server tells."""
    major, minor, _ = version.split(".")
    return (
        (f"{_COMPONENT_BASE}.gitVersion", f"v{version}"),
        (f"{_COMPONENT_BASE}.gitMajor", major),
        (f"{_COMPONENT_BASE}.gitMinor", minor),
    )


_KUBERNETES_VARIABLES = _kubernetes_variables(KUBERNETES_VERSION)

_RECIPES = (
    Recipe(
        name="pulumi",
        version=PULUMI_VERSION,
        folder="pulumi",
        packages=((Program.PULUMI, "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"),),
        # Without it `pulumi version` prints nothing, and the Automation API refuses the program.
        variables=((f"{_PULUMI_SDK}/go/common/version.Version", f"v{PULUMI_VERSION}"),),
        minutes=3,
        go_cache_mib=2000,
        result_mib=120,
    ),
    Recipe(
        name="pulumi-language-python",
        version=LANGUAGE_HOST_BUILT_VERSION,
        folder="language-python",
        packages=((Program.LANGUAGE_PYTHON, f"{_PULUMI_SDK}/python/cmd/pulumi-language-python"),),
        # The old module's script does not fit today's Python SDK; the newer module still carries a newer one.
        beside=(ModuleFile("pulumi", _PULUMI_SDK, f"python/cmd/{LANGUAGE_EXEC}"),),
        minutes=1,
        go_cache_mib=400,
        result_mib=30,
    ),
    Recipe(
        name="pulumi-language-yaml",
        version=LANGUAGE_YAML_BUILT_VERSION,
        folder="language-yaml",
        packages=((Program.LANGUAGE_YAML, "github.com/pulumi/pulumi-yaml/cmd/pulumi-language-yaml"),),
        minutes=1,
        go_cache_mib=1000,
        result_mib=45,
    ),
    Recipe(
        # Not upstream's own programs, which are not published: around its Go modules.
        name="language-hosts",
        version=PULUMI_VERSION,
        folder="language-hosts",
        packages=tuple((host, f"./{host}") for host in (Program.PACKAGE_HOST, Program.LANGUAGE_NODEJS)),
        beside=(ModuleFile("pulumi", _PULUMI_SDK, f"python/cmd/{LANGUAGE_EXEC}"),),
        minutes=1,
        go_cache_mib=1000,
        result_mib=110,
    ),
    Recipe(
        name="pulumi-resource-kubernetes",
        version=KUBERNETES_PROVIDER_VERSION,
        folder="kubernetes-provider",
        packages=((Program.KUBERNETES_PROVIDER, "."),),
        variables=((f"{_PROVIDER_MODULE}/pkg/version.Version", KUBERNETES_PROVIDER_VERSION),),
        embedded=(
            ModuleFile("kubernetes-provider", _PROVIDER_MODULE, "cmd/pulumi-resource-kubernetes/schema.json"),
            ModuleFile(
                "kubernetes-provider", _PROVIDER_MODULE, "cmd/pulumi-resource-kubernetes/terraform-mapping.json"
            ),
        ),
        minutes=8,
        go_cache_mib=5000,
        result_mib=320,
    ),
    Recipe(
        name="etcd",
        version=ETCD_VERSION,
        folder="etcd",
        packages=((Program.ETCD, "go.etcd.io/etcd/server/v3"),),
        minutes=1,
        go_cache_mib=500,
        result_mib=40,
    ),
    Recipe(
        name="kube-servers",
        version=KUBERNETES_VERSION,
        folder="kubernetes",
        packages=tuple((server, f"k8s.io/kubernetes/cmd/{server}") for server in KUBE_SERVERS),
        variables=_KUBERNETES_VARIABLES,
        minutes=9,
        go_cache_mib=5000,
        result_mib=280,
    ),
    Recipe(
        name="kube-apiserver-older",
        version=OLDER_KUBERNETES_VERSION,
        folder="kubernetes-1.34",
        packages=((Program.KUBE_APISERVER_1_34, "k8s.io/kubernetes/cmd/kube-apiserver"),),
        variables=_kubernetes_variables(OLDER_KUBERNETES_VERSION),
        minutes=4,
        go_cache_mib=4000,
        result_mib=100,
    ),
    Recipe(
        name="kubectl",
        version=KUBERNETES_VERSION,
        folder="kubernetes",
        packages=((Program.KUBECTL, "k8s.io/kubernetes/cmd/kubectl"),),
        variables=_KUBERNETES_VARIABLES,
        minutes=1,
        go_cache_mib=1000,
        result_mib=80,
    ),
    Recipe(
        name="kube-node",
        version=KUBERNETES_VERSION,
        folder="kubernetes",
        packages=tuple((program, f"k8s.io/kubernetes/cmd/{program}") for program in KUBE_NODE),
        variables=_KUBERNETES_VARIABLES,
        minutes=3,
        go_cache_mib=2000,
        result_mib=120,
    ),
    Recipe(
        name="node-feature-discovery",
        version=NFD_VERSION,
        folder="node-feature-discovery",
        packages=tuple((program, f"{_NFD}/cmd/{program}") for program in (Program.NFD_MASTER, Program.NFD_WORKER)),
        variables=(
            (f"{_NFD}/pkg/version.version", f"v{NFD_VERSION}"),
            # Where a container finds the host's folders, as in the official image: /host-sys, /host-etc.
            (f"{_NFD}/pkg/utils/hostpath.pathPrefix", "/host-"),
        ),
        minutes=3,
        go_cache_mib=1500,
        result_mib=130,
    ),
    Recipe(
        name="kwok",
        version=KWOK_VERSION,
        folder="kwok",
        packages=((Program.KWOK, "sigs.k8s.io/kwok/cmd/kwok"),),
        variables=(("sigs.k8s.io/kwok/pkg/consts.Version", f"v{KWOK_VERSION}"),),
        minutes=2,
        go_cache_mib=1000,
        result_mib=90,
    ),
    Recipe(
        name="nvidia-ctk",
        version=NVIDIA_CTK_VERSION,
        folder="nvidia-container-toolkit",
        packages=((Program.NVIDIA_CTK, f"{_TOOLKIT}/cmd/nvidia-ctk"),),
        variables=((f"{_TOOLKIT}/internal/info.version", NVIDIA_CTK_VERSION),),
        # It loads NVML with dlopen.
        cgo=True,
        minutes=1,
        go_cache_mib=500,
        result_mib=15,
    ),
    Recipe(
        name="containerd",
        version=CONTAINERD_VERSION,
        folder="containerd",
        packages=((Program.CONTAINERD, f"{_CONTAINERD}/cmd/containerd"),),
        variables=((f"{_CONTAINERD}/version.Version", f"v{CONTAINERD_VERSION}"),),
        # They need C libraries, and nothing here has such a file system.
        tags=("no_btrfs", "no_zfs"),
        minutes=1,
        go_cache_mib=1000,
        result_mib=45,
    ),
    Recipe(
        # Docker Engine 29's code: the first that is a Go module of its own.
        name="dockerd",
        version=DOCKERD_VERSION,
        folder="docker",
        packages=((Program.DOCKERD, f"{_DOCKER}/cmd/dockerd"),),
        variables=((f"{_DOCKER}/dockerversion.Version", DOCKERD_VERSION),),
        minutes=4,
        go_cache_mib=2000,
        result_mib=90,
    ),
    Recipe(
        name="helm",
        version=HELM_VERSION,
        folder="helm",
        packages=((Program.HELM, "helm.sh/helm/v4/cmd/helm"),),
        variables=(("helm.sh/helm/v4/internal/version.version", f"v{HELM_VERSION}"),),
        minutes=4,
        go_cache_mib=2000,
        result_mib=70,
    ),
    Recipe(
        name="crane",
        version=CRANE_VERSION,
        folder="crane",
        packages=((Program.CRANE, f"{_CONTAINER_REGISTRY}/cmd/crane"),),
        variables=((f"{_CONTAINER_REGISTRY}/cmd/crane/cmd.Version", CRANE_VERSION),),
        minutes=1,
        go_cache_mib=400,
        result_mib=15,
    ),
    Recipe(
        name="promtool",
        version=PROMETHEUS_VERSION,
        folder="prometheus",
        packages=((Program.PROMTOOL, "github.com/prometheus/prometheus/cmd/promtool"),),
        variables=(("github.com/prometheus/common/version.Version", PROMETHEUS_VERSION),),
        # Every cloud's SDK is for finding targets there, of which rules know nothing.
        tags=("remove_all_sd",),
        minutes=4,
        go_cache_mib=2000,
        result_mib=90,
    ),
)

RECIPES: Mapping[Program, Recipe] = MappingProxyType(
    {program: recipe for recipe in _RECIPES for program in recipe.programs}
)
"""Every program can be built."""
