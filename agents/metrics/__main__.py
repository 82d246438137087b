"""`python -m agents.metrics`: reads the cluster and answers Prometheus until SIGTERM."""

import argparse
import math
import signal
import sys
import threading
from collections.abc import Sequence
from functools import partial

from agents.metrics.reader import Reader, log
from agents.metrics.server import Server
from cluster.access.client import Cluster
from cluster.errors import ClusterError
from cluster.snapshot import read_snapshot
from sharing_map.build import build
from sharing_map.report import Status

INTERVAL_SECONDS = 30.0
PORT = 8080


def read(cluster: Cluster) -> Status:
    """The sharing map of now.

    Raises:
        ClusterError: the cluster can't be read.
    """
    snapshot = read_snapshot(cluster, whole=True)
    return build(snapshot, context=cluster.context, server=cluster.server, simulated=False)


def main(arguments: Sequence[str]) -> int:
    """Run the exporter; the exit status is 0 after SIGTERM, 2 if it can't start."""
    options = _parser().parse_args(arguments)
    try:
        cluster = Cluster.open(options.kubeconfig) if options.kubeconfig else Cluster.in_cluster()
        reader = Reader(partial(read, cluster), options.interval_seconds)
        server = Server(options.host, options.port, reader)
    except (ClusterError, OSError) as error:
        log("the exporter can't run", error=str(error))
        return 2
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    reading = threading.Thread(target=reader.run, args=(stopped,), daemon=True)
    reading.start()
    log("listening", port=server.server_port, interval_s=options.interval_seconds)
    # A thread that ends has failed in a way nobody foresaw: the pod is restarted.
    while not stopped.wait(1) and reading.is_alive():
        pass
    server.shutdown()
    return 0 if stopped.is_set() else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m agents.metrics", description=__doc__, allow_abbrev=False)
    parser.add_argument("--interval-seconds", type=_seconds, default=INTERVAL_SECONDS, help="between two reads")
    parser.add_argument("--host", help="address to listen on; by default all, IPv4 and IPv6")
    parser.add_argument("--port", type=int, default=PORT, help="0 for any")
    parser.add_argument(
        "--kubeconfig", help="outside of a pod; in one, the kubelet's files say how to reach the API server"
    )
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a time above 0")
    return value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
