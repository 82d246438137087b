"""What only the node's host tells of what the probe's answer depends on, asked as `doctor --hosts` asks."""

from config.stack import StackSettings
from operations.doctor.commands import hosts_of
from operations.doctor.hosts.answer import HostLookError, HostReport
from operations.errors import OperationError

_NOTHING = "none, or not readable"


def ask_host(stack: str, settings: StackSettings, node: str) -> dict[str, str]:
    """Ask a node's host, and no other of the stack's.

    Args:
        stack: its name.
        settings: its settings.
        node: the host's.

    Returns:
        What the host says, by the names of `NOT_SEEN`.

    Raises:
        OperationError: the stack does not list the host, or it could not be asked.
    """
    host = settings.hosts.get(node)
    if host is None or host.gone:
        raise OperationError(
            f"The stack does not list '{node}' under hosts, or says that it is gone, so --hosts can't ask it: "
            "docs/hosts.md says how to list it. Or leave --hosts out."
        )
    try:
        return answers_of(hosts_of(stack, settings.model_copy(update={"hosts": {node: host}}))[node])
    except HostLookError as error:
        raise OperationError(f"{error}. Nothing was started on '{node}'.") from None


def answers_of(report: HostReport) -> dict[str, str]:
    """What a host said.

    Raises:
        HostLookError: the host could not be asked.
    """
    if report.examination is None:
        raise HostLookError(f"Host '{report.plan.node}' could not be asked: {report.trouble}")
    toolkit, injection = report.examination.probe.toolkit, report.examination.injection
    mode = f" in mode {toolkit.mode}" if toolkit.mode else ""
    return {
        "container_toolkit": f"{toolkit.version}{mode}" if toolkit.version else "none on the host",
        "l4t": injection.l4t or _NOTHING,
        "csv_digest": injection.csv_digest or _NOTHING,
        "cdi_digest": injection.cdi_digest or _NOTHING,
    }
