"""Reads the cluster again and again, and keeps what was read last."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from typing_extensions import override

from agents.metrics.samples import metrics
from cluster.errors import ClusterError
from sharing_map.report import Status

_KEPT_INTERVALS = 5
_KEPT_SECONDS = 120.0
"""What was read stays for five intervals and at least so long: old numbers are worse than none."""
_STUCK_SECONDS = 300.0
"""A read ends sooner, whatever the API server does: each request has a timeout."""


@dataclass(eq=False)
class Reader(Collector):
    """What was read last.

    Attributes:
        read: reads the cluster.
        interval_seconds: between two reads.
        clock: seconds, of any start.
        registry: everything that Prometheus is told.
    """

    read: Callable[[], Status]
    interval_seconds: float
    clock: Callable[[], float] = time.monotonic
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        self._status: Status | None = None
        self._read_at = self._beat = self.clock()
        self.reads = Counter(
            "kai_anywhere_exporter_reads", "Reads of the cluster by outcome", ["outcome"], registry=self.registry
        )
        self.last_read = Gauge(
            "kai_anywhere_exporter_last_read_timestamp_seconds",
            "When the cluster was read last, Unix time; 0 before that",
            registry=self.registry,
        )
        self.duration = Gauge(
            "kai_anywhere_exporter_read_duration_seconds", "How long the last read took", registry=self.registry
        )
        for outcome in ("read", "failed"):
            self.reads.labels(outcome)
        ProcessCollector(registry=self.registry)
        self.registry.register(self)

    def describe(self) -> Iterator[Metric]:
        """Nothing: prometheus_client would otherwise collect to learn the names."""
        return iter(())

    @override
    def collect(self) -> Iterator[Metric]:
        """What was read last, unless it is too old."""
        status = self.status
        if status is not None:
            yield from metrics(status)

    @property
    def status(self) -> Status | None:
        """What was read last; None before that, and once it is too old."""
        kept = max(_KEPT_INTERVALS * self.interval_seconds, _KEPT_SECONDS)
        return self._status if self.clock() - self._read_at <= kept else None

    @property
    def stuck(self) -> bool:
        """Whether nothing was read, or tried, for too long."""
        return self.clock() - self._beat > self.interval_seconds + _STUCK_SECONDS

    def look(self) -> None:
        """Read once."""
        begin = self._beat = self.clock()
        try:
            status = self.read()
        except ClusterError as error:
            self.reads.labels("failed").inc()
            log("the cluster can't be read", error=str(error).splitlines()[0])
            return
        # Both in this order: a scrape between them sees old numbers with an old time.
        self._status, self._read_at = status, self.clock()
        self.last_read.set(status.taken.timestamp())
        self.duration.set(self._read_at - begin)
        self.reads.labels("read").inc()

    def run(self, stopped: threading.Event) -> None:
        """Read until it is stopped; the time between the beginnings of two reads is the interval, or more."""
        while not stopped.is_set():
            begin = self.clock()
            self.look()
            stopped.wait(max(1.0, self.interval_seconds - (self.clock() - begin)))


def log(event: str, **fields: object) -> None:
    """One line of JSON on standard error."""
    line = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "event": event, **fields}
    sys.stderr.write(json.dumps(line) + "\n")
    sys.stderr.flush()
