"""Stacks on simulators."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import simulator
from testbed.stacks import Json, changed


@contextmanager
def start(folder: Path) -> Iterator[simulator.ControlPlane]:
    """A simulator of one's own."""
    try:
        yield simulator.up(folder)
    finally:
        simulator.reset(folder)


def stack_settings(settings: Json, control_plane: simulator.ControlPlane) -> Json:
    """A stack's settings for a simulator: its kubeconfig, the stand-in charts, bounded waits."""
    settings = changed(settings, "cluster.kubeconfig", str(control_plane.kubeconfig))
    settings = changed(settings, "kai.chart", {"source": str(simulator.chart_path("kai-scheduler"))})
    settings = changed(settings, "gpu_operator.chart", {"source": str(simulator.chart_path("gpu-operator"))})
    settings = changed(settings, "kai.timeout_seconds", 300)
    return changed(settings, "gpu_operator.timeout_seconds", 300)
