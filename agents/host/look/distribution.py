"""The Kubernetes distribution of a host, and where it keeps its container runtime.

Paths: k3s-io/k3s `pkg/agent/containerd`, canonical/k8sd `src/k8s/pkg/snap`, canonical/microk8s
`microk8s-resources/default-args`, and the kubeadm guide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from agents.host.errors import HostError
from agents.host.look import units

if TYPE_CHECKING:
    from agents.host.commands import Tools
    from agents.host.root import Root


class Mechanism(Enum):
    """How a distribution's containerd gets another runtime."""

    DROP_IN = "a file that the main configuration imports"
    TEMPLATE = "the template from which the configuration is rendered at each start"
    OWN = "the distribution looks for the runtime's program at each start"


@dataclass(frozen=True)
class Layout:
    """Where a distribution keeps its containerd; host paths.

    Attributes:
        name: The distribution.
        mechanism: How it gets another runtime.
        config: The main configuration, or the template.
        effective: The configuration that containerd reads.
        socket: containerd's socket.
        programs: Folders with its own `containerd` and `ctr`; empty means PATH.
        restart: The command that restarts containerd.
        unit: The systemd unit to be active afterwards.
    """

    name: str
    mechanism: Mechanism
    config: str
    effective: str
    socket: str
    programs: tuple[str, ...]
    restart: tuple[str, ...]
    unit: str

    @property
    def drop_ins(self) -> str:
        """The folder of imported files."""
        return f"{self.config.rpartition('/')[0]}/conf.d"

    def program(self, tools: Tools, name: str) -> str | None:
        """The path of the distribution's own `containerd` or `ctr` on this machine."""
        for folder in self.programs:
            if tools.root.exists(f"{folder}/{name}"):
                return str(tools.root.path(f"{folder}/{name}"))
        return None if self.programs else tools.find(name)


@dataclass(frozen=True)
class Signs:
    """The distributions of which there are signs, the likeliest first, each with its reason."""

    reasons: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """The likeliest, `none` without any."""
        return self.reasons[0][0] if self.reasons else "none"


_SIGNS = (
    ("k3s", "/var/lib/rancher/k3s/agent"),
    ("rke2", "/var/lib/rancher/rke2/agent"),
    ("k8s-snap", "/var/snap/k8s/common"),
    ("microk8s", "/var/snap/microk8s/current"),
)
_KUBEADM = ("/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/kubeadm-flags.env")
_K0S = "/var/lib/k0s"
"""k0s brings a containerd of its own, with files of its own."""
_ENDPOINTS = (
    ("/var/lib/kubelet/kubeadm-flags.env", re.compile(r"""--container-runtime-endpoint[= ]["']?([^"'\s]+)""")),
    ("/var/lib/kubelet/config.yaml", re.compile(r"""^containerRuntimeEndpoint:[ \t]*["']?([^"'\s#]+)""", re.MULTILINE)),
)
"""Where kubeadm says whom the kubelet asks for containers; an argument wins."""
_ARGUMENT = re.compile(r"""(?<!\S)["']?--(docker|container-runtime-endpoint)(?=["'\s]|$|=(?!false\b))""")
_SETTING = re.compile(
    r"""^(docker(?=:[ \t]*["']?true\b)|container-runtime-endpoint(?=:[ \t]*["']?[^"'\s]))""", re.MULTILINE
)
"""What takes k3s' and RKE2's own containerd away: in the unit, and in their file."""
_OTHER_RUNTIME = (
    "Take the host out of `hosts`, and configure that runtime as the NVIDIA Container Toolkit's guide says; nothing "
    "was changed."
)
_SNAP_BASE = "/var/snap/k8s/common/lock/.containerd-base-dir"


def detect(root: Root) -> Signs:
    """Look for each distribution's own folder; kubeadm only where no other one is."""
    signs = [(name, f"{path} exists: {name}") for name, path in _SIGNS if root.exists(path)]
    kubeadm = [path for path in _KUBEADM if root.exists(path)]
    if kubeadm and not signs:
        signs.append(("kubeadm", f"{kubeadm[0]} exists: kubeadm"))
    return Signs(tuple(signs))


def chosen(root: Root, distribution: str) -> Layout:
    """The layout of the wanted distribution, or of the one there is.

    Raises:
        HostError: It is not there, or `auto` finds none or several.
    """
    present = detect(root)
    names = [name for name, _ in present.reasons]
    if distribution == "auto":
        if len(names) != 1:
            listing = " and ".join(names) if names else "none"
            raise HostError(
                f"The Kubernetes distribution can't be told: there are signs of {listing}.",
                "Install Kubernetes first, or name the distribution in the stack's settings.",
            )
        distribution = names[0]
    # kubeadm's files may lie beside another distribution's; a node to be joined has none yet.
    if distribution != "kubeadm" and distribution not in names:
        listing = " and ".join(names) if names else "no distribution"
        remedy = "Correct the distribution in the stack's settings, or install it."
        if distribution in ("k3s", "rke2"):
            remedy += f" If its data-dir is another folder, put a link to that at /var/lib/rancher/{distribution}."
        raise HostError(f"The stack says {distribution}, but this host has signs of {listing}.", remedy)
    system = layout(root, distribution)
    if distribution == "kubeadm":
        _refuse_other_runtime(root, system, names)
    if system.mechanism is Mechanism.OWN:
        _refuse_runtime_of_an_option(root, system)
    return system


def _refuse_other_runtime(root: Root, system: Layout, names: list[str]) -> None:
    """Refuse a node whose containers are not the system's containerd's: one may be there for Docker alone."""
    if root.exists(_K0S) and not names:
        raise HostError(
            f"{_K0S} exists: k0s runs containers with a containerd of its own, not the system's.", _OTHER_RUNTIME
        )
    said = [
        (path, match.group(1)) for path, pattern in _ENDPOINTS if (match := pattern.search(root.read_text(path) or ""))
    ]
    for path, endpoint in said[:1]:
        socket = re.sub(r"^/var/run/", "/run/", endpoint[len("unix://") :] if "://" in endpoint else endpoint)
        if socket != system.socket:
            raise HostError(
                f"The kubelet runs containers by {endpoint}, as {path} says, not by containerd at {system.socket}.",
                _OTHER_RUNTIME,
            )
    units.refuse_other_configuration(root, system.unit, "containerd", ("--config", "-c"), system.config)


def _refuse_runtime_of_an_option(root: Root, own: Layout) -> None:
    """Refuse a k3s or RKE2 that was told to leave its own containerd alone."""
    places = (
        *(
            (f"{folder}/{own.unit}.service", _ARGUMENT)
            for folder in ("/etc/systemd/system", "/usr/local/lib/systemd/system")
        ),
        (f"/etc/rancher/{own.name}/config.yaml", _SETTING),
        *((path, _SETTING) for path in root.glob(f"/etc/rancher/{own.name}/config.yaml.d/*.yaml")),
    )
    for path, option in places:
        match = option.search(root.read_text(path) or "")
        if match:
            raise HostError(
                f"{path} has the option {match.group(1)}, so {own.name} runs containers without its own containerd.",
                f"Take the option away and restart {own.unit}, which then pulls all images again. Or: {_OTHER_RUNTIME}",
            )


def layout(root: Root, name: str) -> Layout:
    """The layout of a distribution.

    Raises:
        HostError: k8s-snap does not tell a usable base folder.
    """
    if name in ("k3s", "rke2"):
        base = f"/var/lib/rancher/{name}"
        unit = _rancher_unit(root, name)
        config = f"{base}/agent/etc/containerd/config.toml"
        programs = (f"{base}/data/current/bin",) if name == "k3s" else (f"{base}/bin",)
        socket = "/run/k3s/containerd/containerd.sock"
        return Layout(name, Mechanism.OWN, config, config, socket, programs, ("systemctl", "restart", unit), unit)
    if name == "k8s-snap":
        base = _snap_base(root)
        config = f"{base}/etc/containerd/config.toml"
        return Layout(
            name,
            Mechanism.DROP_IN,
            config,
            config,
            f"{base}/run/containerd/containerd.sock",
            ("/snap/k8s/current/bin",),
            ("snap", "restart", "k8s.containerd"),
            "snap.k8s.containerd",
        )
    if name == "microk8s":
        arguments = "/var/snap/microk8s/current/args"
        return Layout(
            name,
            Mechanism.TEMPLATE,
            f"{arguments}/containerd-template.toml",
            f"{arguments}/containerd.toml",
            "/var/snap/microk8s/common/run/containerd.sock",
            ("/snap/microk8s/current/bin",),
            ("snap", "restart", "microk8s.daemon-containerd"),
            "snap.microk8s.daemon-containerd",
        )
    config = "/etc/containerd/config.toml"
    return Layout(
        name,
        Mechanism.DROP_IN,
        config,
        config,
        "/run/containerd/containerd.sock",
        (),
        ("systemctl", "restart", "containerd"),
        "containerd",
    )


def version(tools: Tools, name: str) -> str | None:
    """A distribution's version, None where it does not tell."""
    if name in ("k3s", "rke2"):
        text = tools.output_of(name, "--version") or ""
    elif name in ("k8s-snap", "microk8s"):
        snap = name.replace("-snap", "")
        text = tools.root.read_text(f"/snap/{snap}/current/meta/snap.yaml") or ""
        text = next((line for line in text.splitlines() if line.startswith("version:")), "")
    elif name == "kubeadm":
        text = tools.output_of("kubelet", "--version") or ""
    else:
        return None
    match = re.search(r"v?(\d+\.\d+\.\d+\S*)", text)
    return match.group(1).strip("'\"") if match else None


def _rancher_unit(root: Root, name: str) -> str:
    """Tell server and agent apart: the enabled unit counts, since a package may bring both."""
    server, agent = (name if name == "k3s" else f"{name}-server"), f"{name}-agent"
    wants = "/etc/systemd/system/multi-user.target.wants"
    for folder in (wants, "/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"):
        for unit in (server, agent):
            # An enabled unit is a link, which in a prepared root may lead nowhere.
            path = root.path(f"{folder}/{unit}.service")
            if path.is_symlink() or path.exists():
                return unit
    return server


def _snap_base(root: Root) -> str:
    text = root.read_text(_SNAP_BASE)
    if text is not None:
        base = text.strip().rstrip("/")
        if base and (not base.startswith("/") or ".." in base.split("/")):
            raise HostError(f"{_SNAP_BASE} holds {base!r}, which is not a folder.", "Repair the k8s snap.")
        return base
    # The strict snap has no say about its base.
    strict = "/var/snap/k8s/common"
    return strict if root.exists(f"{strict}/etc/containerd/config.toml") else ""
