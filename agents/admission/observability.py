"""Metrics and logs. No log line holds a body, a pod's content or a key."""

import datetime as dt
import json
import logging
import sys

from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from typing_extensions import override

_OWN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)


class Metrics:
    """What Prometheus reads at /metrics.

    Attributes:
        registry: holds them all.
        reviews: answered requests by mutation and outcome.
        seconds: time from the request's first byte read to its answer, by mutation.
        closed: connections that were closed before their time, by reason.
        expiry: when the served certificate expires, Unix time.
        ready: 1 while /readyz says so.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reviews = Counter(
            "kai_anywhere_admission_reviews",
            "Requests by mutation and outcome: changed, unchanged, refused, bad",
            ["mutation", "outcome"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "kai_anywhere_admission_seconds",
            "Time to answer a request",
            ["mutation"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.closed = Counter(
            "kai_anywhere_admission_closed_connections",
            "Connections closed before their time: full, evicted, late, pipelined",
            ["reason"],
            registry=self.registry,
        )
        self.expiry = Gauge(
            "kai_anywhere_admission_certificate_expiry_seconds",
            "When the served certificate expires, Unix time",
            registry=self.registry,
        )
        self.ready = Gauge("kai_anywhere_admission_ready", "Whether /readyz says so", registry=self.registry)


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, event, and the fields given as `extra`."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _OWN_FIELDS}
        if record.exc_info:
            # Where, and of which class; an exception's own text could quote a pod.
            kind, _, trace = record.exc_info
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            place = "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
            line |= {"error": "" if kind is None else kind.__name__, "at": place}
        return json.dumps(line, default=str)


def _is_ours(record: logging.LogRecord) -> bool:
    """Not what aiohttp logs of each request that is no HTTP: anybody could fill the disk with it."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


def log_to_stderr() -> None:
    """Send every log line of this process to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("aiohttp.server").addFilter(_is_ours)
    logging.getLogger("aiohttp.access").setLevel(logging.ERROR)
