"""The exporter's process: reads, answers, and what becomes of old numbers."""

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from agents.metrics import __main__ as exporter
from agents.metrics.reader import Reader
from agents.metrics.server import _MOST_CONNECTIONS, Server
from cluster.errors import ClusterUnreachableError
from sharing_map.report import Status
from testbed.shared_gpus import gpu_node, reservation, share
from tests.support.api_server import connected
from tests.unit.sharing_map.clusters import TAKEN, status_of


class _Cluster:
    """A cluster that answers, or not.

    Attributes:
        away: whether it does not.
        now: the clock's time.
    """

    def __init__(self) -> None:
        self.away = False
        self.now = 1000.0

    def read(self) -> Status:
        if self.away:
            raise ClusterUnreachableError("No answer from the cluster at https://10.0.0.5:6443: refused\nCheck it.")
        return status_of(nodes=[gpu_node("jetson-1")], pods=[reservation("g"), share("a", "g")])


@pytest.fixture
def cluster() -> _Cluster:
    return _Cluster()


@pytest.fixture
def reader(cluster: _Cluster) -> Reader:
    return Reader(cluster.read, 30, clock=lambda: cluster.now)


@contextmanager
def _serving(reader: Reader, host: str | None = "127.0.0.1") -> Iterator[int]:
    server = Server(host, 0, reader)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _ask(port: int, path: str, accept: str = "") -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path, headers={"Accept": accept} if accept else {})
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read().decode()
    finally:
        connection.close()


def _value(text: str, name: str) -> float | None:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name:
                return sample.value
    return None


def test_it_is_ready_once_the_cluster_was_read(reader: Reader) -> None:
    with _serving(reader) as port:
        assert _ask(port, "/readyz")[0] == 503
        assert _value(_ask(port, "/metrics")[2], "kai_anywhere_node_gpus") is None
        reader.look()
        assert _ask(port, "/readyz") == (200, "text/plain; charset=utf-8", "ok\n")
        status, kind, text = _ask(port, "/metrics")
        assert (status, kind.partition(";")[0]) == (200, "text/plain")
        assert _value(text, "kai_anywhere_node_gpus") == 1
        assert _value(text, "kai_anywhere_exporter_last_read_timestamp_seconds") == TAKEN.timestamp()


def test_prometheus_gets_the_format_that_it_asks_for(reader: Reader) -> None:
    reader.look()
    with _serving(reader) as port:
        _, kind, text = _ask(port, "/metrics", "application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")


def test_old_numbers_stay_for_a_while_and_then_go(
    cluster: _Cluster, reader: Reader, capsys: pytest.CaptureFixture[str]
) -> None:
    reader.look()
    cluster.away = True
    cluster.now += 149
    reader.look()
    with _serving(reader) as port:
        text = _ask(port, "/metrics")[2]
        assert _value(text, "kai_anywhere_node_gpus") == 1, "one failed read is no reason to forget"
        cluster.now += 2
        text = _ask(port, "/metrics")[2]
        assert _value(text, "kai_anywhere_node_gpus") is None, "a number of three minutes ago is not one of now"
        assert _ask(port, "/readyz")[0] == 503
        assert _ask(port, "/healthz")[0] == 200, "a restart would not bring the API server back"
        assert _value(text, "kai_anywhere_exporter_last_read_timestamp_seconds") == TAKEN.timestamp()
        assert 'kai_anywhere_exporter_reads_total{outcome="failed"} 1.0' in text
        cluster.away = False
        reader.look()
        assert _value(_ask(port, "/metrics")[2], "kai_anywhere_node_gpus") == 1
    assert "No answer from the cluster" in capsys.readouterr().err


def test_a_read_that_does_not_end_is_a_reason_to_restart(cluster: _Cluster, reader: Reader) -> None:
    reader.look()
    cluster.now += 331
    with _serving(reader) as port:
        assert _ask(port, "/healthz")[0] == 503


def test_there_is_nothing_else(reader: Reader) -> None:
    with _serving(reader) as port:
        assert _ask(port, "/")[0] == 404


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the kernel has no IPv6")
def test_it_answers_over_ipv4_and_ipv6(reader: Reader, address: str) -> None:
    """A pod of a cluster with IPv6 alone has no other address."""
    with _serving(reader, None) as port:
        connection = http.client.HTTPConnection(address, port, timeout=30)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()


def test_who_holds_connections_open_shuts_nobody_out(reader: Reader) -> None:
    """A pod of anybody's, which sends a byte now and then so that no request of its ends."""
    reader.look()
    with _serving(reader) as port:
        held = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(_MOST_CONNECTIONS)]
        for connection in held:
            connection.sendall(b"G")
        for asked in range(1, 4):
            assert _ask(port, "/healthz")[0] == 200
            assert held[asked - 1].recv(1) == b"", "the oldest one was closed"
        for connection in held:
            connection.close()


def test_a_burst_of_connections_waits_for_the_server_and_not_for_the_kernel_to_try_again(reader: Reader) -> None:
    server = Server("127.0.0.1", 0, reader)  # it listens, and has taken nobody yet
    try:
        address = ("127.0.0.1", server.server_port)
        burst = [socket.create_connection(address, timeout=0.9) for _ in range(3 * _MOST_CONNECTIONS)]
        for connection in burst:
            connection.close()
    finally:
        server.server_close()


def test_outside_of_a_pod_it_says_so_and_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert exporter.main([]) == 2
    assert "This process does not run in a pod" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--interval-seconds", "0"], ["--interval-seconds", "x"], ["--more"], ["--int", "5"]]
)
def test_an_argument_that_it_does_not_know_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        exporter.main(arguments)
    assert caught.value.code == 2
    assert "usage: python -m agents.metrics" in capsys.readouterr().err


def test_a_list_at_which_the_api_server_fails_leaves_the_numbers_as_they_were() -> None:
    with pytest.raises(ClusterUnreachableError, match="500"):
        exporter.read(connected(lambda _: httpx2.Response(500)))
