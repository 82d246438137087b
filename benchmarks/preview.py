"""`make bench-preview`: what a preview of the full stack costs over an empty program, and a no-op `up` over a preview.

Both ratios are taken pair by pair in one run on a simulator, so that they hold while the machine's speed drifts.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

import simulator
import toolchain
from operations.stack_file import read_stack_file, with_settings
from testbed.stacks import STACK_FILES

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 7
PREVIEW_GOAL = 1.5
UP_GOAL = 1.2


def main() -> None:
    """Measure and print both ratios."""
    folder = Path(tempfile.mkdtemp(prefix="kai-anywhere-benchmark-"))
    try:
        _measure(folder)
    finally:
        simulator.reset(folder / "simulator")
        shutil.rmtree(folder)


def _measure(folder: Path) -> None:
    environment = toolchain.environment(toolchain.ENGINE) | {
        "PULUMI_BACKEND_URL": (folder / "state").as_uri(),
        "PULUMI_CONFIG_PASSPHRASE": "",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }
    (folder / "state").mkdir()
    control_plane = simulator.up(folder / "simulator")
    empty = _project(folder / "empty", "empty", folder / "empty")
    (empty / "__main__.py").write_text("import pulumi\n", encoding="utf-8")
    full = _project(folder / "full", "kai-anywhere", ROOT)
    charts = {
        section: {"chart": {"source": str(simulator.chart_path(chart))}}
        for section, chart in (("kai", "kai-scheduler"), ("gpu_operator", "gpu-operator"))
    }
    changes = {"cluster": {"kubeconfig": str(control_plane.kubeconfig)}} | charts
    for project in (empty, full):
        _pulumi(project, environment, "stack", "init", "jetson")
    stack = full / "Pulumi.jetson.yaml"
    content = with_settings(read_stack_file(STACK_FILES / "Pulumi.jetson.yaml"), changes)
    stack.write_text(yaml.safe_dump(read_stack_file(stack) | content), encoding="utf-8")
    _pulumi(full, environment, "up", "--yes", "--skip-preview")
    _pulumi(empty, environment, "up", "--yes", "--skip-preview")

    def preview(project: Path) -> Callable[[], None]:
        return lambda: _pulumi(project, environment, "preview")

    def up() -> None:
        _pulumi(full, environment, "up", "--yes", "--skip-preview")

    _compare("preview of the full stack / of an empty program", preview(full), preview(empty), PREVIEW_GOAL)
    _compare("no-op up / preview", up, preview(full), UP_GOAL)


def _project(folder: Path, name: str, program: Path) -> Path:
    folder.mkdir()
    runtime = {"name": "python", "options": {"virtualenv": sys.prefix}}
    project = {"name": name, "runtime": runtime, "main": str(program)}
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump(project), encoding="utf-8")
    return folder


def _pulumi(project: Path, environment: Mapping[str, str], *arguments: str) -> None:
    command = ["pulumi", *arguments, "--non-interactive", "--cwd", str(project)]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"pulumi {arguments[0]} failed:\n{done.stdout}{done.stderr}")


def _compare(what: str, first: Callable[[], None], second: Callable[[], None], goal: float) -> None:
    pairs = [(_seconds(first), _seconds(second)) for _ in range(ROUNDS)]
    ratios = [a / b for a, b in pairs]
    medians = [statistics.median(side) for side in zip(*pairs, strict=True)]
    sys.stdout.write(
        f"{what}: ratio {statistics.median(ratios):.2f} (goal at most {goal}; {min(ratios):.2f} to {max(ratios):.2f} "
        f"in {ROUNDS} rounds; medians {medians[0]:.2f} s and {medians[1]:.2f} s, load {os.getloadavg()[0]:.1f})\n"
    )
    sys.stdout.flush()


def _seconds(run: Callable[[], None]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
