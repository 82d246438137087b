"""The proxy to an API server is the one that kubectl takes."""

from pathlib import Path

import pytest

from cluster.access.client import Cluster
from cluster.access.proxies import proxy_of
from cluster.errors import ClusterError, ClusterUnreachableError
from tests.support.api_server import ApiServer, kubeconfig, write_kubeconfig

_PROXY = "http://proxy.example.com:3128"


@pytest.mark.parametrize(
    ("server", "no_proxy"),
    [
        ("https://127.0.0.1:6443", ""),
        ("https://127.8.9.1", ""),
        ("https://[::1]:6443", ""),
        ("https://localhost:6443", ""),
        ("https://10.1.2.3:6443", "example.com, 10.0.0.0/8"),
        ("https://10.1.2.3:6443", "10.1.2.3"),
        ("https://10.1.2.3:6443", "10.1.2.3:6443"),
        ("https://[fd00::1]:6443", "fd00::/8"),
        ("https://a.example.com", "example.com"),
        ("https://a.example.com", ".example.com"),
        ("https://A.example.com", "*.EXAMPLE.com"),
        ("https://example.com", "example.com:443"),
        ("https://example.com", "*"),
    ],
)
def test_what_needs_no_proxy_gets_none(server: str, no_proxy: str) -> None:
    assert proxy_of(server, {"HTTPS_PROXY": _PROXY, "NO_PROXY": no_proxy}) is None


@pytest.mark.parametrize(
    ("server", "no_proxy"),
    [
        ("https://10.1.2.3:6443", "10.1.2.3:443,11.0.0.0/8,10.1.2"),
        ("https://example.com", ".example.com"),
        ("https://notexample.com", "example.com"),
        ("https://example.com:6443", "example.com:443,,"),
        ("https://example.com", "localhost"),
    ],
)
def test_what_no_exception_covers_goes_through_the_proxy(server: str, no_proxy: str) -> None:
    assert proxy_of(server, {"https_proxy": _PROXY, "no_proxy": no_proxy}) == _PROXY


def test_variables_are_read_as_kubectl_reads_them() -> None:
    server = "https://cluster.example.com"
    assert proxy_of(server, {"HTTPS_PROXY": "proxy:3128"}) == "http://proxy:3128"
    assert proxy_of(server, {"HTTPS_PROXY": "socks5://proxy:1080"}) == "socks5://proxy:1080"
    assert proxy_of(server, {"HTTP_PROXY": _PROXY, "ALL_PROXY": _PROXY}) is None
    assert proxy_of("http://cluster.example.com", {"HTTP_PROXY": _PROXY}) == _PROXY
    assert proxy_of(server, {}) is None


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "socks5://127.0.0.1:9", "http://[::1"])
def test_a_cluster_on_this_machine_is_reached_whatever_proxy_there_is(
    proxy: str, api: ApiServer, config_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(variable, proxy)
    monkeypatch.delenv("NO_PROXY", raising=False)
    api.serve("/api/v1/nodes", {"items": []})
    connection = Cluster.open(config_path)
    assert connection.nodes() == {}
    connection.close()


def test_the_proxy_of_the_kubeconfig_wins_and_one_that_can_not_be_used_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", _PROXY)
    content = kubeconfig("https://cluster.example.com")
    content["clusters"][0]["cluster"]["proxy-url"] = "socks5://127.0.0.1:9"
    with pytest.raises(ClusterError, match=r"a SOCKS proxy, which this program can't use(.|\n)*NO_PROXY"):
        Cluster.open(write_kubeconfig(tmp_path / "config", content))


def test_a_proxy_that_does_not_answer_is_named_without_its_login(tmp_path: Path) -> None:
    content = kubeconfig("https://cluster.example.com")
    content["clusters"][0]["cluster"]["proxy-url"] = "http://me:secret@127.0.0.1:9"
    connection = Cluster.open(write_kubeconfig(tmp_path / "config", content))
    with pytest.raises(ClusterUnreachableError) as caught:
        connection.nodes()
    connection.close()
    assert ", through the proxy http://127.0.0.1:9: " in str(caught.value)
    assert "secret" not in str(caught.value)
