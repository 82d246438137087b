"""`make bench-nodes`: what many Jetsons cost in one stack, over what one costs.

Each number of nodes has a simulator of its own, whose nodes KWOK plays, and a stack on the real engine: a first `up`,
then previews and `up`s that change nothing. Every run of many nodes is taken beside one of a single node, and a ratio
is of such a pair, so that it holds while the machine's other work changes. Processor time is that of the engine, the
program and the providers, not of the API server; wall time has everything, and what else the machine does.
"""

import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import simulator
import toolchain
from testbed.engine import Stack
from testbed.simulated import stack_settings
from testbed.stacks import changed, jetson

NODES = tuple(int(nodes) for nodes in os.environ.get("NODES", "100,400,1000").split(","))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
UP_GOAL, PREVIEW_GOAL = 5.0, 2.0
_MEMORY_MIB = 28672


@dataclass(frozen=True)
class _Cost:
    """What one command costs, in seconds.

    Attributes:
        wall: from start to end.
        processor: of all its processes that have ended with it.
    """

    wall: float
    processor: float

    def over(self, other: "_Cost") -> "_Cost":
        """The ratios."""
        return _Cost(self.wall / other.wall, self.processor / other.processor)


def main() -> None:
    """Measure and print the ratios."""
    missed = False
    with tempfile.TemporaryDirectory(prefix="kai-anywhere-benchmark-") as scratch, _stack(Path(scratch, "1"), 1) as one:
        single = _cost(one.up)
        for nodes in NODES:
            with _stack(Path(scratch, str(nodes)), nodes) as many:
                missed |= _measure(nodes, single, one, many)
    sys.exit(missed)


def _measure(nodes: int, single: _Cost, one: Stack, many: Stack) -> bool:
    """Print what a number of nodes costs; whether a goal is missed."""
    first = _cost(many.up)
    _say(f"up of {nodes} nodes", [(first, single)], UP_GOAL)
    ups = [(_cost(many.up), _cost(one.up)) for _ in range(ROUNDS)]
    _say(f"no-op up of {nodes} nodes", ups, None)
    previews = [(_cost(many.preview), _cost(one.preview)) for _ in range(ROUNDS)]
    _say(f"no-op preview of {nodes} nodes", previews, PREVIEW_GOAL)
    sys.stdout.write(f"  state: {_state_kib(many)} KiB, of one node {_state_kib(one)} KiB\n")
    sys.stdout.flush()
    preview = statistics.median(a.over(b).processor for a, b in previews)
    return first.over(single).processor > UP_GOAL or preview > PREVIEW_GOAL


def _say(what: str, pairs: list[tuple[_Cost, _Cost]], goal: float | None) -> None:
    ratios = [many.over(one) for many, one in pairs]
    walls, processors = ([getattr(ratio, kind) for ratio in ratios] for kind in ("wall", "processor"))
    seconds = [statistics.median(side.processor for side in sides) for sides in zip(*pairs, strict=True)]
    wall_seconds = [statistics.median(side.wall for side in sides) for sides in zip(*pairs, strict=True)]
    spread = f"; {min(processors):.2f} to {max(processors):.2f} in {len(pairs)} rounds" if len(pairs) > 1 else ""
    aim = f", goal at most {goal}" if goal is not None else ""
    sys.stdout.write(
        f"{what} over one: processor time {statistics.median(processors):.2f} ({seconds[0]:.1f} s over "
        f"{seconds[1]:.1f} s{spread}{aim}), wall time {statistics.median(walls):.2f} ({wall_seconds[0]:.1f} s over "
        f"{wall_seconds[1]:.1f} s; load {os.getloadavg()[0]:.1f})\n"
    )
    sys.stdout.flush()


@contextmanager
def _stack(folder: Path, nodes: int) -> Iterator[Stack]:
    """A stack that names so many Jetsons, on a simulator that has them; not up yet."""
    folder.mkdir()
    names = [f"jetson-{number}" for number in range(1, nodes + 1)]
    environment = toolchain.environment((*toolchain.ENGINE, *toolchain.SIMULATOR))
    try:
        plane = simulator.up(
            folder / "simulator", nodes=dict.fromkeys(names, simulator.NodeKind.JETSON), report=lambda _: None
        )
        settings = changed(jetson(), "platform.tegra_nodes", {name: {"gpu_memory_mib": _MEMORY_MIB} for name in names})
        yield Stack(folder / "stack", stack_settings(settings, plane), environment)
    finally:
        simulator.reset(folder / "simulator")


def _state_kib(stack: Stack) -> int:
    [state] = (stack.folder / "state").rglob(f"stacks/**/{stack.name}.json")
    return state.stat().st_size // 1024


def _cost(run: Callable[[], object]) -> _Cost:
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    run()
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - begin
    return _Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


if __name__ == "__main__":
    main()
