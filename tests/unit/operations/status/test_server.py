"""The page over HTTP: on loopback, for its own name, and without asking the cluster for every reader."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cluster.errors import ClusterUnreachableError
from operations.status.server import REFRESH_SECONDS, Latest, Server
from sharing_map.report import Status
from testbed.shared_gpus import gpu_node
from tests.unit.sharing_map.clusters import status_of


class _Cluster:
    """A cluster that counts how often it is read, at a time of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reads = 0
        self.away = False

    def read(self) -> Status:
        self.reads += 1
        if self.away:
            raise ClusterUnreachableError("No answer from the cluster\nCheck that it runs")
        return status_of(nodes=[gpu_node("jetson-1")])

    def clock(self) -> float:
        return self.now


@pytest.fixture
def cluster() -> _Cluster:
    return _Cluster()


@contextmanager
def _serving(cluster: _Cluster) -> Iterator[Server]:
    with Server(Latest(cluster.read, cluster.clock), 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def _ask(
    server: Server, path: str = "/", *, host: str | None = None, method: str = "GET"
) -> tuple[http.client.HTTPResponse, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path, headers={"Host": host} if host else {})
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response, body


def test_the_page_and_the_same_as_json_are_served(cluster: _Cluster) -> None:
    with _serving(cluster) as server:
        assert server.address == f"http://127.0.0.1:{server.server_port}/"
        answer, body = _ask(server)
        assert (answer.status, answer.getheader("Content-Type")) == (200, "text/html; charset=utf-8")
        assert "GPU sharing on lab" in body
        assert f'data-refresh="{REFRESH_SECONDS}"' in body
        assert answer.getheader("Cache-Control") == "no-store"
        assert "frame-ancestors 'none'" in str(answer.getheader("Content-Security-Policy"))
        answer, body = _ask(server, "/status.json")
        assert [node["name"] for node in json.loads(body)["nodes"]] == ["jetson-1"]


def test_it_listens_on_loopback_alone(cluster: _Cluster) -> None:
    with _serving(cluster) as server:
        assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "evil.example:{port}", "127.0.0.1:{port}.evil.example"])
def test_a_name_that_is_not_its_own_gets_nothing(cluster: _Cluster, host: str) -> None:
    with _serving(cluster) as server:
        answer, body = _ask(server, host=host.format(port=server.server_port))
        assert answer.status == 421
        assert "jetson-1" not in body
        assert cluster.reads == 0
        assert _ask(server, host=f"localhost:{server.server_port}")[0].status == 200


def test_the_cluster_is_read_once_for_everybody_until_that_is_old(cluster: _Cluster) -> None:
    with _serving(cluster) as server:
        for _ in range(5):
            _ask(server)
        assert cluster.reads == 1
        cluster.now += REFRESH_SECONDS
        _ask(server)
        assert cluster.reads == 2


def test_a_cluster_that_is_away_leaves_the_last_page_and_says_so(cluster: _Cluster) -> None:
    with _serving(cluster) as server:
        _ask(server)
        cluster.away, cluster.now = True, cluster.now + REFRESH_SECONDS
        answer, body = _ask(server)
        assert answer.status == 200
        assert "No answer from the cluster" in body
        assert "jetson-1" in body
        assert _ask(server, "/status.json")[0].status == 503, "a program is not given what is old"
        cluster.away, cluster.now = False, cluster.now + REFRESH_SECONDS
        assert "No answer" not in _ask(server)[1]


def test_a_cluster_that_was_never_read_is_an_error(cluster: _Cluster) -> None:
    cluster.away = True
    with _serving(cluster) as server:
        answer, body = _ask(server)
        assert (answer.status, body) == (503, "No answer from the cluster\n")


def test_there_is_nothing_else_and_nothing_can_be_changed(cluster: _Cluster) -> None:
    with _serving(cluster) as server:
        assert _ask(server, "/../etc/passwd")[0].status == 404
        assert _ask(server, method="POST")[0].status == 501
        answer, body = _ask(server, method="HEAD")
        assert (answer.status, body) == (200, "")


def test_a_client_that_says_nothing_holds_up_nobody(cluster: _Cluster) -> None:
    with _serving(cluster) as server:
        silent = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        silent.connect()
        assert _ask(server)[0].status == 200
        silent.close()
