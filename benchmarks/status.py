"""`make bench-status`: what `kai-anywhere status` costs on clusters of many nodes."""

import os

from benchmarks.many_nodes import measure

if __name__ == "__main__":
    measure({"text": ("status",), "--json": ("status", "--json"), "--html": ("status", "--html", os.devnull)})
