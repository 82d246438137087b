"""`make bench-doctor`: what `kai-anywhere doctor` costs on clusters of many nodes, one pod of which waits on each."""

import sys
from collections.abc import Iterator

from benchmarks import many_nodes
from benchmarks.result import Result, tell


def results() -> Iterator[Result]:
    """Measure both of its outputs, and the question about one pod."""
    pod = ("doctor", "pod", "arm-0-4", "--namespace", "robots")
    return many_nodes.results("doctor", {"": ("doctor",), "--json": ("doctor", "--json"), "pod": pod})


if __name__ == "__main__":
    sys.exit(any(result.met is False for result in tell(results())))
