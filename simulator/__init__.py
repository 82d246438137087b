"""The embedded default: a real control plane with simulated nodes, for machines with no cluster and no GPU."""

from pathlib import Path

from simulator.control_plane import DEFAULT_FOLDER, ControlPlane, down, reset, up
from simulator.errors import SimulatorError
from simulator.nodes import DEFAULT_NODES, NodeKind
from simulator.pods.launcher import unavailable as no_programs
from simulator.status import NOT_CHECKED, Status, simulated, status

__all__ = [
    "DEFAULT_FOLDER",
    "DEFAULT_NODES",
    "NOT_CHECKED",
    "ControlPlane",
    "NodeKind",
    "SimulatorError",
    "Status",
    "chart_path",
    "down",
    "no_programs",
    "reset",
    "simulated",
    "status",
    "up",
]

_CHARTS = Path(__file__).parent / "charts"


def chart_path(name: str) -> Path:
    """The folder of the stand-in chart `kai-scheduler` or `gpu-operator`.

    Raises:
        SimulatorError: there is no stand-in for a chart of that name.
    """
    path = _CHARTS / name
    if not (path / "Chart.yaml").is_file():
        names = ", ".join(sorted(chart.parent.name for chart in _CHARTS.glob("*/Chart.yaml")))
        raise SimulatorError(f"There is no stand-in for chart {name!r}; there are: {names}.")
    return path
