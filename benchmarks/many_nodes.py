"""What a command that looks at a cluster costs where that has many nodes.

The API server is a stand-in on loopback, a process of its own, which gives out prepared pages as the real one does.
Each cluster has five pods per node, of which one waits. What is measured is the whole command, the start of Python
included: wall time, processor time, and the most memory that it had at once. The exponent is that of the growth of
processor time from the smallest to the largest cluster: 1 is linear.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from urllib.parse import parse_qs, urlsplit

import yaml

from benchmarks.result import QUICK, Result, rounds, show
from operations.exit_status import ExitStatus
from testbed.http_server import Handler
from testbed.shared_gpus import installed, kinds, pages
from testbed.stacks import ROOT, STACK_FILES

NODES = tuple(int(nodes) for nodes in os.environ.get("NODES", "100,1000" if QUICK else "100,1000,5000").split(","))
GOAL_NODES, GOAL_SECONDS, GOAL_MIB = 1000, 10, 300
GOAL_EXPONENT = 1.1
_COMMAND = (
    "import os, pathlib; from operations import reading; reading.ROOT = pathlib.Path(os.environ['STACKS']); "
    "from operations.__main__ import main; main()"
)
"""The command, with the testbed's stack files: those of the checkout are their user's, and may name a cluster."""
_DONE = {ExitStatus.WELL, ExitStatus.FAILED, ExitStatus.WARNINGS}


@dataclass(frozen=True)
class _Cost:
    """What one command costs.

    Attributes:
        wall_seconds: from start to end.
        processor_seconds: of all its threads.
        memory_mib: the most that it had at once.
    """

    wall_seconds: float
    processor_seconds: float
    memory_mib: float


def results(command: str, variants: Mapping[str, tuple[str, ...]]) -> Iterator[Result]:
    """Measure what a command costs on clusters of each size.

    Args:
        command: of `kai-anywhere`.
        variants: its arguments, by a name.
    """
    costs: dict[tuple[str, int], list[_Cost]] = {}
    for nodes in NODES:
        with tempfile.TemporaryDirectory(prefix="kai-anywhere-benchmark-") as folder, _api_server(nodes) as port:
            for _ in range(rounds(3, 1)):
                for name, arguments in variants.items():
                    costs.setdefault((name, nodes), []).append(_cost(Path(folder), port, arguments))
        for name in variants:
            yield from _of_size(f"{command} {name}".rstrip(), nodes, costs[name, nodes])
    if len(NODES) > 1:
        for name in variants:
            yield _growth(f"{command} {name}".rstrip(), {nodes: costs[name, nodes] for nodes in NODES})


def _of_size(name: str, nodes: int, costs: list[_Cost]) -> Iterator[Result]:
    goals = (GOAL_SECONDS, GOAL_MIB) if nodes == GOAL_NODES else (None, None)
    processor = {"processor time": f"{show(median(cost.processor_seconds for cost in costs))} s"}
    yield Result(f"{name}, {nodes} nodes", "s", tuple(cost.wall_seconds for cost in costs), goals[0], parts=processor)
    memory = tuple(cost.memory_mib for cost in costs)
    yield Result(f"{name}, {nodes} nodes, memory", "MiB", memory, goals[1])


def _growth(name: str, costs: Mapping[int, list[_Cost]]) -> Result:
    """How processor time grows: 1 is linear."""
    sizes = sorted(costs)
    span = math.log(sizes[-1] / sizes[0])
    ends = zip(costs[sizes[0]], costs[sizes[-1]], strict=True)
    exponents = tuple(math.log(most.processor_seconds / least.processor_seconds) / span for least, most in ends)
    series = tuple((nodes, median(cost.processor_seconds for cost in costs[nodes])) for nodes in sizes)
    return Result(f"{name}, growth of processor time", "exponent", exponents, GOAL_EXPONENT, series=series)


def _cost(folder: Path, port: int, arguments: tuple[str, ...]) -> _Cost:
    config = folder / "config"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "benchmark",
        "clusters": [{"name": "fleet", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "reader", "user": {"token": "none"}}],
        "contexts": [{"name": "benchmark", "context": {"cluster": "fleet", "user": "reader"}}],
    }
    config.write_text(yaml.safe_dump(content), encoding="utf-8")
    begin = time.perf_counter()
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, *arguments],
            cwd=ROOT,
            env=os.environ | {"KUBECONFIG": str(config), "STACKS": str(STACK_FILES)},
            stdout=output,
        )
        _, status, usage = os.wait4(process.pid, 0)
    took = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in _DONE:
        sys.exit(f"{arguments[0]} failed with {process.returncode}.")
    return _Cost(took, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


@contextmanager
def _api_server(nodes: int) -> Iterator[int]:
    """The stand-in, in a process of its own; its port."""
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(nodes, theirs), daemon=True)
    process.start()
    try:
        yield int(ours.recv())
    finally:
        process.terminate()
        process.join()


def _serve(nodes: int, ready: Connection) -> None:
    answers = {
        (path, token): json.dumps(page).encode()
        for path, items in installed(nodes).items()
        for token, page in pages(items)
    }
    version = {"major": "1", "minor": "36", "gitVersion": "v1.36.2"}
    answers |= {(path, ""): json.dumps(answer).encode() for path, answer in (("/version", version), *kinds())}

    class Answers(Handler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            [token] = parse_qs(url.query).get("continue", [""])
            body = answers.get((url.path, token))
            self.answer(200 if body else 404, body or b"", {"Content-Type": "application/json"})

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        ready.send(server.server_port)
        server.serve_forever()
