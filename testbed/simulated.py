"""Stacks on simulators."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import yaml
from lightkube.resources.core_v1 import Namespace

import simulator
import toolchain
from simulator import api, kubeconfig, pki, ports, processes, programs, records
from simulator.control_plane import api_version, to_stderr
from simulator.errors import PortTakenError
from simulator.files import write_private
from simulator.layout import Layout
from simulator.supervisor import Supervisor
from testbed import store
from testbed.made_once import made_once
from testbed.stacks import Json, changed
from testbed.waiting import eventually
from toolchain.programs import ETCD, KUBE_APISERVER

_OF_ONE_CLUSTER = (
    b"/registry/namespaces/kube-system",  # its UID is the cluster's identity
    b"/registry/configmaps/",  # the authority
    b"/registry/leases/",  # who runs
    b"/registry/serviceaccounts/default/",  # a start is over once it is there
)
"""What every cluster makes for itself, as the beginnings of etcd's keys."""


@contextmanager
def start(folder: Path, *, older: bool = False, kai_programs: Path | None = None) -> Iterator[simulator.ControlPlane]:
    """A simulator of one's own; an older one has MutatingAdmissionPolicy v1beta1 alone."""
    try:
        write_data(folder, older=older)
        plane = simulator.up(folder, older=older, kai_programs=str(kai_programs) if kai_programs else None)
        with api.client(plane.kubeconfig) as client:
            eventually(
                lambda: any(
                    namespace.metadata and namespace.metadata.name == "kube-system"
                    for namespace in client.list(Namespace)
                )
            )
        yield plane
    finally:
        simulator.reset(folder)


def write_data(folder: Path, *, older: bool = False) -> None:
    """Write what a first start writes into etcd, so that one in this folder takes half of its time."""
    name = "older-simulator" if older else "simulator"
    if first := made_once(name, lambda data: _write_first_start(data, older=older)):
        layout = Layout.of(folder)
        layout.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copytree(first, layout.etcd)


def _write_first_start(data: Path, *, older: bool) -> None:
    """Write the data of etcd after a first start, without what belongs to one cluster.

    To write the hundreds of objects that every cluster has is half of what its start costs.
    """
    layout = Layout.of(data.with_suffix(".start"))
    try:
        simulator.up(layout.folder, older=older)
        state = records.read(layout.records)
        assert state is not None
        for name, process in reversed(state.processes.items()):
            if name != "etcd":
                processes.stop(process.running)
        with store.opened(layout.etcd_socket) as etcd:
            for beginning in _OF_ONE_CLUSTER:
                etcd.delete_beginning(beginning)
        simulator.down(layout.folder)
        layout.etcd.rename(data)
    finally:
        simulator.reset(layout.folder)


@contextmanager
def start_api_server(folder: Path) -> Iterator[simulator.ControlPlane]:
    """An API server with its etcd and nothing else: objects stay as they are written."""
    try:
        try:
            plane = _api_server(folder)
        except PortTakenError:
            simulator.reset(folder)
            plane = _api_server(folder)
        yield plane
    finally:
        simulator.reset(folder)


def _api_server(folder: Path) -> simulator.ControlPlane:
    layout = Layout.of(folder)
    layout.logs.mkdir(mode=0o700, parents=True)
    layout.home.mkdir(mode=0o700)
    layout.sockets.mkdir(mode=0o700)
    installed = toolchain.install((ETCD, KUBE_APISERVER))
    identities = pki.ensure(layout.pki)
    chosen = records.Ports(**dict(zip(records.Ports.model_fields, ports.free_ports(2), strict=True)))
    server = f"https://{ports.LOOPBACK}:{chosen.api_server}"
    write_private(layout.kubeconfig, kubeconfig.render(identities, pki.ADMINISTRATOR, server))
    supervisor = Supervisor(layout, records.Records(ports=chosen), to_stderr)
    supervisor.ensure(programs.etcd(installed, layout))
    supervisor.wait("etcd", lambda: api.store_answers(layout.etcd_socket), "etcd ready")
    supervisor.ensure(programs.api_server(installed, identities, chosen))
    # It makes its own namespaces and the Service of itself once it is ready, in its own time.
    namespaces = [
        f"{server}/api/v1/namespaces/{name}" for name in ("default", "kube-node-lease", "kube-public", "kube-system")
    ]
    urls = [f"{server}/readyz", *namespaces, f"{server}/api/v1/namespaces/default/services/kubernetes"]
    supervisor.wait(
        "kube-apiserver",
        lambda: all(api.answers(url, identities, pki.ADMINISTRATOR) for url in urls),
        "kube-apiserver ready",
    )
    return simulator.ControlPlane(
        layout.folder, layout.kubeconfig, server, api_version(server, identities) or "unknown"
    )


@contextmanager
def start_older_beside(control_plane: simulator.ControlPlane) -> Iterator[Path]:
    """The kubeconfig of an older API server on the same etcd; it has MutatingAdmissionPolicy v1beta1 alone."""
    layout = Layout.of(control_plane.folder)
    state = records.read(layout.records)
    assert state is not None
    identities = pki.ensure(layout.pki)
    [port] = ports.free_ports(1)
    server = f"https://{ports.LOOPBACK}:{port}"
    file = layout.folder / "older"
    write_private(file, kubeconfig.render(identities, pki.ADMINISTRATOR, server))
    installed = toolchain.install(toolchain.OLDER)
    chosen = state.ports.model_copy(update={"api_server": port})
    command = programs.api_server(installed, identities, chosen, older=True)
    running = processes.start(command.arguments, command.environment(layout), layout.sockets, layout.log("older"))
    try:
        eventually(lambda: api.answers(f"{server}/readyz", identities, pki.ADMINISTRATOR))
        yield file
    finally:
        processes.stop(running)


def kill(control_plane: simulator.ControlPlane, process: str) -> None:
    """Kill one process of a simulator, as the machine's OOM killer would, and return once it is gone."""
    running = _running(control_plane, process)
    os.kill(running.pid, signal.SIGKILL)
    # The signal is only delivered when the process's turn comes: on a busy machine that takes a while.
    eventually(lambda: not processes.alive(running))


def processor_seconds(control_plane: simulator.ControlPlane, process: str) -> float:
    """The processor time that one process of a simulator has taken until now, in seconds."""
    times = psutil.Process(_running(control_plane, process).pid).cpu_times()
    return times.user + times.system


def _running(control_plane: simulator.ControlPlane, process: str) -> processes.Running:
    state = records.read(Layout.of(control_plane.folder).records)
    assert state is not None
    return state.processes[process].running


def older_kai(folder: Path, version: str) -> Path:
    """The stand-in of KAI's chart as an older version, into a new folder: its templates do what that version did."""
    shutil.copytree(simulator.chart_path("kai-scheduler"), folder)
    metadata = folder / "Chart.yaml"
    chart = yaml.safe_load(metadata.read_text(encoding="utf-8"))
    chart |= {"version": version.removeprefix("v"), "appVersion": version}
    metadata.write_text(yaml.safe_dump(chart), encoding="utf-8")
    return folder


def stack_settings(settings: Json, control_plane: simulator.ControlPlane) -> Json:
    """A stack's settings for a simulator: its kubeconfig, the stand-in charts, bounded waits."""
    settings = changed(settings, "cluster.kubeconfig", str(control_plane.kubeconfig))
    settings = changed(settings, "kai.chart", {"source": str(simulator.chart_path("kai-scheduler"))})
    settings = changed(settings, "gpu_operator.chart", {"source": str(simulator.chart_path("gpu-operator"))})
    settings = changed(settings, "kai.timeout_seconds", 300)
    return changed(settings, "gpu_operator.timeout_seconds", 300)
