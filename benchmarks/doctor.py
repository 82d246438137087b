"""`make bench-doctor`: what `kai-anywhere doctor` costs on clusters of many nodes, one pod of which waits on each."""

from benchmarks.many_nodes import measure

if __name__ == "__main__":
    measure(
        {
            "text": ("doctor",),
            "--json": ("doctor", "--json"),
            "pod": ("doctor", "pod", "arm-0-4", "--namespace", "robots"),
        }
    )
