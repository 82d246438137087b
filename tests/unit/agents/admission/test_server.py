"""The HTTP layer: what comes in as nonsense goes out as an answer that a person or an API server understands."""

import asyncio
import base64
import datetime as dt
import gc
import io
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.admission import answers, review
from agents.admission.answers import Mutations
from agents.admission.certificates import pairs as certificates
from agents.admission.certificates.tls import LiveTls
from agents.admission.errors import BadRequestError
from agents.admission.health import Health
from agents.admission.listener import Limits, Listener
from agents.admission.observability import JsonLines, Metrics, log_to_stderr
from agents.admission.review import MAX_BODY_BYTES
from agents.admission.server import AdmissionServer
from agents.admission.settings import Settings
from manifests.admission import server_settings
from testbed.admission.fuzz import fuzz
from testbed.admission.objects import ENDPOINTS, body, gvirtus_pod, mutations, reservation_pod, served
from testbed.stacks import Json, parse, webhook
from testbed.waiting import eventually

JSON = {"Content-Type": "application/json"}
Ask = Callable[[aiohttp.ClientSession, str], Awaitable[Any]]


def server(folder: Path, *, synced: bool = True) -> AdmissionServer:
    return AdmissionServer(served(folder, synced=synced), LiveTls(), Metrics())


async def _served(made: AdmissionServer, ask: Ask) -> Any:  # noqa: ANN401 - what the test asks for
    listener = Listener(made.answer, Limits(), closed=made.count_closed)
    address = f"http://127.0.0.1:{await listener.start('127.0.0.1', 0)}"
    with Health(made.why_unready, made._metrics).thread("127.0.0.1", 0) as port:
        try:
            async with aiohttp.ClientSession() as session:
                session.headers["X-Health"] = f"http://127.0.0.1:{port}"
                return await ask(session, address)
        finally:
            await listener.stop()


def asked(made: AdmissionServer, ask: Ask) -> Any:  # noqa: ANN401 - what the test asks for
    return asyncio.run(_served(made, ask))


def post(
    made: AdmissionServer, data: bytes, path: str = "/mutate/reservation", headers: dict[str, str] | None = None
) -> tuple[int, str]:
    async def ask(session: aiohttp.ClientSession, address: str) -> tuple[int, str]:
        async with session.post(
            address + path, data=io.BytesIO(data), headers=JSON if headers is None else headers
        ) as response:
            return response.status, await response.text()

    status, text = asked(made, ask)
    return status, text


def health(made: AdmissionServer, path: str) -> tuple[int, str]:
    async def ask(session: aiohttp.ClientSession, _: str) -> tuple[int, str]:
        async with session.get(str(session.headers["X-Health"]) + path) as response:
            return response.status, await response.text()

    status, text = asked(made, ask)
    return status, text


def response_of(text: str) -> Json:
    review: Json = json.loads(text)
    assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: Json = review["response"]
    assert response["uid"] == "4f3c"
    return response


def test_a_review_is_answered_with_a_patch(tmp_path: Path) -> None:
    status, text = post(server(tmp_path), body(reservation_pod()))
    response = response_of(text)
    assert status == 200
    assert (response["allowed"], response["patchType"]) == (True, "JSONPatch")
    operations = json.loads(base64.b64decode(response["patch"]))
    assert {operation["op"] for operation in operations} <= {"add", "replace"}


def test_a_pod_that_stays_as_it_is_has_no_patch(tmp_path: Path) -> None:
    response = response_of(post(server(tmp_path), body(reservation_pod(nodeName="x86-1")))[1])
    assert response == {"uid": "4f3c", "allowed": True}


@pytest.mark.parametrize("changes", [{"operation": "UPDATE"}, {"subResource": "status"}, {"operation": "DELETE"}])
def test_only_creation_is_changed(tmp_path: Path, changes: dict[str, str]) -> None:
    assert response_of(post(server(tmp_path), body(reservation_pod(), **changes))[1])["allowed"] is True


def test_a_pod_that_is_refused_says_why(tmp_path: Path) -> None:
    pod = reservation_pod(containers=[{"name": "mine", "image": "a:1"}])
    response = response_of(post(server(tmp_path), body(pod))[1])
    assert response["allowed"] is False
    assert response["status"]["code"] == 422
    assert "resource-reservation" in response["status"]["message"]


def test_before_the_nodes_are_known_pods_are_refused(tmp_path: Path) -> None:
    response = response_of(post(server(tmp_path, synced=False), body(reservation_pod()))[1])
    assert (response["allowed"], response["status"]["code"]) == (False, 503)


def test_before_the_backends_are_known_pods_are_refused_and_told_to_come_again(tmp_path: Path) -> None:
    made = server(tmp_path)
    status, text = post(made, body(gvirtus_pod()), "/mutate/gvirtus")
    refused = response_of(text)
    assert (status, refused["allowed"], refused["status"]["code"]) == (200, False, 503)
    assert "does not know the backends of remote GPUs yet" in refused["status"]["message"]
    assert "try again" in refused["status"]["message"]
    (tmp_path / "gvirtus-endpoints.json").write_text(json.dumps(ENDPOINTS), encoding="utf-8")
    response = response_of(post(made, body(gvirtus_pod()), "/mutate/gvirtus")[1])
    assert response["allowed"] is True, "the same process, without a restart"
    assert "patch" in response


@pytest.mark.parametrize("content", [None, "{"])
def test_without_a_usable_file_pods_that_ask_for_nothing_and_updates_go_through(
    tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "gvirtus-endpoints.json").write_text(content, encoding="utf-8")
    plain = gvirtus_pod()
    del plain["metadata"]["labels"]
    for review_body in (body(plain), body(gvirtus_pod(), operation="UPDATE")):
        response = response_of(post(server(tmp_path), review_body, "/mutate/gvirtus")[1])
        assert response == {"uid": "4f3c", "allowed": True}


def test_a_mutation_that_the_settings_do_not_name_is_not_served_and_waits_for_no_nodes(tmp_path: Path) -> None:
    alone = {"gvirtus": mutations()["gvirtus"]}
    made = AdmissionServer(Mutations(alone, tmp_path), LiveTls(), Metrics())
    assert post(made, body(reservation_pod()))[0] == 404
    assert made.why_unready() == ["no certificate loaded", "caBundle not published"]


def test_a_clock_that_is_wrong_makes_no_replica_unready(tmp_path: Path) -> None:
    """Whether its certificate has expired, API servers judge by theirs."""
    made, born = server(tmp_path), dt.datetime(2026, 11, 22, tzinfo=dt.UTC)
    made._tls.load(certificates.issue("a.b.svc", born, dt.timedelta(days=1)))
    made.now = lambda: born
    assert made.why_unready() == ["caBundle not published"]
    made.now = lambda: born + dt.timedelta(days=1)
    assert made.why_unready() == ["the certificate has expired", "caBundle not published"]


def test_a_wrong_file_refuses_pods_and_quotes_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "gvirtus-endpoints.json").write_text('{"secret-word": 1}', encoding="utf-8")
    response = response_of(post(server(tmp_path), body(gvirtus_pod()), "/mutate/gvirtus")[1])
    assert (response["allowed"], response["status"]["code"]) == (False, 500)
    assert "secret-word" not in json.dumps(response)


def test_a_defect_of_ours_is_a_refusal_and_its_log_quotes_no_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("word-from-the-pod")

    monkeypatch.setattr(answers, "difference", broken)
    response = response_of(post(server(tmp_path), body(reservation_pod()))[1])
    assert (response["allowed"], response["status"]["code"]) == (False, 500)
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    line = json.loads(JsonLines().format(record))
    assert (line["error"], line["uid"]) == ("KeyError", "4f3c")
    assert "word-from-the-pod" not in json.dumps(line)


@pytest.mark.parametrize(
    ("data", "headers", "status", "says"),
    [
        (b"", JSON, 400, "not an AdmissionReview"),
        (b"{}", JSON, 400, "apiVersion"),
        (body({}).replace(b"k8s.io/v1", b"k8s.io/v1beta1"), JSON, 400, "Invalid enum value"),
        (body({}, uid=""), JSON, 400, "uid"),
        (body({}, operation="PATCH"), JSON, 400, "operation"),
        (b"[" * 100_000, JSON, 400, "not an AdmissionReview"),
        (b"\xff\xfe", JSON, 400, "not an AdmissionReview"),
        (body({}), {"Content-Type": "text/plain"}, 415, "application/json"),
        (b" " * (MAX_BODY_BYTES + 1), JSON, 413, ""),
    ],
)
def test_what_is_no_review_is_a_clear_client_error(
    tmp_path: Path, data: bytes, headers: dict[str, str], status: int, says: str
) -> None:
    code, text = post(server(tmp_path), data, headers=headers)
    assert code == status
    assert says in text


@pytest.mark.parametrize("path", ["/", "/mutate", "/mutate/other", "/mutate/reservation/more", "/metrics", "/readyz"])
def test_there_is_nothing_else_on_the_webhooks_port(tmp_path: Path, path: str) -> None:
    assert post(server(tmp_path), body(reservation_pod()), path)[0] == 404


def test_a_body_that_does_not_come_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.admission.server._READ_SECONDS", 0.2)
    made = server(tmp_path)

    async def ask(_: aiohttp.ClientSession, address: str) -> bytes:
        host, _separator, port = address.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /mutate/reservation HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n")
        writer.write(b"Content-Length: 100\r\n\r\n{")
        line = await asyncio.wait_for(reader.readline(), 60)
        writer.close()
        return line

    assert b"408" in asked(made, ask)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", b" 415 "),
        ("Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", b" 411 "),
        (f"Content-Length: {MAX_BODY_BYTES + 1}\r\n\r\n", b" 413 "),
        ("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", b" 400 "),
        ("X-Long: " + "x" * 5000 + "\r\nContent-Length: 2\r\n\r\n{}", b" 400 "),
        ("".join(f"X-{number}: y\r\n" for number in range(100)) + "Content-Length: 2\r\n\r\n{}", b" 400 "),
    ],
)
def test_what_could_become_large_is_refused_by_its_head(tmp_path: Path, head: str, status: bytes) -> None:
    async def ask(_: aiohttp.ClientSession, address: str) -> bytes:
        host, _separator, port = address.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /mutate/reservation HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n")
        writer.write(head.encode())
        line = await asyncio.wait_for(reader.readline(), 60)
        writer.close()
        return line

    assert status in asked(server(tmp_path), ask)


def test_a_client_that_leaves_amid_its_body_is_counted_and_no_defect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = server(tmp_path)

    async def ask(_: aiohttp.ClientSession, address: str) -> None:
        host, _separator, port = address.removeprefix("http://").partition(":")
        _reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /mutate/reservation HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n")
        writer.write(b"Content-Length: 100\r\n\r\n{")
        await writer.drain()
        writer.close()
        bad = made._metrics.reviews.labels("reservation", "bad")
        await asyncio.to_thread(eventually, bad._value.get)

    asked(made, ask)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize(("head", "status"), [("nonsense", b" 400 "), ("CONNECT  ", b" 404 ")])
def test_what_is_no_http_leaves_no_line_in_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], head: str, status: bytes
) -> None:
    """Anybody could fill the node's disk with them."""

    async def ask(_: aiohttp.ClientSession, address: str) -> bytes:
        host, _separator, port = address.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"{head}\r\n\r\n".encode())
        line = await asyncio.wait_for(reader.readline(), 5)
        writer.close()
        return line

    root, server_log = logging.getLogger(), logging.getLogger("aiohttp.server")
    handlers, filters, level = root.handlers[:], server_log.filters[:], root.level
    log_to_stderr()
    try:
        assert status in asked(server(tmp_path), ask)
        assert post(server(tmp_path), b"{}")[0] == 400
        gc.collect()  # asyncio logs an exception that nobody has seen once its task is gone
        logging.getLogger("agents.admission").info("something of ours")
    finally:
        root.handlers[:], server_log.filters[:] = handlers, filters
        root.setLevel(level)
    [line] = capsys.readouterr().err.splitlines()
    assert json.loads(line)["event"] == "something of ours"


def test_it_lives_at_once_and_is_ready_when_nothing_is_missing(tmp_path: Path) -> None:
    made = server(tmp_path, synced=False)
    assert health(made, "/healthz") == (200, "ok\n")
    status, text = health(made, "/readyz")
    assert status == 503
    assert text.splitlines() == ["no certificate loaded", "caBundle not published", "nodes not read"]
    made.draining = True
    assert "shutting down" in health(made, "/readyz")[1]


def test_metrics_count_what_was_answered(tmp_path: Path) -> None:
    made = server(tmp_path)
    post(made, body(reservation_pod()))
    post(made, b"{}")
    text = health(made, "/metrics")[1]
    assert 'kai_anywhere_admission_reviews_total{mutation="reservation",outcome="changed"} 1.0' in text
    assert 'kai_anywhere_admission_reviews_total{mutation="reservation",outcome="bad"} 1.0' in text
    assert "kai_anywhere_admission_ready 0.0" in text


_JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def test_nonsense_over_real_connections_is_answered_or_the_connection_closed() -> None:
    """`make bench-admission` sends 100,000 of these."""
    result = fuzz(1_500)
    assert result.defects == []
    assert set(result.counts) == {"answered", "client error", "closed"}


@given(st.binary(max_size=200) | _JSON_VALUES.map(body) | _JSON_VALUES.map(lambda spec: body({"spec": spec})))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_comes_is_answered(data: bytes) -> None:
    """The whole way of a body without the sockets."""
    try:
        request = review.read(data)
    except BadRequestError:
        return
    answer = served().answer("reservation", request)
    assert answer.code != 500, "a defect of ours"
    assert json.loads(review.write(request, answer))["response"]["uid"] == request.uid


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the kernel has no IPv6")
def test_both_ports_answer_over_ipv4_and_ipv6(tmp_path: Path, address: str) -> None:
    """A pod of a cluster with IPv6 alone has no other address."""

    async def statuses() -> list[int]:
        made = server(tmp_path)
        listener = Listener(made.answer, Limits())
        port = await listener.start(None, 0)
        try:
            with Health(made.why_unready, made._metrics).thread(None, 0) as health_port:
                async with aiohttp.ClientSession() as session:
                    urls = [f"http://{address}:{port}/mutate/gvirtus", f"http://{address}:{health_port}/healthz"]
                    return [(await session.get(url)).status for url in urls]
        finally:
            await listener.stop()

    assert asyncio.run(statuses()) == [405, 200]


def test_no_address_in_the_settings_means_all_of_them(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(server_settings(parse(webhook()))), encoding="utf-8")
    assert Settings.from_file(file).host is None
