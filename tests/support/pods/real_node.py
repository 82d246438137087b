"""A real node beside the simulated ones: containerd, kubelet and kube-proxy, and pods whose processes really run.

The node is a set of namespaces (mounts, network, processes, host name) of this machine. They end with the one process
that holds them, and that one ends with its standard input: also where the tests are killed, nothing of it stays.
"""

import base64
import contextlib
import copy
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import yaml
from filelock import FileLock

import simulator
import toolchain
from simulator.programs import SERVICE_RANGE
from testbed.inventory import connect
from testbed.loopback_service import loopback_service
from testbed.stacks import Json
from testbed.waiting import eventually
from tests.support.programs import KUBE_PROXY, KUBELET, NODE

NAME = "real-1"
PAUSE_IMAGE = "localhost/pause:1"
"""What holds a pod's namespaces; the node's own, to be imported before the first pod."""

_HOST_ADDRESS, _NODE_ADDRESS, _LINK = "198.18.0.1", "198.18.0.2", "198.18.0.0/30"
_PODS = "198.19.0.0/24"
"""Both out of the range for benchmarks of networks (RFC 2544), which nobody routes."""
_VETH = "kai-node"
_CGROUP = "kai-anywhere-node"
_PROGRAMS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "buildah": "buildah",
    "nft": "nftables",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
}
"""Each program and the Debian package that brings it."""
_CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
_CNI_PLUGINS = ("ptp", "host-local", "loopback")
_NEW_NAMESPACES = ("--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc")
_KERNEL_SETTINGS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}
"""What a kubelet sets for the whole machine where it finds something else. It finds these."""
_ADMINISTRATORS = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


def missing() -> str | None:
    """Why a real node can't run on this machine; None if it can."""
    checks = (_no_program, _no_namespaces, _no_cgroup, _no_addresses)
    return "a real node needs root" if os.geteuid() else next(filter(None, (check() for check in checks)), None)


def _no_program() -> str | None:
    for program, package in _PROGRAMS.items():
        if shutil.which(program, path=_ADMINISTRATORS) is None:
            return f"{program} is not installed (apt-get install {package})"
    if _cni_folder() is None:
        return f"there are no CNI plugins {', '.join(_CNI_PLUGINS)} (apt-get install containernetworking-plugins)"
    return None


def _no_namespaces() -> str | None:
    # The cable's end has the name of a real one's: in a namespace of its own nothing is in its way.
    if said := _try("unshare", *_NEW_NAMESPACES, "ip", "link", "add", _VETH, "type", "veth"):
        return f"this machine gives no namespaces with a network of their own: {said}"
    if said := _try("unshare", "--net", "nft", "add", "table", "ip", "probe"):
        return f"this machine's kernel has no nftables: {said}"
    return None


def _no_cgroup() -> str | None:
    try:
        for folder in _cgroups():
            probe = folder.with_name(f"{_CGROUP}-probe")
            probe.mkdir(exist_ok=True)
            probe.rmdir()
    except OSError as error:
        return f"no cgroup can be made on this machine: {error}"
    return None


def _no_addresses() -> str | None:
    for network in (_LINK, _PODS, SERVICE_RANGE):
        routes = json.loads(_run("ip", "-json", "route", "show", "match", network) or "[]")
        for route in routes:
            if route["dst"] != "default" and route.get("dev") != _VETH:
                return f"the node's network {network} is in {route['dst']}, which this machine reaches elsewhere"
    return None


class RealNode:
    """The running node.

    Attributes:
        folder: of everything that it writes.
        root: its files, as this machine sees them.
        api: the cluster, as its administrator.
        enter: begins a command that runs on the node.
    """

    def __init__(self, folder: Path, holder: int, api: httpx2.Client) -> None:
        self.folder = folder
        self.root = Path(f"/proc/{holder}/root")
        self.api = api
        self._servers: list[subprocess.Popen[bytes]] = []
        self.enter = ["nsenter", f"--target={holder}", "--mount", "--net", "--uts", "--ipc", "--pid", "--"]

    def run(self, *command: str) -> str:
        """Run a command on the node; its standard output."""
        return _run(*self.enter, *command)

    def import_image(self, archive: Path) -> None:
        """Have the images of a docker-archive; no registry is asked."""
        self.run("ctr", "--namespace=k8s.io", "images", "import", "--snapshotter=native", str(archive))

    def start(self, program: str | Path, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a server on the node; it ends with the node. Its output goes to a log in the node's folder."""
        with self.log(Path(program).name).open("ab") as log:
            environment = {"PATH": _ADMINISTRATORS, "HOME": str(self.folder)}
            server = subprocess.Popen(
                [*self.enter, str(program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )
        self._servers.append(server)
        return server

    def wait(self, condition: Callable[[], bool], *servers: subprocess.Popen[bytes]) -> None:
        """Wait for what servers do; fail with their logs, at once if one of them ends."""
        try:
            eventually(lambda: condition() or any(server.poll() is not None for server in servers), within_seconds=240)
            assert condition()
        except AssertionError as error:
            logs = [f"{path}:\n{path.read_text(errors='replace')[-3000:]}" for path in self.folder.glob("*.log")]
            raise AssertionError("the node does not become ready\n" + "\n".join(logs)) from error

    def end(self) -> None:
        """End the servers; pods end with the node."""
        for server in self._servers:
            server.kill()
            server.wait()

    def log(self, program: str) -> Path:
        """Where a server's output goes."""
        return self.folder / f"{program}.log"

    def object(self) -> Json:
        """The Node as the API server has it; empty before the kubelet has registered it."""
        response = self.api.get(f"/api/v1/nodes/{NAME}")
        answer: Json = response.json() if response.status_code == httpx2.codes.OK else {}
        return answer

    def label(self, labels: Mapping[str, str | None]) -> None:
        """Set labels of the node; None takes one away."""
        patch(self.api, f"/api/v1/nodes/{NAME}", {"metadata": {"labels": dict(labels)}})

    def allocatable(self, resource: str) -> str | None:
        """How much of a resource the kubelet offers; None before it knows it."""
        offered: str | None = self.object()["status"]["allocatable"].get(resource)
        return offered


def patch(api: httpx2.Client, path: str, change: Json) -> None:
    """Merge something into an object."""
    response = api.patch(path, json=change, headers={"Content-Type": "application/merge-patch+json"})
    assert response.status_code == httpx2.codes.OK, response.text


def is_ready(node: Json) -> bool:
    """Whether the kubelet says that its node is ready."""
    conditions = node.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


@contextmanager
def real_node(folder: Path, control_plane: simulator.ControlPlane) -> Iterator[RealNode]:
    """Join a node to a cluster for as long as the block lasts, and cordon the simulated ones.

    One at a time on a machine: its addresses and its cgroup have fixed names.
    """
    programs = toolchain.install(NODE)
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.enter_context(FileLock(Path(tempfile.gettempdir()) / "kai-anywhere-real-node.lock"))
        stack.callback(_remove_leftovers)
        # Of a run that was killed.
        _remove_leftovers()
        holder = stack.enter_context(_namespaces(folder))
        _connect_network(holder)
        api = stack.enter_context(connect(control_plane))
        server = stack.enter_context(loopback_service(_HOST_ADDRESS))
        server.backends = [urlsplit(control_plane.server).port or 0]
        node = RealNode(folder, holder, api)
        for item in api.get("/api/v1/nodes").json()["items"]:
            patch(api, f"/api/v1/nodes/{item['metadata']['name']}", {"spec": {"unschedulable": True}})
        _publish_server(api, server.port)
        _write_files(folder, control_plane, server.port)
        stack.callback(node.end)
        containerd = node.start("containerd", f"--config={folder}/containerd.toml")
        # A kubelet that does not find its runtime ends.
        node.wait(lambda: _try(*node.enter, "ctr", "version") is None, containerd)
        kubelet = node.start(
            programs[KUBELET],
            f"--config={folder}/kubelet.yaml",
            f"--kubeconfig={folder}/kubelet.kubeconfig",
            f"--hostname-override={NAME}",
            f"--node-ip={_NODE_ADDRESS}",
        )
        proxy = node.start(programs[KUBE_PROXY], f"--config={folder}/kube-proxy.yaml")
        node.wait(lambda: is_ready(node.object()), containerd, kubelet, proxy)
        yield node


@contextmanager
def _namespaces(folder: Path) -> Iterator[int]:
    """Make the node's namespaces; yields the process that holds them."""
    for name in ("lib", "log", "kernel"):
        (folder / name).mkdir()
    settings = []
    for name, value in _KERNEL_SETTINGS.items():
        path = folder / "kernel" / name.replace("/", "-")
        path.write_text(f"{value}\n", encoding="ascii")
        settings.append(f"mount --bind {path} /proc/sys/{name}")
    script = [
        "set -e",
        # Device plugins register in a folder that kubelets don't let one move, so the node has a /var/lib of its own.
        f"mount --bind {folder}/lib /var/lib",
        f"mount --bind {folder}/log /var/log",
        "mount -t tmpfs node /run",
        "mount --make-rshared /",
        "mkdir /var/lib/kubelet",
        *settings,
        f"hostname {NAME}",
        "ip link set lo up",
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
        "echo made",
        "exec cat",
    ]
    process = subprocess.Popen(
        ["unshare", *_NEW_NAMESPACES, "sh", "-c", "\n".join(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": _ADMINISTRATORS},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "made\n", "the node's namespaces can't be prepared: see above"
        [holder] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
        yield int(holder)
    finally:
        process.stdin.close()
        process.wait(timeout=60)
        process.stdout.close()


def _connect_network(holder: int) -> None:
    """Lay the cable between this machine and its node, with the ways to pods and Services on this side.

    API servers call webhooks at the ClusterIP of a Service: through the node, whose kube-proxy knows what is behind it.
    Everything of it goes with the node's network namespace.
    """
    _run("ip", "link", "add", _VETH, "type", "veth", "peer", "name", "eth0", "netns", str(holder))
    prefix = _LINK.rpartition("/")[2]
    _run("ip", "address", "add", f"{_HOST_ADDRESS}/{prefix}", "dev", _VETH)
    _run("ip", "link", "set", _VETH, "up")
    inside = ("nsenter", f"--target={holder}", "--net", "--", "ip")
    _run(*inside, "address", "add", f"{_NODE_ADDRESS}/{prefix}", "dev", "eth0")
    _run(*inside, "link", "set", "eth0", "up")
    for network in (_PODS, SERVICE_RANGE):
        _run("ip", "route", "add", network, "via", _NODE_ADDRESS)


def _publish_server(api: httpx2.Client, port: int) -> None:
    """Say where the Service `kubernetes` leads; the simulator's server listens on loopback and leaves it empty."""
    slice_of_endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [_HOST_ADDRESS], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    }
    response = api.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", json=slice_of_endpoints)
    assert response.status_code == httpx2.codes.CREATED, response.text


def _write_files(folder: Path, control_plane: simulator.ControlPlane, port: int) -> None:
    (folder / "cni").mkdir()
    addresses = {"type": "host-local", "ranges": [[{"subnet": _PODS}]], "routes": [{"dst": "0.0.0.0/0"}]}
    # A cable per pod: what two pods say to each other goes through the node's routing, where kube-proxy sees it.
    network = {"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": addresses}]}
    (folder / "cni/pods.conflist").write_text(json.dumps(network), encoding="utf-8")
    (folder / "containerd.toml").write_text(_containerd(folder), encoding="utf-8")
    access: Any = yaml.safe_load(control_plane.kubeconfig.read_text(encoding="utf-8"))
    authority = base64.b64decode(access["clusters"][0]["cluster"]["certificate-authority-data"])
    (folder / "authority.crt").write_bytes(authority)
    kubelet = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{_CGROUP}",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        # A full disk of this machine is no matter of the node.
        "evictionHard": {"memory.available": "1Mi"},
        "imageGCHighThresholdPercent": 100,
        "resolvConf": "",
        # How soon pods see a changed ConfigMap; the default is a minute.
        "syncFrequency": "5s",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{folder}/authority.crt"},
        },
        "authorization": {"mode": "Webhook"},
    }
    proxy = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": NAME,
        "clusterCIDR": _PODS,
        "clientConnection": {"kubeconfig": f"{folder}/kube-proxy.kubeconfig"},
        # Zero leaves the machine's settings alone.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
    for name, document in (("kubelet", kubelet), ("kube-proxy", proxy)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    for name, user, groups in (
        ("kubelet", f"system:node:{NAME}", ["system:nodes"]),
        ("kube-proxy", "system:kube-proxy", []),
    ):
        kubeconfig = copy.deepcopy(access)
        kubeconfig["clusters"][0]["cluster"] |= {
            "server": f"https://{_HOST_ADDRESS}:{port}",
            "tls-server-name": "kubernetes.default.svc",
        }
        # The administrator in their name: they have the rights of a node's servers and no more.
        kubeconfig["users"][0]["user"] |= {"as": user} | ({"as-groups": groups} if groups else {})
        path = folder / f"{name}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(kubeconfig), encoding="utf-8")


def _containerd(folder: Path) -> str:
    """The runtime's configuration, in the form that 1.6 to 2.x read."""
    plugin = "io.containerd.grpc.v1.cri"
    return f"""\
version = 2
disabled_plugins = ["io.containerd.internal.v1.opt"]
[plugins."{plugin}"]
sandbox_image = "{PAUSE_IMAGE}"
# Without CAP_SYS_RESOURCE nobody may lower a process's oom_score_adj; some machines' root lacks it.
restrict_oom_score_adj = true
[plugins."{plugin}".cni]
bin_dir = "{_cni_folder()}"
conf_dir = "{folder}/cni"
[plugins."{plugin}".containerd]
# Copies; overlays can't lie on overlays, which is what a container that runs the tests has.
snapshotter = "native"
default_runtime_name = "runc"
[plugins."{plugin}".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""


def _cni_folder() -> Path | None:
    for folder in _CNI_FOLDERS:
        if all((folder / plugin).exists() for plugin in _CNI_PLUGINS):
            return folder
    return None


def _cgroups() -> list[Path]:
    """Where the node's cgroup lies: once in version 2, once per controller in version 1."""
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists():
        return [root / _CGROUP]
    return [path / _CGROUP for path in sorted(root.iterdir()) if (path / "tasks").exists() and not path.is_symlink()]


def _remove_leftovers() -> None:
    """Remove what does not go with the namespaces, and the cable, which the kernel takes away in its own time."""
    _try("ip", "link", "delete", _VETH)
    for top in _cgroups():
        if not top.is_dir():
            continue
        inner = sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True)

        def gone(folders: tuple[Path, ...] = (*inner, top)) -> bool:
            for folder in folders:
                with contextlib.suppress(OSError):
                    folder.rmdir()
            return not any(folder.exists() for folder in folders)

        # A killed process leaves its cgroup a moment later.
        eventually(gone)


def _run(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env={"PATH": _ADMINISTRATORS}
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr[-2000:]}"
    return done.stdout


def _try(*command: str) -> str | None:
    """What a command says where it fails."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env={"PATH": _ADMINISTRATORS}
    )
    return done.stderr.strip() or f"exit status {done.returncode}" if done.returncode else None
