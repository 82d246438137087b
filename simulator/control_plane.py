"""Start, stop and delete the simulated cluster of one folder."""

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from filelock import FileLock, Timeout

import toolchain
from cluster.access.binding import unbind
from simulator import api, kubeconfig, pki, ports, programs, records
from simulator.errors import PortTakenError, SimulatorError, disk_errors_explained
from simulator.files import write_private
from simulator.layout import STAGES, Layout
from simulator.nodes import DEFAULT_NODES, NodeKind
from simulator.pki import ADMINISTRATOR, CONTROLLER_MANAGER, SCHEDULER, Pki
from simulator.pods import egress, launcher
from simulator.pods.stages import render as render_stages
from simulator.ports import LOOPBACK
from simulator.processes import alive
from simulator.records import Ports, Records
from simulator.supervisor import Report, Supervisor, stop_all, stop_leftovers

PROCESSES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", programs.OPERANDS)
"""Every simulator's processes, in the order of starting."""
ALL_PROCESSES = (*PROCESSES, programs.PODS)
"""The same with the one that runs KAI's programs, where there are any."""

_RELEASED_SECONDS = 10.0
"""How long an API server may take to give its port back, on a busy machine."""
_PORT_ATTEMPTS = 3
"""How often a start chooses ports, where other processes take them before its own listen."""
DEFAULT_FOLDER = Path(".simulator")
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""A DNS label (RFC 1123): node names may be longer, host names may not."""


@dataclass(frozen=True)
class ControlPlane:
    """A running control plane: how to reach it."""

    folder: Path
    kubeconfig: Path
    server: str
    version: str
    """As the API server says it, for example `v1.36.3`."""


def to_stderr(line: str) -> None:
    """Print one line of progress beside the output proper."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201 (progress is for a person)


def up(  # noqa: PLR0913 - all by name
    folder: Path,
    *,
    port: int | None = None,
    nodes: Mapping[str, NodeKind] = MappingProxyType({}),
    older: bool = False,
    kai_programs: str | None = None,
    report: Report = to_stderr,
) -> ControlPlane:
    """Have the cluster of `folder` running, with the default nodes and `nodes`.

    What lives is reused, what died is started again on the same data, nodes are created once.

    Args:
        folder: where everything of the cluster lies.
        port: of the API server; None for one that is free.
        nodes: beside the default ones, by name.
        older: with the API server before MutatingAdmissionPolicy v1, and v1beta1 switched on in it. Without it the same
            cluster is upgraded.
        kai_programs: where KAI's programs come from, to be run and not emulated: a folder, or `images`; None for what
            was said the last time.
        report: is given each line of progress.

    Raises:
        SimulatorError: the folder can't be written, `port` is taken, a process dies at its start, KAI's programs can't
            be run here.
        toolchain.ToolchainError: a program can't be had.
    """
    for name in nodes:
        if not _NODE_NAME.fullmatch(name):
            raise SimulatorError(
                f"{name!r} can't be a node's name: at most 63 lower-case letters, digits and dashes, "
                "beginning and ending with a letter or digit."
            )
    installed = toolchain.install((*toolchain.SIMULATOR, *(toolchain.OLDER if older else ())))
    layout = Layout.of(folder)
    with disk_errors_explained(layout.folder):
        layout.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(layout, report):
            all_nodes = {**DEFAULT_NODES, **nodes}
            for _ in range(_PORT_ATTEMPTS - 1):
                try:
                    return _up(installed, layout, port, all_nodes, kai_programs, report, older=older)
                except PortTakenError as error:
                    # Seconds pass between choosing a port and listening there.
                    report(f"{error.args[0].partition('.')[0]}: its port was taken meanwhile; it gets another one")
            return _up(installed, layout, port, all_nodes, kai_programs, report, older=older)


def down(folder: Path, *, report: Report = to_stderr) -> None:
    """Stop all processes of `folder`; its data stays. Nothing happens where nothing runs.

    Raises:
        SimulatorError: the folder can't be written.
    """
    layout = Layout.of(folder)
    if not layout.folder.is_dir():
        return
    with disk_errors_explained(layout.folder), _locked(layout, report):
        _down(layout, report)


def reset(folder: Path, *, report: Report = to_stderr) -> None:
    """Stop all processes of `folder` and delete the simulator's data; other files in that folder stay.

    Raises:
        SimulatorError: the folder can't be written.
    """
    layout = Layout.of(folder)
    if not layout.folder.is_dir():
        return
    with disk_errors_explained(layout.folder), _locked(layout, report):
        _down(layout, report)
        unbind(layout.kubeconfig)
        layout.delete()


@contextmanager
def _locked(layout: Layout, report: Report) -> Iterator[None]:
    lock = FileLock(layout.lock)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report(f"another command works on {layout.folder}: waiting for it to end")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _up(  # noqa: PLR0913, PLR0917 - what `up` was told, and what it looked up
    installed: Mapping[toolchain.Program, Path],
    layout: Layout,
    port: int | None,
    nodes: Mapping[str, NodeKind],
    kai_programs: str | None,
    report: Report,
    *,
    older: bool,
) -> ControlPlane:
    previous = records.read(layout.records)
    stop_leftovers(layout, previous, ALL_PROCESSES, report)
    if kai_programs is None and previous is not None and previous.programs is not None:
        kai_programs = previous.programs
    if kai_programs is not None:
        _check(kai_programs, previous)
    for subfolder in (layout.logs, layout.home, layout.sockets):
        subfolder.mkdir(mode=0o700, exist_ok=True)
    identities = pki.ensure(layout.pki)
    chosen = _choose_ports(previous, port, report)
    server = f"https://{LOOPBACK}:{chosen.api_server}"
    _write_kubeconfigs(layout, identities, server)
    stages = STAGES
    if kai_programs is not None:
        write_private(layout.egress, egress.configuration(identities, chosen.egress))
        render_stages(STAGES, stages := layout.stages)

    running = previous.processes if previous else {}
    state = Records(ports=chosen, folder=str(layout.folder), programs=kai_programs, processes=running)
    supervisor = Supervisor(layout, state, report)
    with _stopped_where_it_ends(supervisor, report):
        _start_store(supervisor, programs.etcd(installed, layout), layout, chosen)
        way = layout.egress if kai_programs else None
        supervisor.ensure(programs.api_server(installed, identities, chosen, older=older, egress=way))
        supervisor.wait(
            "kube-apiserver",
            lambda: api.answers(f"{server}/readyz", identities, ADMINISTRATOR),
            f"kube-apiserver ready on {server}",
        )
        for command in (
            programs.controller_manager(installed, layout, identities),
            programs.scheduler(installed, layout),
            programs.kwok(installed, layout, stages),
            programs.operands(layout, kai=kai_programs is None),
            *([programs.pods(layout, kai_programs, chosen)] if kai_programs else []),
        ):
            supervisor.ensure(command)
        _make_nodes(supervisor, layout, nodes, report)
        supervisor.verify()
    return ControlPlane(layout.folder, layout.kubeconfig, server, api_version(server, identities) or "unknown")


def _write_kubeconfigs(layout: Layout, identities: Pki, server: str) -> None:
    """Write the user's way in, and those of the components that read one."""
    write_private(layout.kubeconfig, kubeconfig.render(identities, ADMINISTRATOR, server))
    for identity in (CONTROLLER_MANAGER, SCHEDULER):
        write_private(layout.component_kubeconfig(identity.file), kubeconfig.render(identities, identity, server))


def _start_store(supervisor: Supervisor, etcd: programs.Command, layout: Layout, chosen: Ports) -> None:
    """Have etcd running, and no API server of an earlier etcd."""
    if supervisor.ensure(etcd):
        # Each of the API server's hundred connections to a lost etcd waits for its own next attempt: requests hang
        # for up to 15 s (seen with 1.36.3) where a new server is ready in 3.
        supervisor.stop("kube-apiserver")
        # One that has just lost its etcd ends by itself: it may be gone from the process table, and a thread of it
        # still listen. The next one would end with `address already in use`.
        ports.becomes_free(chosen.api_server, within_seconds=_RELEASED_SECONDS)
    supervisor.wait("etcd", lambda: api.store_answers(layout.etcd_socket), "etcd ready")


def _make_nodes(supervisor: Supervisor, layout: Layout, nodes: Mapping[str, NodeKind], report: Report) -> None:
    """Create the nodes that are missing, and wait until pods can be created and every node is Ready."""
    with api.client(layout.kubeconfig) as client:
        if created := api.create_nodes(client, nodes):
            report(f"nodes created: {', '.join(created)}")
        supervisor.wait(
            "kube-controller-manager",
            lambda: api.has_default_service_account(client),
            "kube-controller-manager ready",
        )
        supervisor.wait(
            "kwok", lambda: all(map(api.is_ready, api.list_nodes(client))), "kwok ready: every node is Ready"
        )


@contextmanager
def _stopped_where_it_ends(supervisor: Supervisor, report: Report) -> Iterator[None]:
    """A start that somebody interrupts, or that lost a port, leaves nothing of itself running; its data stays."""
    try:
        yield
    except PortTakenError:
        supervisor.stop_started()
        raise
    except KeyboardInterrupt:
        report("interrupted: stopping what this start has started")
        supervisor.stop_started()
        raise


def _check(kai_programs: str, previous: Records | None) -> None:
    if previous is not None and previous.programs is None:
        raise SimulatorError(
            "This simulator has emulated KAI so far, with other CustomResourceDefinitions. Forget it with "
            "`make reset`, then run the same command again."
        )
    if reason := launcher.unavailable():
        raise SimulatorError(f"KAI's programs can't be run here: {reason}. Without KAI_PROGRAMS, KAI is emulated.")
    if kai_programs != toolchain.IMAGES and not Path(kai_programs).is_dir():
        raise SimulatorError(
            f"{kai_programs} is no folder, and KAI's programs are to come from there. Give another one with "
            "KAI_PROGRAMS, or forget it with `make reset`: then KAI is emulated."
        )


def _down(layout: Layout, report: Report) -> None:
    left = stop_all(layout, records.read(layout.records), ALL_PROCESSES, report)
    if left:
        records.write(layout.records, left)


def api_version(server: str, identities: Pki) -> str | None:
    """The version that the API server tells; None where none answers."""
    response = api.get(f"{server}/version", identities, ADMINISTRATOR)
    return str(response.json()["gitVersion"]) if response else None


def _choose_ports(previous: Records | None, user_port: int | None, report: Report) -> Ports:
    """The ports of last time where they are ours or free, else others; the API server's as the user wants it."""
    fresh, way = ports.free_ports(2, besides=user_port)
    server = fresh

    def usable(process: str, port: int) -> bool:
        record = previous.processes.get(process) if previous else None
        ours = record is not None and alive(record.running)
        return ours or ports.becomes_free(port)

    if previous is not None:
        last = previous.ports
        server = last.api_server if usable("kube-apiserver", last.api_server) else fresh
        way = last.egress if usable(programs.PODS, last.egress) else way
        if user_port is None and server != last.api_server:
            report(
                f"port {last.api_server} is taken by {ports.owner(last.api_server) or 'another process'}: the API "
                f"server moves to port {server}, and the kubeconfig follows"
            )
    if user_port is not None and user_port != server:
        if not ports.is_free(user_port):
            raise SimulatorError(
                f"Port {user_port} is taken by {ports.owner(user_port) or 'another process'}, so the API server can't "
                f"listen there. Stop that process, or choose another port: python -m simulator up --port {fresh}"
            )
        server = user_port
    return Ports(api_server=server, egress=way)
