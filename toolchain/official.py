"""Where upstream projects publish the programs, and what their checksums are."""

import functools
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType

from typing_extensions import override

from toolchain.programs import (
    CONTAINERD_VERSION,
    CRANE_VERSION,
    ETCD_VERSION,
    HELM_VERSION,
    KUBE_NODE,
    KUBE_SERVERS,
    KUBERNETES_VERSION,
    KWOK_VERSION,
    LANGUAGE_EXEC,
    LANGUAGES,
    OLDER,
    OLDER_KUBERNETES_VERSION,
    PROMETHEUS_VERSION,
    PULUMI_VERSION,
    Program,
    entry_name,
)


@dataclass(frozen=True, slots=True)
class ChecksumFile:
    """A published file: `<sha256>` alone, or lines of `<sha256>  <file name>`."""

    url: str


@dataclass(frozen=True, slots=True)
class PinnedChecksum:
    """A SHA-256 written down here, in hex, because upstream publishes none."""

    sha256: str


@dataclass(frozen=True, slots=True)
class Asset:
    """One published file: an archive with the named executables in it, or (without an archive suffix) an executable."""

    url: str
    checksum: ChecksumFile | PinnedChecksum
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Download:
    """Assets that are had together or not at all."""

    name: str
    version: str
    assets: tuple[Asset, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the executables in the result."""
        return tuple(file for asset in self.assets for file in asset.files)

    @property
    def entry(self) -> str:
        """The cache entry's name: it changes with every address and pinned checksum."""
        return entry_name(self.name, self.version, asdict(self))


@dataclass(frozen=True, slots=True)
class Platform:
    """An operating system (`linux`, `darwin`) and a processor (`amd64`, `arm64`), as Go names them."""

    system: str
    processor: str

    @override
    def __str__(self) -> str:
        return f"{self.system}/{self.processor}"


@functools.cache
def this_platform() -> Platform:
    """What this machine is."""
    processor = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return Platform(platform.system().lower(), processor)


_PLATFORMS = frozenset(
    Platform(system, processor) for system in ("linux", "darwin") for processor in ("amd64", "arm64")
)

# kwok's release holds no checksum file (its release script uploads the binaries alone). These are the sums that
# the release's packagers verify; a platform without one is built instead.
_KWOK_SHA256: Mapping[Platform, str] = MappingProxyType(
    {
        Platform("linux", "amd64"): "f5a4385a2ae1b9dd7f8acae18e002a75c0ebba124ae9d7259aa8dadb50711f46",
        Platform("linux", "arm64"): "628f7d277860f524a2a775c217adcc58828e7b59ab0933680315784f1b8b0e37",
    }
)


def official_download(program: Program, platform: Platform) -> Download | str:
    """What upstream publishes for the platform, or the reason why it can't be used."""
    if platform not in _PLATFORMS:
        return f"nothing is published for {platform.system}/{platform.processor}"
    if program in (*KUBE_SERVERS, *OLDER, *KUBE_NODE) and platform.system != "linux":
        return "Kubernetes publishes its servers for linux only"
    return _published(program, platform)


def _published(program: Program, platform: Platform) -> Download | str:  # noqa: C901, PLR0911, PLR0912 - a table, one row a program
    match program:
        case Program.PULUMI | Program.LANGUAGE_PYTHON | Program.LANGUAGE_YAML | Program.LANGUAGE_NODEJS:
            return _pulumi(platform)
        case Program.PACKAGE_HOST:
            return "an official pulumi has a Python host that starts packages"
        case Program.KUBERNETES_PROVIDER:
            return "`pulumi plugin install` fetches this plugin"
        case Program.ETCD:
            return _etcd(platform)
        case Program.KUBE_APISERVER | Program.KUBE_CONTROLLER_MANAGER | Program.KUBE_SCHEDULER:
            return _kubernetes("kube-servers", KUBE_SERVERS, platform)
        case Program.KUBE_APISERVER_1_34:
            return _older_api_server(platform)
        case Program.KUBECTL:
            return _kubernetes("kubectl", (Program.KUBECTL,), platform)
        case Program.KUBELET | Program.KUBE_PROXY:
            return _kubernetes("kube-node", KUBE_NODE, platform)
        case Program.NFD_MASTER | Program.NFD_WORKER:
            return "Node Feature Discovery publishes images only"
        case Program.KWOK:
            return _kwok(platform)
        case Program.NVIDIA_CTK:
            return "NVIDIA publishes packages for Linux distributions only"
        case Program.CONTAINERD:
            return _containerd(platform)
        case Program.DOCKERD:
            return "Docker publishes its archives without checksums"
        case Program.HELM:
            return _helm(platform)
        case Program.CRANE:
            return _crane(platform)
        case Program.PROMTOOL:
            return _promtool(platform)


def _pulumi(platform: Platform) -> Download:
    processor = {"amd64": "x64", "arm64": "arm64"}[platform.processor]
    archive = f"pulumi-v{PULUMI_VERSION}-{platform.system}-{processor}.tar.gz"
    sums = f"https://github.com/pulumi/pulumi/releases/download/v{PULUMI_VERSION}/pulumi-{PULUMI_VERSION}-checksums.txt"
    asset = Asset(
        f"https://get.pulumi.com/releases/sdk/{archive}",
        ChecksumFile(sums),
        (Program.PULUMI, Program.LANGUAGE_PYTHON, *LANGUAGES, LANGUAGE_EXEC),
    )
    return Download("pulumi", PULUMI_VERSION, (asset,))


def _etcd(platform: Platform) -> Download:
    base = f"https://github.com/etcd-io/etcd/releases/download/v{ETCD_VERSION}"
    suffix = "tar.gz" if platform.system == "linux" else "zip"
    archive = f"etcd-v{ETCD_VERSION}-{platform.system}-{platform.processor}.{suffix}"
    return Download(
        "etcd", ETCD_VERSION, (Asset(f"{base}/{archive}", ChecksumFile(f"{base}/SHA256SUMS"), (Program.ETCD,)),)
    )


def _kubernetes(name: str, programs: tuple[Program, ...], platform: Platform) -> Download:
    base = f"https://dl.k8s.io/v{KUBERNETES_VERSION}/bin/{platform.system}/{platform.processor}"
    return Download(
        name,
        KUBERNETES_VERSION,
        tuple(Asset(f"{base}/{program}", ChecksumFile(f"{base}/{program}.sha256"), (program,)) for program in programs),
    )


def _older_api_server(platform: Platform) -> Download:
    url = f"https://dl.k8s.io/v{OLDER_KUBERNETES_VERSION}/bin/{platform.system}/{platform.processor}/kube-apiserver"
    asset = Asset(url, ChecksumFile(f"{url}.sha256"), (Program.KUBE_APISERVER_1_34,))
    return Download("kube-apiserver-older", OLDER_KUBERNETES_VERSION, (asset,))


def _containerd(platform: Platform) -> Download | str:
    if platform.system != "linux":
        return "containerd is published for linux only"
    archive = f"containerd-static-{CONTAINERD_VERSION}-linux-{platform.processor}.tar.gz"
    url = f"https://github.com/containerd/containerd/releases/download/v{CONTAINERD_VERSION}/{archive}"
    asset = Asset(url, ChecksumFile(f"{url}.sha256sum"), (Program.CONTAINERD,))
    return Download("containerd", CONTAINERD_VERSION, (asset,))


def _helm(platform: Platform) -> Download:
    url = f"https://get.helm.sh/helm-v{HELM_VERSION}-{platform.system}-{platform.processor}.tar.gz"
    asset = Asset(url, ChecksumFile(f"{url}.sha256sum"), (Program.HELM,))
    return Download("helm", HELM_VERSION, (asset,))


def _crane(platform: Platform) -> Download:
    base = f"https://github.com/google/go-containerregistry/releases/download/v{CRANE_VERSION}"
    processor = {"amd64": "x86_64", "arm64": "arm64"}[platform.processor]
    archive = f"go-containerregistry_{platform.system.title()}_{processor}.tar.gz"
    asset = Asset(f"{base}/{archive}", ChecksumFile(f"{base}/checksums.txt"), (Program.CRANE,))
    return Download("crane", CRANE_VERSION, (asset,))


def _promtool(platform: Platform) -> Download:
    base = f"https://github.com/prometheus/prometheus/releases/download/v{PROMETHEUS_VERSION}"
    archive = f"prometheus-{PROMETHEUS_VERSION}.{platform.system}-{platform.processor}.tar.gz"
    asset = Asset(f"{base}/{archive}", ChecksumFile(f"{base}/sha256sums.txt"), (Program.PROMTOOL,))
    return Download("promtool", PROMETHEUS_VERSION, (asset,))


def _kwok(platform: Platform) -> Download | str:
    sha256 = _KWOK_SHA256.get(platform)
    if sha256 is None:
        return f"kwok publishes no checksums, and none is known for {platform.system}/{platform.processor}"
    url = (
        f"https://github.com/kubernetes-sigs/kwok/releases/download/v{KWOK_VERSION}"
        f"/kwok-{platform.system}-{platform.processor}"
    )
    return Download("kwok", KWOK_VERSION, (Asset(url, PinnedChecksum(sha256), (Program.KWOK,)),))
