"""`make bench-status`: what `kai-anywhere status` costs on clusters of many nodes."""

import os
import sys
from collections.abc import Iterator

from benchmarks import many_nodes
from benchmarks.result import Result, tell


def results() -> Iterator[Result]:
    """Measure each form of its output."""
    html = ("status", "--html", os.devnull)
    return many_nodes.results("status", {"": ("status",), "--json": ("status", "--json"), "--html": html})


if __name__ == "__main__":
    sys.exit(any(result.met is False for result in tell(results())))
