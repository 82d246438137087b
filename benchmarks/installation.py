"""`make bench-installation`: `up` from nothing over the same objects by `helm install` and `kubectl apply`, one by one.

Both begin with an empty simulator of their own and end when the last object is there, in the same order. The pods of a
release are waited for in both, by the script's Helm and by the program. What a later object needs of an operator, the
program waits for; the script tries until it is taken, which leaves out that nobody may see its GPUs yet. Rounds
alternate, so that a drift of the machine spoils no ratio.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import simulator
import toolchain
from benchmarks.projects import environment, full, pulumi
from benchmarks.result import Result, of_pairs, rounds, tell
from config.stack import StackSettings
from manifests import every_object
from manifests.node_labels import node_labels
from manifests.objects import HelmRelease
from testbed.simulated import stack_settings, start
from testbed.stacks import jetson, parse

GOAL = 1.0
_PATIENCE_SECONDS = 300.0


def results() -> Iterator[Result]:
    """Measure; a simulator per installation."""
    toolchain.install(toolchain.CHARTS)
    programs = toolchain.environment((*toolchain.ENGINE, *toolchain.SIMULATOR, *toolchain.CHARTS))
    folder = Path(tempfile.mkdtemp(prefix="kai-anywhere-benchmark-"))
    try:
        pairs = [_pair(folder / str(number), programs) for number in range(rounds(5, 1))]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    name = "Up from nothing over helm install and kubectl apply"
    yield of_pairs(name, pairs, ("up", "helm and kubectl"), goal=GOAL)


def _pair(folder: Path, programs: Mapping[str, str]) -> tuple[float, float]:
    """Seconds of wall time of both."""
    folder.mkdir()
    with start(folder / "ours") as control_plane:
        variables = environment(folder / "state")
        project = full(folder / "project", variables, control_plane.kubeconfig)
        ours = pulumi(project, variables, "up", "--yes", "--skip-preview").wall_seconds
    with start(folder / "theirs") as control_plane:
        theirs = _by_hand(folder, control_plane, programs)
    return ours, theirs


def _by_hand(folder: Path, control_plane: simulator.ControlPlane, programs: Mapping[str, str]) -> float:
    """What a script would do in the program's order: labels, operator, overrides, KAI, queues, guard."""
    settings = parse(stack_settings(jetson(), control_plane))
    # Written before: a script has its files.
    commands = list(_commands(folder, settings))
    variables = {**programs, "KUBECONFIG": str(control_plane.kubeconfig), "HELM_CACHE_HOME": str(folder / "helm")}
    begin = time.perf_counter()
    for command in commands:
        _until_it_succeeds(command, variables)
    return time.perf_counter() - begin


def _commands(folder: Path, settings: StackSettings) -> Iterator[list[str]]:
    for node, labels in node_labels(settings).items():
        yield ["kubectl", "label", "--overwrite", "node", node, *(f"{key}={text}" for key, text in labels.items())]
    for name, stack_object in every_object.in_order(settings).items():
        file = folder / f"{name}.json"
        if isinstance(stack_object.content, HelmRelease):
            file.write_text(json.dumps(dict(stack_object.content.values)), encoding="utf-8")
            yield _install(stack_object.content, file)
        else:
            file.write_text(json.dumps(stack_object.content), encoding="utf-8")
            yield _apply(file)


def _install(release: HelmRelease, values: Path) -> list[str]:
    bound = ["--wait", "--timeout", f"{release.timeout_seconds}s"]
    chart = ["install", release.name, release.source.chart, "--namespace", release.namespace]
    return ["helm", *chart, "--values", str(values), *bound]


def _apply(file: Path) -> list[str]:
    # As the program's provider applies: by the server.
    return ["kubectl", "apply", "--server-side", "--force-conflicts", "--filename", str(file)]


def _until_it_succeeds(command: list[str], variables: Mapping[str, str]) -> None:
    """An object is refused while its kind's webhook does not answer yet; a release is tried once."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        done = subprocess.run(command, env=dict(variables), check=False, capture_output=True, text=True)
        if done.returncode == 0:
            return
        if command[0] == "helm" or time.monotonic() > deadline:
            sys.exit(f"{' '.join(command[:3])} failed:\n{done.stdout}{done.stderr}")
        time.sleep(0.2)


if __name__ == "__main__":
    tell(results())
