"""Pulumi projects on a simulator, and what one command of theirs costs."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

import simulator
import toolchain
from operations.stack_file import read_stack_file, with_settings
from testbed.engine import ASKS_NOBODY
from testbed.stacks import ROOT, STACK_FILES


@dataclass(frozen=True)
class Cost:
    """What one command costs, with all processes that it waited for.

    Attributes:
        wall_seconds: from start to end.
        processor_seconds: of all its threads: less than wall time where it waits, hardly changed by what else runs.
    """

    wall_seconds: float
    processor_seconds: float


def environment(state: Path) -> dict[str, str]:
    """The variables of pulumi, with its state in a folder, which is made."""
    state.mkdir()
    return toolchain.environment(toolchain.ENGINE) | {
        # As `make` does for a simulator.
        "PULUMI_BACKEND_URL": f"{state.as_uri()}?metadata=skip",
        "PULUMI_CONFIG_PASSPHRASE": "",
        **ASKS_NOBODY,
        # As on a person's machine: the program is compiled once, not with every command.
        "PYTHONDONTWRITEBYTECODE": "",
    }


def empty(folder: Path, variables: Mapping[str, str]) -> Path:
    """A stack whose program imports Pulumi and does nothing."""
    project = _project(folder, "empty", folder)
    (project / "__main__.py").write_text("import pulumi\n", encoding="utf-8")
    pulumi(project, variables, "stack", "init", "jetson")
    return project


def one_object(folder: Path, variables: Mapping[str, str], kubeconfig: Path) -> Path:
    """A stack of one ConfigMap on a simulator."""
    project = _project(folder, "one", folder)
    shutil.copy(Path(__file__).with_name("one_object_program.py"), project / "__main__.py")
    pulumi(project, variables, "stack", "init", "jetson")
    pulumi(project, variables, "config", "set", "kubeconfig", str(kubeconfig), "--stack", "jetson")
    return project


def full(folder: Path, variables: Mapping[str, str], kubeconfig: Path) -> Path:
    """The Jetson stack of the testbed, on a simulator, with its stand-in charts."""
    project = _project(folder, "kai-anywhere", ROOT)
    pulumi(project, variables, "stack", "init", "jetson")
    charts = {
        section: {"chart": {"source": str(simulator.chart_path(chart))}}
        for section, chart in (("kai", "kai-scheduler"), ("gpu_operator", "gpu-operator"))
    }
    changes = {"cluster": {"kubeconfig": str(kubeconfig)}} | charts
    stack = project / "Pulumi.jetson.yaml"
    content = with_settings(read_stack_file(STACK_FILES / "Pulumi.jetson.yaml"), changes)
    stack.write_text(yaml.safe_dump(read_stack_file(stack) | content), encoding="utf-8")
    return project


def constants(folder: Path, variables: Mapping[str, str], stack: Path) -> Path:
    """The program of a stack that is up replaced by one that has all resources ready: it registers them."""
    folder.mkdir()
    project = _project(folder / "project", "kai-anywhere", folder)
    state = output_of(["pulumi", "stack", "export", "--stack", "jetson", "--cwd", str(stack)], variables)
    (folder / "state.json").write_text(state, encoding="utf-8")
    shutil.copy(Path(__file__).with_name("constants_program.py"), folder / "__main__.py")
    shutil.copy(stack / "Pulumi.jetson.yaml", project)
    pulumi(project, variables, "stack", "select", "jetson")
    return project


def _project(folder: Path, name: str, program: Path) -> Path:
    folder.mkdir()
    runtime = {"name": "python", "options": {"virtualenv": sys.prefix}}
    project = {"name": name, "runtime": runtime, "main": str(program)}
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump(project), encoding="utf-8")
    return folder


def pulumi(project: Path, variables: Mapping[str, str], *arguments: str) -> Cost:
    """Run pulumi; exits with its words where it fails."""
    return run(["pulumi", *arguments, "--non-interactive", "--cwd", str(project)], variables)


def run(command: list[str], variables: Mapping[str, str]) -> Cost:
    """Run a command to its end; exits with its words where it fails."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, env=dict(variables), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    with process:
        assert process.stdout is not None  # noqa: S101 - asked for above
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        took = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(command[:2])} failed:\n{output}")
    return Cost(took, usage.ru_utime + usage.ru_stime)


def output_of(command: list[str], variables: Mapping[str, str]) -> str:
    """What a command writes; exits with its words where it fails."""
    done = subprocess.run(command, check=False, env=dict(variables), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command[:3])} failed:\n{done.stderr}")
    return done.stdout
