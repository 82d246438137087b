"""The command line of every process: what is tuned for a small machine, and why."""

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from cluster.policy_switches import FEATURE_GATES, RUNTIME_CONFIG
from simulator.layout import STAGES, Layout
from simulator.nodes import SIMULATED
from simulator.pki import ADMINISTRATOR, CONTROLLER_MANAGER, SCHEDULER, Pki
from simulator.ports import LOOPBACK
from simulator.records import Ports
from toolchain import Program, cache
from toolchain.programs import ETCD, KUBE_APISERVER, KUBE_APISERVER_1_34, KUBE_CONTROLLER_MANAGER, KUBE_SCHEDULER, KWOK

OPERANDS = "operands"
"""The name of our own process, see `simulator.operands`."""

PODS = "pod-processes"
"""The name of the process that runs pods, see `simulator.pods`: no word that a person's kubectl is given."""

SERVICE_RANGE = "10.96.0.0/16"
_ETCD_MEMBER_URL = "https://127.0.0.1:2380"
"""What etcd calls itself to other members. There are none, and a changed value would not fit the stored one."""

_ETCD_CLIENT_URL = "https://127.0.0.1:2379"
"""What etcd tells clients that ask for its members, which the API server does not; a socket is refused there."""

_ETCD_SOCKET = "unix://etcd.sock"
"""`Layout.etcd_socket`, from the folder in which every process is started: a socket's path has at most 104 bytes
(macOS), and a checkout's folder may have more. The API server has a hundred connections to it, each of which would
begin with two certificates: a quarter of the processor time of a control plane's start."""


_GIVEN = ("PATH", "GOGC", "GOMAXPROCS", "GOMEMLIMIT")
"""Go's own variables say how much memory the servers may take for less processor time, and how many processors."""


@dataclass(frozen=True)
class Command:
    """How a process is started: arguments, variables beyond the common ones, and the files that it reads only once."""

    name: str
    arguments: tuple[str, ...]
    reads: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def environment(self, layout: Layout) -> dict[str, str]:
        """The whole environment: nothing of the user's but these, so that no KUBECONFIG or proxy leaks in."""
        given = {name: os.environ[name] for name in _GIVEN if name in os.environ}
        return {"PATH": os.defpath, **given, "HOME": str(layout.home), **self.variables}

    def fingerprint(self) -> str:
        """Changes when the running process would be started differently today."""
        digest = hashlib.sha256("\0".join(self.arguments).encode())
        for path in self.reads:
            digest.update(path.read_bytes())
        return digest.hexdigest()


def etcd(programs: Mapping[Program, Path], layout: Layout) -> Command:
    """The store, on sockets in a folder of its own: other users of the machine reach loopback, and not these."""
    return Command(
        "etcd",
        (
            str(programs[ETCD]),
            f"--data-dir={layout.etcd}",
            "--name=simulator",
            f"--listen-client-urls={_ETCD_SOCKET}",
            f"--advertise-client-urls={_ETCD_CLIENT_URL}",
            "--listen-peer-urls=unix://etcd-peers.sock",
            f"--initial-advertise-peer-urls={_ETCD_MEMBER_URL}",
            f"--initial-cluster=simulator={_ETCD_MEMBER_URL}",
            "--enable-grpc-gateway=false",
            # A power cut may cost the last writes: nothing of value lives here, and waiting for the disk is most of
            # the time of every write on a small machine. A killed etcd loses nothing, the kernel has its writes.
            "--unsafe-no-fsync",
            "--log-level=warn",
        ),
    )


def api_server(
    programs: Mapping[Program, Path], pki: Pki, ports: Ports, *, older: bool = False, egress: Path | None = None
) -> Command:
    """The API server, with the admission plugins that a stock cluster has (its own defaults) and RBAC.

    Args:
        programs: where they are.
        pki: its certificates.
        ports: where it listens.
        older: whether it is the one before MutatingAdmissionPolicy v1, with v1beta1 switched on.
        egress: its way to pods, where some are processes.
    """
    certificate, key = pki.server
    kubelet_certificate, kubelet_key = pki.client(ADMINISTRATOR)
    public, private = pki.service_account
    return Command(
        "kube-apiserver",
        (
            str(programs[KUBE_APISERVER_1_34 if older else KUBE_APISERVER]),
            f"--bind-address={LOOPBACK}",
            f"--secure-port={ports.api_server}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--client-ca-file={pki.authority}",
            "--authorization-mode=Node,RBAC",
            f"--etcd-servers={_ETCD_SOCKET}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={public}",
            f"--service-account-signing-key-file={private}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            # As kubeadm sets them. A real kubelet beside the simulated ones is asked for logs, at its address: the name
            # of its node resolves nowhere.
            f"--kubelet-client-certificate={kubelet_certificate}",
            f"--kubelet-client-key={kubelet_key}",
            "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
            # As kubeadm sets it; the default false would refuse every privileged pod.
            "--allow-privileged=true",
            # The default writes this server's address as endpoint, and a loopback address is no valid one.
            "--endpoint-reconciler-type=none",
            "--profiling=false",
            # It weighs all objects of every kind again and again, to know what a list will cost (v1.34 to v1.37): that
            # is a tenth of what an idle server takes, and no list of a simulator is long.
            "--feature-gates=SizeBasedListCostEstimate=false",
            *([f"--{FEATURE_GATES}", f"--{RUNTIME_CONFIG}"] if older else []),
            *([f"--egress-selector-config-file={egress}"] if egress else []),
        ),
        reads=(egress,) if egress else (),
    )


_LEFT_OUT = (
    # It asks for the OpenAPI documents anew for each type of each policy, at each change of a definition: half of all
    # that the controllers cost (v1.36). What it finds, a policy's `status.typeChecking`, is read by tests alone.
    "validatingadmissionpolicy-status-controller",
    # No volume is attached or made here, and nothing serves metrics.
    "persistentvolume-attach-detach-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-expander-controller",
    "ephemeral-volume-controller",
    "horizontal-pod-autoscaler-controller",
    # No kubelet asks for a certificate.
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
)
"""Controllers that have no work in a simulator, or none that is worth its price."""


def controller_manager(programs: Mapping[Program, Path], layout: Layout, pki: Pki) -> Command:
    """The controllers, each with the service account (and so the RBAC rules) that it has in a real cluster."""
    kubeconfig = layout.component_kubeconfig(CONTROLLER_MANAGER.file)
    return Command(
        "kube-controller-manager",
        (
            str(programs[KUBE_CONTROLLER_MANAGER]),
            f"--kubeconfig={kubeconfig}",
            "--use-service-account-credentials",
            f"--controllers=*,{','.join(f'-{name}' for name in _LEFT_OUT)}",
            f"--root-ca-file={pki.authority}",
            f"--service-account-private-key-file={pki.service_account[1]}",
            # At the default 20 requests a second, making forty service accounts takes most of a first start.
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            # There is one of each, and a killed one's lease would hold up its successor for 15 s.
            "--leader-elect=false",
            # Every change of a node puts its next heartbeat off (kwok v0.8.0 starts a stage's delay anew), so that a
            # node whose labels change often looks silent; its pods would be marked unready, and nobody plays the
            # kubelet that marks them ready again.
            "--node-monitor-grace-period=1h",
            "--secure-port=0",
            "--profiling=false",
        ),
        reads=(kubeconfig,),
    )


def scheduler(programs: Mapping[Program, Path], layout: Layout) -> Command:
    """The stock scheduler."""
    kubeconfig = layout.component_kubeconfig(SCHEDULER.file)
    return Command(
        "kube-scheduler",
        (
            str(programs[KUBE_SCHEDULER]),
            f"--kubeconfig={kubeconfig}",
            "--leader-elect=false",
            "--secure-port=0",
            "--profiling=false",
        ),
        reads=(kubeconfig,),
    )


def kwok(programs: Mapping[Program, Path], layout: Layout, stages: Path = STAGES) -> Command:
    """Emulate the kubelets of nodes with our annotation; other nodes (a real kubelet's) are left alone."""
    files = tuple(sorted(stages.glob("*.yaml")))
    return Command(
        "kwok",
        (
            str(programs[KWOK]),
            f"--kubeconfig={layout.kubeconfig}",
            f"--manage-nodes-with-annotation-selector={'='.join(SIMULATED)}",
            # Node leases would have to run out (40 s) before the successor of a killed kwok takes its nodes over;
            # the heartbeat stage keeps nodes Ready instead.
            "--node-lease-duration-seconds=0",
            "--cidr=10.244.0.0/16",
            *(f"--config={file}" for file in files),
        ),
        reads=(layout.kubeconfig, *files),
    )


def operands(layout: Layout, *, kai: bool) -> Command:
    """Our own loop, with or without KAI."""
    place = f"--kubeconfig={layout.kubeconfig}"
    return _ours(OPERANDS, "operands", layout, place, "--kai" if kai else "--no-kai")


def pods(layout: Layout, kai_programs: str, ports: Ports) -> Command:
    """Run the pods that are processes."""
    server = f"https://{LOOPBACK}:{ports.api_server}"
    place = f"--folder={layout.folder}/"
    port = f"--port={ports.egress}"
    command = _ours(PODS, "pods", layout, place, f"--server={server}", f"--kai-programs={kai_programs}", port)
    # Where programs of images were put for it; its HOME is another.
    return replace(command, variables={**command.variables, cache.LOCATION_VARIABLE: str(cache.location())})


def _ours(name: str, folder: str, layout: Layout, *arguments: str) -> Command:
    """A process of this package, its code in `folder`, run by the interpreter that runs us."""
    package = Path(__file__).parent
    return Command(
        name,
        (sys.executable, "-m", "simulator", name, *arguments),
        reads=(layout.kubeconfig, *sorted((package / folder).glob("*.py"))),
        variables={"PYTHONPATH": str(package.parent), "PYTHONUNBUFFERED": "1"},
    )
