"""What the client reads from a real HTTP server, and what it says of one that does not answer as Kubernetes does."""

import base64
import gc
import json
import shlex
import socket
import ssl
import stat
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trustme

from cluster.access import connection
from cluster.access.answers.nodes import NodeMetadata
from cluster.access.answers.objects import Deployment, HelmRevision
from cluster.access.answers.server import Objection, Version, page_of
from cluster.access.client import Cluster, plural
from cluster.errors import ClusterError, ClusterUnreachableError, LoginError, OneAnswerError
from cluster.snapshot import read_snapshot
from config.cluster import ClusterSettings, Distribution
from tests.support.api_server import (
    POLICIES,
    QUEUE_CONTROLLER,
    RUNTIME_CLASS,
    UID,
    Answer,
    ApiServer,
    certificate,
    connected,
    kubeconfig,
    make_healthy,
    node,
    running,
    write_kubeconfig,
)

_POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"}}
_QUEUES = "/apis/scheduling.run.ai/v1/queues"
_SECONDS = 3.0
"""Far below any TCP time-out, far above a loopback connection."""


def _connect(content: object, folder: Path) -> Cluster:
    path = write_kubeconfig(folder / "kubeconfig", content)
    return Cluster.connect(ClusterSettings(distribution=Distribution.K3S, kubeconfig=path))


def _fails(cluster: Cluster, ask: Callable[[Cluster], object] = Cluster.version) -> ClusterError:
    try:
        with pytest.raises(ClusterError) as caught:
            ask(cluster)
    finally:
        cluster.close()
    return caught.value


def _answers(code: int, said: str, _: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(code, json={"kind": "Status", "code": code, "message": said})


def _create(asked: Cluster) -> object:
    return asked.create(_POD)


def _try_out(asked: Cluster) -> object:
    return asked.dry_run(_POD, user="somebody")


def _may(asked: Cluster) -> object:
    return asked.allows("create", "pods")


def test_the_token_of_the_context_is_sent(api: ApiServer, cluster: Cluster) -> None:
    cluster.version()
    assert [request.headers["authorization"] for request in api.asked] == ["Bearer let-me-in"]


@pytest.mark.parametrize("token", ["let-me-in\n", "let\x00me-in"])
def test_a_token_that_no_header_can_have_is_told_and_not_shown(token: str, api: ApiServer, tmp_path: Path) -> None:
    """A kubeconfig whose token was written as a block (`token: |`) has a line break at its end."""
    content = kubeconfig(api.url)
    content["users"][0]["user"] = {"token": token}
    error = _fails(_connect(content, tmp_path))
    assert isinstance(error, LoginError)
    assert "the token has a character that no header can have, such as a line break at its end" in str(error)
    shown = "".join(traceback.format_exception(error))
    assert "me-in" not in shown


def test_an_empty_token_is_none(api: ApiServer, tmp_path: Path) -> None:
    content = kubeconfig(api.url)
    content["users"][0]["user"] = {"token": "", "tokenFile": ""}
    cluster = _connect(content, tmp_path)
    cluster.version()
    cluster.close()
    assert "authorization" not in api.asked[0].headers


def _impersonated(headers: Mapping[str, str]) -> dict[str, str]:
    mark = "impersonate-"
    return {name.removeprefix(mark): value for name, value in headers.items() if name.startswith(mark)}


def test_who_acts_as_somebody_else_by_the_kubeconfig_does_so_here(api: ApiServer, tmp_path: Path) -> None:
    """As kubectl does it: with a context for `sudo`, the user alone may do nothing."""
    content = kubeconfig(api.url)
    content["users"][0]["user"] |= {"as": "root", "as-groups": ["system:masters"], "as-user-extra": {"a/b": ["why"]}}
    cluster = _connect(content, tmp_path)
    cluster.version()
    cluster.dry_run({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "y"}}, user="binder")
    cluster.close()
    assert [_impersonated(request.headers) for request in api.asked] == [
        {"user": "root", "group": "system:masters", "extra-a%2fb": "why"},
        {"user": "binder"},
    ]


def test_the_file_of_a_token_is_sought_beside_the_kubeconfig(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    (tmp_path / "admin.token").write_text("from-a-file\n", encoding="utf-8")
    content = kubeconfig(api.url)
    content["users"][0]["user"] = {"tokenFile": "admin.token"}
    cluster = _connect(content, tmp_path)
    cluster.version()
    cluster.close()
    assert api.asked[0].headers["authorization"] == "Bearer from-a-file"


def test_the_identity_is_the_uid_of_kube_system(cluster: Cluster) -> None:
    assert cluster.uid() == UID


def test_a_server_without_kube_system_is_no_cluster(api: ApiServer, cluster: Cluster) -> None:
    del api.answers["/api/v1/namespaces/kube-system"]
    with pytest.raises(ClusterError, match="has no kube-system namespace: this is not a Kubernetes cluster"):
        cluster.uid()


@pytest.mark.parametrize(("minor", "expected"), [("36", (1, 36)), ("36+", (1, 36)), ("9", (1, 9))])
def test_a_version_is_two_numbers_even_where_a_cloud_adds_a_plus(
    api: ApiServer, cluster: Cluster, minor: str, expected: tuple[int, int]
) -> None:
    api.serve("/version", {"major": "1", "minor": minor, "gitVersion": "v1.36.2-gke.1"})
    version = cluster.version()
    assert version == Version(gitVersion="v1.36.2-gke.1", major="1", minor=minor)
    assert version.minor_version == expected


def test_a_node_is_read_with_labels_architecture_memory_and_gpus(api: ApiServer, cluster: Cluster) -> None:
    items = [node("a", memory="131072Mi", gpus=2, x="y"), node("b", architecture="amd64", memory="1Ki", gpus=0)]
    api.serve("/api/v1/nodes", {"items": items})
    nodes = cluster.nodes()
    assert list(nodes) == ["a", "b"]
    assert (nodes["a"].labels, nodes["a"].annotations) == ({"x": "y"}, {"a": "b"})
    assert [(node.architecture, node.memory_mib, node.gpus) for node in nodes.values()] == [
        ("arm64", 131072, 2),
        ("amd64", 0, 0),
    ]


def test_a_thousand_devices_are_read_as_the_api_server_writes_them(api: ApiServer, cluster: Cluster) -> None:
    many = node("a")
    many["status"]["allocatable"]["nvidia.com/gpu"] = "1k"
    api.serve("/api/v1/nodes", {"items": [many]})
    assert cluster.nodes()["a"].gpus == 1000


def test_a_frontend_of_remote_gpus_has_none_of_its_own(api: ApiServer, cluster: Cluster) -> None:
    label = "gvirtus.io/frontend.allowed"
    nodes = [node("far", gpus=8, labels={label: "true"}), node("near", gpus=8, labels={label: "false"})]
    api.serve("/api/v1/nodes", {"items": nodes})
    capacities = cluster.nodes()
    assert [(capacities[name].gpus, capacities[name].devices) for name in ("far", "near")] == [(0, 8), (8, 8)]


@pytest.mark.parametrize(
    ("quantity", "mib"),
    [
        *(("128Gi", 131072), ("131072Mi", 131072), ("134217728Ki", 131072), ("137438953472", 131072), ("1Ti", 1048576)),
        # As virtual kubelets report it.
        *(("100G", 95367), ("0.5Ti", 524288), ("137438953472000m", 131072)),
    ],
)
def test_memory_is_mib_whatever_the_unit(api: ApiServer, cluster: Cluster, quantity: str, mib: int) -> None:
    api.serve("/api/v1/nodes", {"items": [node("a", memory=quantity)]})
    assert cluster.nodes()["a"].memory_mib == mib


def test_a_thousand_gpus_are_read_as_the_api_server_writes_them(api: ApiServer, cluster: Cluster) -> None:
    many = node("a")
    many["status"]["allocatable"] = {"nvidia.com/gpu": "1k"}
    api.serve("/api/v1/nodes", {"items": [many]})
    assert cluster.nodes()["a"].gpus == 1000
    limited = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1k"}}}]}
    api.serve("/api/v1/pods", {"items": [{"metadata": {"name": "p", "namespace": "n"}, "spec": limited}]})
    assert cluster.pods()[0].gpus == 1000


def test_a_node_that_just_joined_has_nothing_yet(api: ApiServer, cluster: Cluster) -> None:
    api.serve("/api/v1/nodes", {"items": [{"metadata": {"name": "new"}}]})
    node = cluster.nodes()["new"]
    assert (node.labels, node.architecture, node.memory_mib, node.gpus) == ({}, "", 0, 0)


def test_a_namespace_is_found_or_absent(api: ApiServer, cluster: Cluster) -> None:
    api.serve("/api/v1/namespaces/kai", {"metadata": {"name": "kai", "uid": "u", "labels": {"a": "b"}}})
    namespace = cluster.namespace("kai")
    assert namespace is not None
    assert (namespace.name, namespace.uid, namespace.labels) == ("kai", "u", {"a": "b"})
    assert cluster.namespace("other") is None


def test_a_deployment_is_found_with_its_replicas_or_absent(api: ApiServer, cluster: Cluster) -> None:
    assert cluster.deployment("kai-scheduler", "other") is None
    deployment = cluster.deployment("kai-scheduler", "queue-controller")
    assert deployment is not None
    assert (deployment.desired, deployment.available) == (1, 1)
    api.serve(QUEUE_CONTROLLER, {"metadata": {"name": "queue-controller"}, "spec": {"replicas": 3}, "status": {}})
    deployment = cluster.deployment("kai-scheduler", "queue-controller")
    assert isinstance(deployment, Deployment)
    assert (deployment.desired, deployment.available) == (3, 0)


@pytest.mark.parametrize(
    ("kind", "resource"),
    [("Pod", "pods"), ("NetworkPolicy", "networkpolicies"), ("RuntimeClass", "runtimeclasses")],
)
def test_a_plural_is_formed_as_kubernetes_guesses_it(kind: str, resource: str) -> None:
    assert plural(kind) == resource


def test_the_model_of_a_list_is_made_once_for_each_kind() -> None:
    """Pydantic itself forgets it when nobody holds it: each list took some milliseconds more."""
    made = weakref.ref(page_of(NodeMetadata))
    gc.collect()
    assert made() is page_of(NodeMetadata)


def test_a_runtime_class_is_there_or_not(api: ApiServer, cluster: Cluster) -> None:
    assert cluster.has_runtime_class("nvidia")
    del api.answers[RUNTIME_CLASS]
    assert not cluster.has_runtime_class("nvidia")


def test_mutating_policies_are_served_only_where_the_group_lists_them(api: ApiServer, cluster: Cluster) -> None:
    assert cluster.mutating_policy_versions() == {"v1"}
    both = {"resources": [{"name": "validatingadmissionpolicies"}, {"name": "mutatingadmissionpolicies"}]}
    api.serve(POLICIES.replace("/v1", "/v1beta1"), both)
    assert cluster.mutating_policy_versions() == {"v1", "v1beta1"}
    api.serve(POLICIES, {"resources": [{"name": "validatingadmissionpolicies"}]})
    assert cluster.mutating_policy_versions() == {"v1beta1"}
    api.serve(POLICIES.replace("/v1", "/v1beta1"), {"resources": []})
    assert cluster.mutating_policy_versions() == frozenset()
    del api.answers[POLICIES], api.answers[POLICIES.replace("/v1", "/v1beta1")]
    assert cluster.mutating_policy_versions() == frozenset()


def test_a_helm_release_is_read_by_its_labels_without_its_content(api: ApiServer, cluster: Cluster) -> None:
    path = "/api/v1/namespaces/kai-scheduler/secrets"
    secret = {"metadata": {"name": "sh.helm.release.v1.kai-scheduler.v1", "labels": {"status": "pending-install"}}}
    api.serve(path, {"items": [secret]})
    [revision] = cluster.helm_revisions("kai-scheduler", "kai-scheduler")
    assert isinstance(revision, HelmRevision)
    assert (revision.secret, revision.status) == ("sh.helm.release.v1.kai-scheduler.v1", "pending-install")
    [asked] = api.asked
    assert asked.query == {"labelSelector": ["owner=helm,name=kai-scheduler"], "limit": ["500"]}
    assert "as=PartialObjectMetadataList" in asked.headers["accept"], "the content would hold the chart's values"


def test_no_helm_release_is_an_empty_list_even_where_the_server_says_null(api: ApiServer, cluster: Cluster) -> None:
    api.serve("/api/v1/namespaces/kai-scheduler/secrets", {"items": None})
    assert cluster.helm_revisions("kai-scheduler", "kai-scheduler") == []


def test_a_closed_port_is_found_out_at_once_and_says_what_to_check(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{taken.getsockname()[1]}"
        start = time.monotonic()
        error = _fails(_connect(kubeconfig(server), tmp_path))
    assert time.monotonic() - start < _SECONDS
    assert isinstance(error, ClusterUnreachableError)
    assert f"No answer from the cluster at {server} (context 'loopback' of {tmp_path / 'kubeconfig'})" in str(error)
    assert f"kubectl --kubeconfig {tmp_path / 'kubeconfig'} --context loopback get nodes" in str(error)


def test_what_to_check_with_can_be_pasted_into_a_shell(api: ApiServer, tmp_path: Path) -> None:
    folder = tmp_path / "my clusters"
    folder.mkdir()
    content = kubeconfig(api.url)
    content["contexts"][0]["name"] = content["current-context"] = "the lab's"
    api.fail("/version", 401)
    error = _fails(_connect(content, folder))
    command = str(error).rpartition(": ")[2]
    assert shlex.split(command) == [
        *("kubectl", "--kubeconfig", str(folder / "kubeconfig"), "--context", "the lab's", "auth", "whoami")
    ]


def test_a_server_that_never_answers_costs_the_clients_bound_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert connection.TIMEOUT_SECONDS <= 5, "an unreachable cluster is found out in seconds"
    monkeypatch.setattr(connection, "TIMEOUT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        start = time.monotonic()
        error = _fails(_connect(kubeconfig(f"http://127.0.0.1:{silent.getsockname()[1]}"), tmp_path))
    assert 0.3 <= time.monotonic() - start < _SECONDS
    assert isinstance(error, ClusterUnreachableError)


@pytest.mark.parametrize("scheme", ["http", "https"], ids=["an answer", "a handshake"])
def test_who_has_time_waits_longer_for_a_busy_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setattr(connection, "TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(connection, "UP_CONNECT_SECONDS", 0.6)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        file = write_kubeconfig(tmp_path / "config", kubeconfig(f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"))
        start = time.monotonic()
        error = _fails(Cluster.open(str(file), timeout_seconds=0.6))
    assert 0.6 <= time.monotonic() - start < _SECONDS
    assert isinstance(error, ClusterUnreachableError)


def test_a_server_that_hangs_up_is_unreachable(tmp_path: Path) -> None:
    with running() as api:
        make_healthy(api)
        cluster = _connect(kubeconfig(api.url), tmp_path)
        assert cluster.version().git == "v1.36.2"
    assert isinstance(_fails(cluster), ClusterUnreachableError)


@contextmanager
def _over_tls(folder: Path) -> Iterator[Cluster]:
    """A cluster whose kubeconfig names the authority of its certificate."""
    context, authority = certificate()
    (folder / "ca.crt").write_bytes(authority)
    with running(context) as api:
        make_healthy(api)
        content = kubeconfig(api.url)
        content["clusters"][0]["cluster"]["certificate-authority"] = "ca.crt"
        cluster = _connect(content, folder)
        yield cluster
        cluster.close()


def test_the_certificate_authority_of_the_context_is_trusted(tmp_path: Path) -> None:
    with _over_tls(tmp_path) as cluster:
        assert cluster.uid() == UID


def test_a_tunnel_to_the_cluster_is_trusted_by_the_name_that_the_kubeconfig_gives(tmp_path: Path) -> None:
    """As kubectl does it (tls-server-name): the certificate is not for the address of the tunnel."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("board.example").configure_cert(context)
    with running(context) as api:
        make_healthy(api)
        content = kubeconfig(api.url)
        entry = content["clusters"][0]["cluster"]
        entry["certificate-authority-data"] = base64.b64encode(authority.cert_pem.bytes()).decode()
        assert "CERTIFICATE_VERIFY_FAILED" in str(_fails(_connect(content, tmp_path)))
        entry["tls-server-name"] = "board.example"
        cluster = _connect(content, tmp_path)
        assert cluster.uid() == UID
        cluster.close()


def test_connections_do_not_set_the_protocols_of_the_tls_context_that_other_threads_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _over_tls(tmp_path) as cluster:
        set_by_connections: list[list[str]] = []
        monkeypatch.setattr(
            ssl.SSLContext, "set_alpn_protocols", lambda _, protocols: set_by_connections.append(protocols)
        )
        # The server closes each connection, so each question opens one.
        assert [cluster.uid(), cluster.uid()] == [UID, UID]
    assert set_by_connections == []


def test_an_address_that_is_none_is_an_error_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="The address or the certificates of context 'loopback' can't be used"):
        _connect(kubeconfig("https://board:port"), tmp_path)


def test_a_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    written = kubeconfig("https://127.0.0.1:1")
    written["clusters"][0]["cluster"] = {"server": "https://127.0.0.1:1"}
    written["users"][0]["user"] = {"client-certificate": "other/client.crt", "client-key": "other/client.key"}
    with pytest.raises(ClusterError) as refused:
        _connect(written, tmp_path)
    folder = tmp_path / "other"
    assert f"can't be used: there is no {folder}/client.crt, there is no {folder}/client.key\n" in str(refused.value)


def test_a_certificate_without_its_key_is_told(tmp_path: Path) -> None:
    written = kubeconfig("https://127.0.0.1:1")
    written["users"][0]["user"] = {"client-certificate-data": "eA=="}
    with pytest.raises(ClusterError, match="can't be used: the client certificate is there without its key"):
        _connect(written, tmp_path)


def test_a_server_with_an_unknown_certificate_authority_is_not_trusted(tmp_path: Path) -> None:
    with running(certificate()[0]) as api:
        make_healthy(api)
        error = _fails(_connect(kubeconfig(api.url), tmp_path))
        assert api.asked == [], "nothing was sent, no token either"
    assert isinstance(error, ClusterUnreachableError)
    assert "CERTIFICATE_VERIFY_FAILED" in str(error)


def test_a_refusal_is_not_an_unreachable_cluster_and_asks_for_rights(api: ApiServer, cluster: Cluster) -> None:
    api.fail("/api/v1/nodes", 403)
    error = _fails(cluster, Cluster.nodes)
    assert not isinstance(error, ClusterUnreachableError), "waiting would not help"
    assert "refuses GET /api/v1/nodes to context 'loopback' (403)" in str(error)
    assert "cluster-admin" in str(error)


def test_who_has_no_login_is_asked_for_one_and_not_for_rights(api: ApiServer, cluster: Cluster) -> None:
    """As where the kubeconfig's user is empty, or a proxy ends the TLS that has the certificate."""
    said = 'nodes is forbidden: User "system:anonymous" cannot list resource "nodes" in API group "" at the cluster'
    api.answers["/api/v1/nodes"] = Answer(403, json.dumps({"kind": "Status", "code": 403, "message": said}).encode())
    error = _fails(cluster, Cluster.nodes)
    assert isinstance(error, LoginError)
    assert "does not see who asks by context 'loopback' (403): its user has no login" in str(error)
    assert "--context loopback auth whoami" in str(error)
    assert "cluster-admin" not in str(error)


def test_a_namespace_that_no_address_can_have_is_told_and_not_sent(api: ApiServer, cluster: Cluster) -> None:
    """KAI's Config names its namespace, and one that was written as a block (`namespace: |`) has a line break."""
    error = _fails(cluster, lambda cluster: cluster.pods(namespace="kai-scheduler\n"))
    assert not isinstance(error, ClusterUnreachableError), "it is there, and everything else can be asked"
    assert (
        str(error)
        .splitlines()[0]
        .startswith(
            f"The cluster at {api.url} can't be asked GET '/api/v1/namespaces/kai-scheduler\\n/pods': a name in it has"
        )
    )
    assert not api.asked


def test_a_login_that_has_ended_asks_for_a_new_one_and_not_for_rights(api: ApiServer, cluster: Cluster) -> None:
    api.fail("/api/v1/nodes", 401)
    error = _fails(cluster, Cluster.nodes)
    assert not isinstance(error, ClusterUnreachableError), "waiting would not help"
    assert "does not accept the login of context 'loopback' (401)" in str(error)
    assert "--context loopback auth whoami" in str(error)
    assert "cluster-admin" not in str(error)


def test_an_answer_that_was_spoilt_on_its_way_is_none(cluster: Cluster) -> None:
    def spoilt(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"Content-Encoding": "gzip"}, stream=httpx2.ByteStream(b"no gzip"))

    client = httpx2.Client(transport=httpx2.MockTransport(spoilt), base_url=cluster.server)
    assert isinstance(_fails(Cluster(cluster.chosen, client)), ClusterUnreachableError)


@pytest.mark.parametrize("status", [302, 429, 500, 503])
def test_a_server_in_trouble_is_unreachable_so_that_waits_go_on(api: ApiServer, cluster: Cluster, status: int) -> None:
    api.fail("/version", status)
    error = _fails(cluster)
    assert isinstance(error, ClusterUnreachableError)
    assert f"answered GET /version with status {status}" in str(error)


def test_what_the_api_server_says_of_its_trouble_is_told_in_one_line(api: ApiServer, cluster: Cluster) -> None:
    said = 'conversion webhook for scheduling.run.ai/v1, Kind=Queue failed:\nservice "queue-webhook" not found.'
    api.answers[_QUEUES] = Answer(500, json.dumps({"kind": "Status", "code": 500, "message": said}).encode())
    assert str(_fails(cluster, lambda asked: asked.objects(_QUEUES, NodeMetadata))) == (
        f"The cluster at {api.url} answered GET {_QUEUES} with status 500: conversion webhook for "
        'scheduling.run.ai/v1, Kind=Queue failed: service "queue-webhook" not found.'
    )


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(Cluster.version, id="version"),
        pytest.param(Cluster.nodes, id="nodes"),
        pytest.param(Cluster.kinds, id="kinds"),
        pytest.param(lambda asked: asked.objects("/api/v1/nodes", NodeMetadata), id="a list that may be of no kind"),
    ],
)
def test_a_server_that_has_not_what_every_kubernetes_has_is_told_as_none(
    ask: Callable[[Cluster], object], tmp_path: Path
) -> None:
    """A web server, or a gateway to many clusters that has this one no more."""
    with running() as web_server:
        error = _fails(_connect(kubeconfig(web_server.url), tmp_path), ask)
    assert isinstance(error, ClusterUnreachableError)
    what, remedy = str(error).splitlines()
    assert what.startswith(f"The cluster at {web_server.url} has no /")
    assert what.endswith("what answers there is not Kubernetes, or Kubernetes is not under that address.")
    assert remedy.startswith("Check the server of context 'loopback': kubectl --kubeconfig ")


def test_a_kind_that_a_cluster_does_not_have_has_no_object(cluster: Cluster) -> None:
    assert cluster.objects("/apis/scheduling.run.ai/v2/queues", NodeMetadata) == []


@pytest.mark.parametrize("ask", [_create, _try_out], ids=["create", "dry run"])
@pytest.mark.parametrize("status", [401, 429, 503, 504])
def test_an_answer_that_judges_no_write_is_no_refusal_of_it(status: int, ask: Callable[[Cluster], object]) -> None:
    """Of reservation pods it was said that the cluster refuses them, where etcd had no leader for a moment."""
    error = _fails(connected(partial(_answers, status, "etcdserver: leader changed")), ask)
    assert isinstance(error, LoginError if status == 401 else ClusterUnreachableError)
    for code, said in ((500, 'failed calling webhook "a"'), (status, 'admission webhook "a" denied the request: no')):
        judged = connected(partial(_answers, code, said))
        assert ask(judged) == Objection(code=code, message=said)
        judged.close()


@pytest.mark.parametrize("ask", [_create, _try_out, _may], ids=["create", "dry run", "rights"])
def test_a_write_that_hangs_is_not_told_as_a_cluster_that_is_away(ask: Callable[[Cluster], object]) -> None:
    bounds: list[float] = []

    def hangs(request: httpx2.Request) -> httpx2.Response:
        bounds.append(request.extensions["timeout"]["read"])
        raise httpx2.ReadTimeout("The read operation timed out", request=request)

    error = _fails(connected(hangs), ask)
    assert isinstance(error, OneAnswerError), "whatever waits goes on, and what is only read may be answered"
    assert bounds == [connection.ADMISSION_SECONDS], "a webhook of somebody's may take as long"
    assert "took POST /api" in str(error)
    assert "did not answer in time: something that it asks before hangs, such as an admission webhook" in str(error)
    assert "No answer from the cluster" not in str(error)
    assert "No answer from the cluster" in str(_fails(connected(hangs), Cluster.nodes))


@pytest.mark.parametrize(
    "body",
    [b"<html>a proxy's login page</html>", b"", b"[]", b"null", b'{"major": 1}', b"\xff\xfe", b'{"major": "one"}'],
)
def test_an_answer_that_is_not_kubernetes_own_is_told(api: ApiServer, cluster: Cluster, body: bytes) -> None:
    api.answers["/version"] = Answer(200, body)
    error = _fails(cluster)
    assert not isinstance(error, ClusterUnreachableError)
    assert "The cluster's answer to GET /version is not what Kubernetes 1.30 or later sends" in str(error)


def test_the_question_of_rights_that_gets_no_answer_is_told_as_it_was_asked(api: ApiServer, cluster: Cluster) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    api.creates[path] = Answer(201, b"<html>")
    error = _fails(cluster, lambda asked: asked.allows("list", "pods"))
    assert f"The cluster's answer to POST {path} is not what" in str(error)


@pytest.mark.parametrize(
    "items",
    [[{}], [{"metadata": {}}], ["node"], [{"metadata": {"name": "a"}, "status": {"capacity": {"memory": "much"}}}]],
)
def test_a_node_that_is_none_is_told(api: ApiServer, cluster: Cluster, items: list[object]) -> None:
    api.serve("/api/v1/nodes", {"items": items})
    assert "GET /api/v1/nodes is not what Kubernetes" in str(_fails(cluster, Cluster.nodes))


@pytest.mark.parametrize(("busy", "asked"), [(2, 3), (9, 5)])
def test_an_api_server_that_says_when_to_come_again_is_asked_again(busy: int, asked: int) -> None:
    """Many requests of one user at a time are more than its share of a busy API server."""
    requests: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        requests.append(request.url.path)
        if len(requests) <= busy:
            return httpx2.Response(429, headers={"Retry-After": "0"})
        return httpx2.Response(200, json={"items": []})

    cluster = connected(answer)
    if busy < asked:
        assert cluster.nodes() == {}
    else:
        with pytest.raises(ClusterUnreachableError, match="with status 429"):
            cluster.nodes()
    assert requests == ["/api/v1/nodes"] * asked


def _plugin(folder: Path, script: str) -> dict[str, object]:
    program = folder / "login"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": str(program)}}


@pytest.mark.parametrize(("expired", "says"), [(1, ["a", "b"]), (2, ["a", "b"]), (9, None)])
def test_a_list_whose_continue_token_has_expired_is_begun_anew_twice(expired: int, says: list[str] | None) -> None:
    requests: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        token = request.url.params.get("continue", "")
        requests.append(token)
        if token and requests.count(token) <= expired:
            return httpx2.Response(410, json={"kind": "Status", "reason": "Expired"})
        names = ["b"] if token else ["a"]
        metadata = {} if token else {"continue": "more"}
        return httpx2.Response(200, json={"items": [node(name) for name in names], "metadata": metadata})

    cluster = connected(answer)
    if says is None:
        with pytest.raises(ClusterUnreachableError, match="with status 410"):
            cluster.nodes()
    else:
        assert list(cluster.nodes()) == says
    assert requests == ["", "more"] * min(expired + 1, 3)


def test_a_login_program_gives_the_token(api: ApiServer, tmp_path: Path) -> None:
    content = kubeconfig(api.url)
    content["users"][0]["user"] = _plugin(tmp_path, """echo '{"status": {"token": "from-a-program"}}'""")
    cluster = _connect(content, tmp_path)
    cluster.version()
    cluster.close()
    assert api.asked[0].headers["authorization"] == "Bearer from-a-program"


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_login_program_is_told_in_which_version_to_answer(api: ApiServer, version: str, tmp_path: Path) -> None:
    content, notes = kubeconfig(api.url), tmp_path / "told"
    script = f"""echo "$KUBERNETES_EXEC_INFO" > {notes}; echo "{{\\"status\\": {{\\"token\\": \\"$REALM\\"}}}}\""""
    api_version = f"client.authentication.k8s.io/{version}"
    user: dict[str, Any] = _plugin(tmp_path, script)
    user["exec"] |= {"apiVersion": api_version, "env": [{"name": "REALM", "value": "lab"}], "interactiveMode": "Never"}
    content["users"][0]["user"] = user
    cluster = _connect(content, tmp_path)
    cluster.version()
    cluster.close()
    assert api.asked[0].headers["authorization"] == "Bearer lab"
    info = json.loads(notes.read_text(encoding="utf-8"))
    assert (info["kind"], info["apiVersion"]) == ("ExecCredential", api_version)


def test_threads_that_ask_at_the_same_time_log_in_once(api: ApiServer, tmp_path: Path) -> None:
    content, log = kubeconfig(api.url), tmp_path / "logins"
    script = f"""echo in >> {log}; sleep 0.2; echo '{{"status": {{"token": "from-a-program"}}}}'"""
    content["users"][0]["user"] = _plugin(tmp_path, script)
    cluster = _connect(content, tmp_path)
    read_snapshot(cluster)
    cluster.close()
    assert log.read_text(encoding="utf-8").splitlines() == ["in"], "each login may open a browser"
    assert {request.headers["authorization"] for request in api.asked} == {"Bearer from-a-program"}


def test_a_login_that_has_ended_is_had_anew_by_its_program(api: ApiServer, tmp_path: Path) -> None:
    content, log = kubeconfig(api.url), tmp_path / "logins"
    script = (
        f"""echo in >> {log}; echo "{{\\"status\\": {{\\"token\\": \\"token-$(wc -l < {log} | tr -d ' ')\\"}}}}\""""
    )
    content["users"][0]["user"] = _plugin(tmp_path, script)
    cluster = _connect(content, tmp_path)
    cluster.version()
    api.fail("/version", 401)
    error = _fails(cluster)
    cluster.close()
    assert isinstance(error, LoginError)
    assert [request.headers["authorization"] for request in api.asked] == [
        "Bearer token-1",
        "Bearer token-1",
        "Bearer token-2",
    ]


@pytest.mark.parametrize("script", ["echo no >&2; exit 1", "echo not JSON", "echo '{}'", "echo '[]'"])
def test_a_login_program_that_fails_is_an_error_of_the_credentials(api: ApiServer, script: str, tmp_path: Path) -> None:
    content = kubeconfig(api.url)
    content["users"][0]["user"] = _plugin(tmp_path, script)
    error = _fails(_connect(content, tmp_path))
    assert "The credentials of context 'loopback' can't be used" in str(error)
    assert api.asked == []


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_login_program_is_run_as_kubectl_runs_it(
    api: ApiServer, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    content = kubeconfig(api.url)
    script = """echo "Open https://login.example and type $1" >&2
    read -r answer && exit 1
    echo "{\\"status\\": {\\"token\\": \\"$CODE\\", \\"told\\": $KUBERNETES_EXEC_INFO}}\""""
    plugin = _plugin(tmp_path, script)
    plugin["exec"] = {
        "apiVersion": f"client.authentication.k8s.io/{version}",
        "command": "./login",
        "args": ["A1B2"],
        "env": [{"name": "CODE", "value": "from-its-environment"}],
        "interactiveMode": "IfAvailable",
    }
    content["users"][0]["user"] = plugin
    cluster = _connect(content, tmp_path)
    monkeypatch.chdir("/")
    cluster.version()
    cluster.close()
    assert api.asked[0].headers["authorization"] == "Bearer from-its-environment"
    assert "Open https://login.example and type A1B2" in capfd.readouterr().err, "a person has to act on it"


def test_a_token_that_has_ended_is_asked_for_once_again(api: ApiServer, tmp_path: Path) -> None:
    content = kubeconfig(api.url)
    content["users"][0]["user"] = _plugin(tmp_path, f"""echo x >>{tmp_path}/n; echo '{{"status": {{"token": "t"}}}}'""")
    cluster = _connect(content, tmp_path)
    cluster.version()
    cluster.version()
    assert (tmp_path / "n").read_text() == "x\n", "a token serves until it is refused"
    api.fail("/version", 401)
    assert "does not accept the login" in str(_fails(cluster))
    assert (tmp_path / "n").read_text() == "x\nx\n"


def test_a_login_at_a_terminal_is_not_waited_for_where_there_is_none(api: ApiServer, tmp_path: Path) -> None:
    content = kubeconfig(api.url)
    plugin = _plugin(tmp_path, "exit 1")
    content["users"][0]["user"] = {"exec": {**plugin["exec"], "interactiveMode": "Always"}}  # type: ignore[dict-item]
    assert "asks at a terminal (interactiveMode: Always), and there is none" in str(_fails(_connect(content, tmp_path)))


def test_what_a_login_program_prints_is_in_no_message(api: ApiServer, tmp_path: Path) -> None:
    content = kubeconfig(api.url)
    content["users"][0]["user"] = _plugin(tmp_path, """echo '{"status": {"clientKeyData": "private"}}'""")
    message = str(_fails(_connect(content, tmp_path)))
    assert "printed no ExecCredential with a token or a certificate" in message
    assert "private" not in message


def test_a_login_program_gives_a_certificate_as_teleports_does(tmp_path: Path) -> None:
    """The API server asks for it in the handshake: a client without one gets no answer."""
    context, authority = certificate()
    people = trustme.CA()
    people.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    (tmp_path / "ca.crt").write_bytes(authority)
    person = people.issue_cert("alice@example.com")
    status = {
        "clientCertificateData": person.cert_chain_pems[0].bytes().decode(),
        "clientKeyData": person.private_key_pem.bytes().decode(),
    }
    (tmp_path / "said").write_text(json.dumps({"status": status}))
    with running(context) as api:
        make_healthy(api)
        content = kubeconfig(api.url)
        content["clusters"][0]["cluster"]["certificate-authority"] = "ca.crt"
        content["users"][0]["user"] = _plugin(tmp_path, f"cat {tmp_path}/said")
        cluster = _connect(content, tmp_path)
        assert cluster.uid() == UID
        cluster.close()
        assert "authorization" not in api.asked[0].headers
        content["users"][0]["user"] = {"token": "t"}
        assert isinstance(_fails(_connect(content, tmp_path)), ClusterUnreachableError)


@pytest.mark.parametrize(
    ("hint", "said"),
    [(None, ""), ("Install it:\n  apt install gone\n", "; the kubeconfig says of it: Install it:\n  apt install gone")],
)
def test_a_login_program_that_is_missing_is_named_with_the_way_to_get_it(
    hint: str | None, said: str, api: ApiServer, tmp_path: Path
) -> None:
    content = kubeconfig(api.url)
    program = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "/gone", "installHint": hint}
    content["users"][0]["user"] = {"exec": program}
    assert str(_fails(_connect(content, tmp_path))).startswith(
        f"The credentials of context 'loopback' can't be used: their program /gone is not installed here{said}.\n"
    )


@pytest.mark.parametrize("status", [403, 422, 500])
def test_what_may_not_be_written_is_told_in_the_api_servers_own_words(status: int) -> None:
    words = 'failed calling webhook "queue-validation.kai.scheduler": no endpoints available'
    refusing = connected(lambda _: httpx2.Response(status, json={"kind": "Status", "message": words}))
    with pytest.raises(ClusterError) as caught:
        refusing.apply({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q"}}, manager="m")
    assert str(caught.value).endswith(f"does not write Queue/q: {words}")
