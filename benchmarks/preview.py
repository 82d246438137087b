"""`make bench-preview`: what a preview of the full stack costs over an empty program, and a no-op `up` over a preview.

Every ratio is taken pair by pair in one run on a simulator, so that it holds while the machine's speed drifts. Wall
time is what a person waits; processor time is what the machine does, and hardly changes with what else runs on it.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import simulator
from benchmarks.projects import Cost, constants, empty, environment, full, one_object, pulumi
from benchmarks.result import Result, of_pairs, rounds, tell

PREVIEW_GOAL = 1.2
UP_GOAL = 1.2


def results() -> Iterator[Result]:
    """Measure on a simulator of its own."""
    folder = Path(tempfile.mkdtemp(prefix="kai-anywhere-benchmark-"))
    try:
        yield from _measure(folder)
    finally:
        simulator.reset(folder / "simulator")
        shutil.rmtree(folder)


def _measure(folder: Path) -> Iterator[Result]:
    variables = environment(folder / "state")
    control_plane = simulator.up(folder / "simulator", report=lambda _: None)
    nothing = empty(folder / "empty", variables)
    everything = full(folder / "full", variables, control_plane.kubeconfig)
    one = one_object(folder / "one", variables, control_plane.kubeconfig)
    for project in (everything, nothing, one):
        pulumi(project, variables, "up", "--yes", "--skip-preview")
    ready = constants(folder / "constants", variables, everything)
    # It would compare two things otherwise.
    pulumi(ready, variables, "preview", "--expect-no-changes")

    def preview(project: Path) -> Cost:
        return pulumi(project, variables, "preview")

    def up() -> Cost:
        return pulumi(everything, variables, "up", "--yes", "--skip-preview")

    yield from _compare(
        "Preview of the full stack over an empty program",
        lambda: preview(everything),
        lambda: preview(nothing),
        ("full stack", "empty program"),
        PREVIEW_GOAL,
    )
    yield from _compare(
        "Preview of the same resources as constants over an empty program",
        lambda: preview(ready),
        lambda: preview(nothing),
        ("constants", "empty program"),
    )
    yield from _compare(
        "Preview of one ConfigMap over an empty program",
        lambda: preview(one),
        lambda: preview(nothing),
        ("one ConfigMap", "empty program"),
    )
    yield from _compare("No-op up over a preview", up, lambda: preview(everything), ("up", "preview"), UP_GOAL)


def _compare(
    name: str, first: Callable[[], Cost], second: Callable[[], Cost], what: tuple[str, str], goal: float | None = None
) -> Iterator[Result]:
    pairs = [(first(), second()) for _ in range(rounds(7, 2))]
    yield of_pairs(name, [(a.wall_seconds, b.wall_seconds) for a, b in pairs], what, goal=goal)
    yield of_pairs(f"{name}, processor time", [(a.processor_seconds, b.processor_seconds) for a, b in pairs], what)


if __name__ == "__main__":
    tell(results())
