"""Stacks on simulators."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import yaml

import simulator
from simulator import records
from simulator.layout import Layout
from testbed.stacks import Json, changed


@contextmanager
def start(folder: Path, *, older: bool = False) -> Iterator[simulator.ControlPlane]:
    """A simulator of one's own; an older one has MutatingAdmissionPolicy v1beta1 alone."""
    try:
        yield simulator.up(folder, older=older)
    finally:
        simulator.reset(folder)


def kill(control_plane: simulator.ControlPlane, process: str) -> None:
    """Kill one process of a simulator, as the machine's OOM killer would."""
    os.kill(_pid(control_plane, process), signal.SIGKILL)


def processor_s(control_plane: simulator.ControlPlane, process: str) -> float:
    """The processor time that one process of a simulator has taken until now, in seconds."""
    times = psutil.Process(_pid(control_plane, process)).cpu_times()
    return times.user + times.system


def _pid(control_plane: simulator.ControlPlane, process: str) -> int:
    state = records.read(Layout.of(control_plane.folder).records)
    assert state is not None
    return state.processes[process].pid


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
