"""`make bench-simulator`: the simulator's memory and the time until it is ready, alone and with KAI's own programs.

The programs are those of KAI_PROGRAMS; where KAI's chart lies, and its images' names, say the settings `kai` of STACK.
Memory is what all processes have together, what they share counted once (PSS). With KAI, ready is when the control
plane is there and all of KAI's Deployments are available; what Pulumi takes to install them is told, not counted.
"""

import datetime as dt
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from lightkube import Client
from lightkube.resources.apps_v1 import Deployment

import simulator
import toolchain
from config.stack import StackConfigError
from manifests.versions import KAI_SCHEDULER
from operations import kai_programs
from operations.errors import OperationError
from operations.stack_file import raw_settings
from simulator.api import client
from testbed.engine import Stack
from testbed.stacks import ROOT, changed, jetson, parse
from testbed.waiting import eventually

GOAL_MB = 2500
GOAL_SECONDS = 30.0
_MB = 1_000_000
_OPERATOR = "kai-operator"


@dataclass(frozen=True)
class Cost:
    """What a simulator took.

    Attributes:
        seconds: until it was ready.
        memory_mb: of all its processes.
        processes: how many there are.
    """

    seconds: float
    memory_mb: float
    processes: int


def main() -> None:
    """Measure and print."""
    try:
        with tempfile.TemporaryDirectory(prefix="kai-anywhere-benchmark-") as name:
            alone = _alone(Path(name))
            _say(f"alone: {_summary(alone)}")
            if os.environ.get(toolchain.FOLDER_VARIABLE) in (None, "", kai_programs.EMULATED):
                _say(f"with KAI's programs: not measured, {toolchain.FOLDER_VARIABLE} names none (docs/simulator.md)")
                return
            with_kai = _with_kai(Path(name))
    except (OperationError, StackConfigError, simulator.SimulatorError, toolchain.ToolchainError) as error:
        sys.exit(str(error))
    _say(f"with KAI's programs: {_summary(with_kai)}; goals: at most {GOAL_MB} MB and {GOAL_SECONDS:.0f} s")
    _say(
        f"ratios: {with_kai.memory_mb / alone.memory_mb:.2f} x the memory, {with_kai.seconds / alone.seconds:.2f} x "
        "the time"
    )


def _alone(folder: Path) -> Cost:
    place = folder / "alone"
    begin = time.monotonic()
    try:
        simulator.up(place)
        return _cost(place, time.monotonic() - begin)
    finally:
        simulator.reset(place)


def _with_kai(folder: Path) -> Cost:
    stack = changed(jetson(), "kai", raw_settings(ROOT / f"Pulumi.{os.environ['STACK']}.yaml").get("kai", {}))
    stack = changed(stack, "gpu_operator.chart", {"source": str(simulator.chart_path("gpu-operator"))})
    settings, place = parse(stack), folder / "kai"
    official = settings.kai.chart.source is not None or toolchain.reachable(
        KAI_SCHEDULER.source.replace("oci://", "https://")
    )
    programs = kai_programs.choose(settings, simulator.status(place), official_chart=official)
    environment = toolchain.environment(toolchain.ENGINE)
    begin = time.monotonic()
    try:
        plane = simulator.up(place, kai_programs=programs)
        control_plane = time.monotonic() - begin
        installer = Stack(folder / "stack", changed(stack, "cluster.kubeconfig", str(plane.kubeconfig)), environment)
        begin = time.monotonic()
        installer.up()
        installed = time.monotonic() - begin
        with client(plane.kubeconfig) as api:
            eventually(lambda: all(map(_available_since, _deployments(api, settings.kai.namespace))))
            kai = _seconds_of_kai(_deployments(api, settings.kai.namespace))
        _say(
            f"control plane {control_plane:.1f} s, then KAI {kai:.0f} s; Pulumi's whole installation {installed:.1f} s"
        )
        return _cost(place, control_plane + kai)
    finally:
        simulator.reset(place)


def _deployments(api: Client, namespace: str) -> list[Deployment]:
    return list(api.list(Deployment, namespace=namespace))


def _available_since(deployment: Deployment) -> dt.datetime | None:
    for condition in (deployment.status and deployment.status.conditions) or ():
        if condition.type == "Available" and condition.status == "True":
            return condition.lastTransitionTime
    return None


def _seconds_of_kai(deployments: list[Deployment]) -> float:
    """From the operator's creation until the last Deployment was available: whole seconds, as the API server has it."""
    [began] = [
        deployment.metadata.creationTimestamp
        for deployment in deployments
        if deployment.metadata and deployment.metadata.name == _OPERATOR and deployment.metadata.creationTimestamp
    ]
    return max((since - began).total_seconds() for deployment in deployments if (since := _available_since(deployment)))


def _cost(place: Path, seconds: float) -> Cost:
    roots = [psutil.Process(process.pid) for process in simulator.status(place).processes if process.pid]
    processes = [process for root in roots for process in (root, *root.children(recursive=True))]
    return Cost(seconds, sum(process.memory_full_info().pss for process in processes) / _MB, len(processes))


def _summary(cost: Cost) -> str:
    return f"ready in {cost.seconds:.1f} s, {cost.memory_mb:.0f} MB in {cost.processes} processes"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
