"""The programs that stacks, the simulator and the commands need: versions, and how each is had.

Those that only tests need are in `tests/support/programs/`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from toolchain.official import Asset, ChecksumFile, Download, PinnedChecksum, Platform
from toolchain.program import Program, Publication, VersionCheck, VersionRange, unpublished
from toolchain.recipe import ModuleFile, Recipe

# renovate: datasource=go depName=github.com/pulumi/pulumi/pkg/v3
PULUMI_VERSION = "3.259.0"
# Also pinned in pyproject.toml as the SDK `pulumi-kubernetes`. The newest provider that is published as a Go module
# too, so that a download and a build are the same version. With 4.32.0, built by hand from its repository, stacks were
# installed, adopted, recovered, rolled back and upgraded by their tests all the same (2026-11-26).
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
# renovate: datasource=go depName=helm.sh/helm/v4
HELM_VERSION = "4.3.1"
# renovate: datasource=go depName=github.com/google/go-containerregistry
CRANE_VERSION = "0.22.1"

# Pulumi: the engine, its language hosts, and the provider of Kubernetes.

LANGUAGE_EXEC = "pulumi-language-python-exec"
"""The script that the language host starts; it lies in the host's folder or elsewhere on PATH."""

_PULUMI, _LANGUAGE_PYTHON = "pulumi", "pulumi-language-python"
_LANGUAGE_YAML, _LANGUAGE_NODEJS = "pulumi-language-yaml", "pulumi-language-nodejs"
_PULUMI_SDK = "github.com/pulumi/pulumi/sdk/v3"
# The old module's script does not fit today's Python SDK; the newer module still carries a newer one.
_EXEC_SCRIPT = ModuleFile("pulumi", _PULUMI_SDK, f"python/cmd/{LANGUAGE_EXEC}")


def _pulumi_archive(platform: Platform) -> Download:
    processor = {"amd64": "x64", "arm64": "arm64"}[platform.processor]
    archive = f"pulumi-v{PULUMI_VERSION}-{platform.system}-{processor}.tar.gz"
    sums = f"https://github.com/pulumi/pulumi/releases/download/v{PULUMI_VERSION}/pulumi-{PULUMI_VERSION}-checksums.txt"
    asset = Asset(
        f"https://get.pulumi.com/releases/sdk/{archive}",
        ChecksumFile(sums),
        (_PULUMI, _LANGUAGE_PYTHON, _LANGUAGE_YAML, _LANGUAGE_NODEJS, LANGUAGE_EXEC),
    )
    return Download("pulumi", PULUMI_VERSION, (asset,))


PULUMI = Program(
    _PULUMI,
    Recipe(
        name="pulumi",
        version=PULUMI_VERSION,
        folder="pulumi",
        packages=((_PULUMI, "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"),),
        # Without it `pulumi version` prints nothing, and the Automation API refuses the program.
        variables=((f"{_PULUMI_SDK}/go/common/version.Version", f"v{PULUMI_VERSION}"),),
        minutes=3,
        go_cache_mib=2000,
        result_mib=120,
    ),
    VersionCheck(("version",), VersionRange((3, 255, 0), (4, 0, 0))),
    _pulumi_archive,
)

NO_PLUGIN_DOWNLOADS = {"PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true"}
"""The variable of a pulumi that has every plugin it needs.

Symptom without it: at each run pulumi tries to download the plugin of each package that is installed, whether the
program uses it or not; where there is no internet, pulumi-command's costs 2.5 s of tries (3.259).
"""

LANGUAGE_PYTHON = Program(
    _LANGUAGE_PYTHON,
    Recipe(
        name="pulumi-language-python",
        version=LANGUAGE_HOST_BUILT_VERSION,
        folder="language-python",
        packages=((_LANGUAGE_PYTHON, f"{_PULUMI_SDK}/python/cmd/pulumi-language-python"),),
        beside=(_EXEC_SCRIPT,),
        minutes=1,
        go_cache_mib=400,
        result_mib=30,
    ),
    None,
    _pulumi_archive,
)

LANGUAGE_YAML = Program(
    _LANGUAGE_YAML,
    Recipe(
        name="pulumi-language-yaml",
        version=LANGUAGE_YAML_BUILT_VERSION,
        folder="language-yaml",
        packages=((_LANGUAGE_YAML, "github.com/pulumi/pulumi-yaml/cmd/pulumi-language-yaml"),),
        minutes=1,
        go_cache_mib=1000,
        result_mib=45,
    ),
    None,
    _pulumi_archive,
)

_PACKAGE_HOST = "pulumi-language-python-packages"
_LANGUAGE_HOSTS = Recipe(
    # Not upstream's own programs, which are not published: around its Go modules.
    name="language-hosts",
    version=PULUMI_VERSION,
    folder="language-hosts",
    packages=tuple((host, f"./{host}") for host in (_PACKAGE_HOST, _LANGUAGE_NODEJS)),
    beside=(_EXEC_SCRIPT,),
    minutes=1,
    go_cache_mib=1000,
    result_mib=110,
)

LANGUAGE_NODEJS = Program(_LANGUAGE_NODEJS, _LANGUAGE_HOSTS, None, _pulumi_archive)

PACKAGE_HOST = Program(
    _PACKAGE_HOST, _LANGUAGE_HOSTS, None, unpublished("an official pulumi has a Python host that starts packages")
)
"""What stands in for `pulumi-language-python` where that is a build: today's CLI starts no package with 3.78.1."""

_PROVIDER = "pulumi-resource-kubernetes"
_PROVIDER_MODULE = "github.com/pulumi/pulumi-kubernetes/provider/v4"

KUBERNETES_PROVIDER = Program(
    _PROVIDER,
    Recipe(
        name=_PROVIDER,
        version=KUBERNETES_PROVIDER_VERSION,
        folder="kubernetes-provider",
        packages=((_PROVIDER, "."),),
        variables=((f"{_PROVIDER_MODULE}/pkg/version.Version", KUBERNETES_PROVIDER_VERSION),),
        embedded=tuple(
            ModuleFile("kubernetes-provider", _PROVIDER_MODULE, f"cmd/{_PROVIDER}/{file}")
            for file in ("schema.json", "terraform-mapping.json")
        ),
        # Every kind of Kubernetes as Pulumi programs in Go write it: a quarter less time, and the provider uses few.
        plain=("github.com/pulumi/pulumi-kubernetes/sdk/v4/...",),
        minutes=8,
        go_cache_mib=5000,
        result_mib=320,
    ),
    None,
    unpublished("`pulumi plugin install` fetches this plugin"),
)

# Kubernetes and what the simulator runs beside it.


def _etcd_archive(platform: Platform) -> Download:
    base = f"https://github.com/etcd-io/etcd/releases/download/v{ETCD_VERSION}"
    suffix = "tar.gz" if platform.system == "linux" else "zip"
    archive = f"etcd-v{ETCD_VERSION}-{platform.system}-{platform.processor}.{suffix}"
    return Download("etcd", ETCD_VERSION, (Asset(f"{base}/{archive}", ChecksumFile(f"{base}/SHA256SUMS"), ("etcd",)),))


ETCD = Program(
    "etcd",
    Recipe(
        name="etcd",
        version=ETCD_VERSION,
        folder="etcd",
        packages=(("etcd", "go.etcd.io/etcd/server/v3"),),
        minutes=1,
        go_cache_mib=500,
        result_mib=40,
    ),
    # 3.5 is too old for the watches of Kubernetes 1.36 ("RequestWatchProgress is disabled").
    VersionCheck(("--version",), VersionRange((3, 6, 0), (4, 0, 0))),
    _etcd_archive,
)


def kubernetes_package(program: str) -> tuple[str, str]:
    """A program of Kubernetes' own, and the package that it is made of."""
    return program, f"k8s.io/kubernetes/cmd/{program}"


def kubernetes_variables(version: str) -> tuple[tuple[str, str], ...]:
    """Without these three, clients fail to parse the version that the server tells."""
    base = "k8s.io/component-base/version"
    major, minor, _ = version.split(".")
    return ((f"{base}.gitVersion", f"v{version}"), (f"{base}.gitMajor", major), (f"{base}.gitMinor", minor))


def kubernetes_release(name: str, programs: tuple[str, ...], *, servers: bool) -> Publication:
    """The files of Kubernetes' release; servers are for linux only."""

    def files(platform: Platform) -> Download | str:
        if servers and platform.system != "linux":
            return "Kubernetes publishes its servers for linux only"
        base = f"https://dl.k8s.io/v{KUBERNETES_VERSION}/bin/{platform.system}/{platform.processor}"
        assets = [Asset(f"{base}/{file}", ChecksumFile(f"{base}/{file}.sha256"), (file,)) for file in programs]
        return Download(name, KUBERNETES_VERSION, tuple(assets))

    return files


KUBE_SERVER_CHECK = VersionCheck(("--version",), VersionRange((1, 36, 0), (1, 37, 0)))

_SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
_KUBE_SERVERS = Recipe(
    name="kube-servers",
    version=KUBERNETES_VERSION,
    folder="kubernetes",
    packages=tuple(map(kubernetes_package, _SERVERS)),
    variables=kubernetes_variables(KUBERNETES_VERSION),
    minutes=9,
    go_cache_mib=5000,
    result_mib=280,
)


def _kube_server(name: str) -> Program:
    return Program(name, _KUBE_SERVERS, KUBE_SERVER_CHECK, kubernetes_release("kube-servers", _SERVERS, servers=True))


KUBE_APISERVER, KUBE_CONTROLLER_MANAGER, KUBE_SCHEDULER = KUBE_SERVERS = tuple(map(_kube_server, _SERVERS))
"""The servers that are always of one version and one source."""


def _older_api_server(platform: Platform) -> Download | str:
    if platform.system != "linux":
        return "Kubernetes publishes its servers for linux only"
    url = f"https://dl.k8s.io/v{OLDER_KUBERNETES_VERSION}/bin/{platform.system}/{platform.processor}/kube-apiserver"
    asset = Asset(url, ChecksumFile(f"{url}.sha256"), ("kube-apiserver-1.34",))
    return Download("kube-apiserver-older", OLDER_KUBERNETES_VERSION, (asset,))


KUBE_APISERVER_1_34 = Program(
    "kube-apiserver-1.34",
    Recipe(
        name="kube-apiserver-older",
        version=OLDER_KUBERNETES_VERSION,
        folder="kubernetes-1.34",
        packages=(("kube-apiserver-1.34", "k8s.io/kubernetes/cmd/kube-apiserver"),),
        variables=kubernetes_variables(OLDER_KUBERNETES_VERSION),
        minutes=4,
        go_cache_mib=4000,
        result_mib=100,
    ),
    VersionCheck(("--version",), VersionRange((1, 34, 0), (1, 35, 0))),
    _older_api_server,
)

KUBECTL = Program(
    "kubectl",
    Recipe(
        name="kubectl",
        version=KUBERNETES_VERSION,
        folder="kubernetes",
        packages=(kubernetes_package("kubectl"),),
        variables=kubernetes_variables(KUBERNETES_VERSION),
        minutes=1,
        go_cache_mib=1000,
        result_mib=80,
    ),
    # Kubernetes supports one minor version of skew to either side.
    VersionCheck(("version", "--client"), VersionRange((1, 35, 0), (1, 38, 0))),
    kubernetes_release("kubectl", ("kubectl",), servers=False),
)

# kwok's release holds no checksum file (its release script uploads the binaries alone). These are the sums that
# the release's packagers verify; a platform without one is built instead.
_KWOK_SHA256: Mapping[Platform, str] = MappingProxyType(
    {
        Platform("linux", "amd64"): "f5a4385a2ae1b9dd7f8acae18e002a75c0ebba124ae9d7259aa8dadb50711f46",
        Platform("linux", "arm64"): "628f7d277860f524a2a775c217adcc58828e7b59ab0933680315784f1b8b0e37",
    }
)


def _kwok_binary(platform: Platform) -> Download | str:
    sha256 = _KWOK_SHA256.get(platform)
    if sha256 is None:
        return f"kwok publishes no checksums, and none is known for {platform}"
    base = f"https://github.com/kubernetes-sigs/kwok/releases/download/v{KWOK_VERSION}"
    asset = Asset(f"{base}/kwok-{platform.system}-{platform.processor}", PinnedChecksum(sha256), ("kwok",))
    return Download("kwok", KWOK_VERSION, (asset,))


KWOK = Program(
    "kwok",
    Recipe(
        name="kwok",
        version=KWOK_VERSION,
        folder="kwok",
        packages=(("kwok", "sigs.k8s.io/kwok/cmd/kwok"),),
        variables=(("sigs.k8s.io/kwok/pkg/consts.Version", f"v{KWOK_VERSION}"),),
        minutes=2,
        go_cache_mib=1000,
        result_mib=90,
    ),
    VersionCheck(("--version",), VersionRange((0, 7, 0))),
    _kwok_binary,
)

# What looks at charts and images.


def _helm_archive(platform: Platform) -> Download:
    url = f"https://get.helm.sh/helm-v{HELM_VERSION}-{platform.system}-{platform.processor}.tar.gz"
    return Download("helm", HELM_VERSION, (Asset(url, ChecksumFile(f"{url}.sha256sum"), ("helm",)),))


HELM = Program(
    "helm",
    Recipe(
        name="helm",
        version=HELM_VERSION,
        folder="helm",
        packages=(("helm", "helm.sh/helm/v4/cmd/helm"),),
        variables=(("helm.sh/helm/v4/internal/version.version", f"v{HELM_VERSION}"),),
        minutes=4,
        go_cache_mib=2000,
        result_mib=70,
    ),
    # The provider has Helm 3.18; Helm 4 renders these charts alike.
    VersionCheck(("version",), VersionRange((3, 18, 0), (5, 0, 0))),
    _helm_archive,
)

_CONTAINER_REGISTRY = "github.com/google/go-containerregistry"


def _crane_archive(platform: Platform) -> Download:
    base = f"https://{_CONTAINER_REGISTRY}/releases/download/v{CRANE_VERSION}"
    processor = {"amd64": "x86_64", "arm64": "arm64"}[platform.processor]
    archive = f"go-containerregistry_{platform.system.title()}_{processor}.tar.gz"
    asset = Asset(f"{base}/{archive}", ChecksumFile(f"{base}/checksums.txt"), ("crane",))
    return Download("crane", CRANE_VERSION, (asset,))


CRANE = Program(
    "crane",
    Recipe(
        name="crane",
        version=CRANE_VERSION,
        folder="crane",
        packages=(("crane", f"{_CONTAINER_REGISTRY}/cmd/crane"),),
        variables=((f"{_CONTAINER_REGISTRY}/cmd/crane/cmd.Version", CRANE_VERSION),),
        minutes=1,
        go_cache_mib=400,
        result_mib=15,
    ),
    # Before 0.21.8 `export` did not check a layer to its end.
    VersionCheck(("version",), VersionRange((0, 21, 8), (1, 0, 0))),
    _crane_archive,
)

# Who needs what.

ENGINE = (PULUMI, LANGUAGE_PYTHON, KUBERNETES_PROVIDER)
"""What `pulumi up` needs."""

SIMULATOR = (ETCD, *KUBE_SERVERS, KWOK, KUBECTL)
"""What the simulated cluster needs."""

OLDER = (KUBE_APISERVER_1_34,)
"""What the simulated cluster needs besides to be an older one."""

YAML = (LANGUAGE_YAML,)
"""What programs in YAML need."""

LANGUAGES = (*YAML, LANGUAGE_NODEJS)
"""What programs in other languages than Python need; those in TypeScript need Node.js and npm besides."""

PACKAGES = (PACKAGE_HOST,)
"""What starts a package in Python where Pulumi is built."""

CHARTS = (HELM,)
"""What renders a chart: the checks of charts and the list of images need it, an installation does not."""

REGISTRIES = (CRANE,)
"""What asks registries for images: the list of images, and KAI's own programs on the simulator."""

ALL = (*ENGINE, *SIMULATOR, *OLDER, *LANGUAGES, *PACKAGES, *CHARTS, *REGISTRIES)
"""Every program, in the order in which lists show them."""
