"""Pods before the admission server: how they are created, and what became of them."""

import http.client
import json
import ssl
import threading
from collections.abc import Callable
from typing import Self

import httpx2
from cryptography import x509

from manifests import reservation
from testbed.admission.deployment import Deployment
from testbed.stacks import Json
from tests.support.pods.reservation_cases import as_binder_creates

NAMESPACE = reservation.NAMESPACE
LIFETIME_SECONDS = 120
"""Of a certificate: each one that a test finds is renewed and expires within two minutes."""
PROPAGATION_SECONDS = 5


def pods(namespace: str = NAMESPACE) -> str:
    """The path of a namespace's pods."""
    return f"/api/v1/namespaces/{namespace}/pods"


def post(api: httpx2.Client, pod: Json, *, dry_run: bool = True) -> httpx2.Response:
    """Create a pod."""
    path = pods(pod["metadata"].get("namespace", NAMESPACE))
    return api.post(path, json=pod, params={"dryRun": "All"} if dry_run else {})


def outcome(response: httpx2.Response) -> Json | None:
    """The pod's specification without random names, or None for a refusal."""
    if response.status_code != httpx2.codes.CREATED:
        assert response.status_code in {httpx2.codes.FORBIDDEN, httpx2.codes.UNPROCESSABLE_CONTENT}, response.text
        return None
    spec = json.dumps(response.json()["spec"])
    for volume in response.json()["spec"]["volumes"]:
        if volume["name"].startswith("kube-api-access-"):
            spec = spec.replace(volume["name"], "kube-api-access-XXXXX")
    result: Json = json.loads(spec)
    return result


def is_mutated(pod: Json) -> bool:
    """Whether the pod got the overrides."""
    return any(container.get("securityContext", {}).get("privileged", False) for container in pod["spec"]["containers"])


def is_mutated_now(api: httpx2.Client) -> bool:
    """Whether a reservation pod would get the overrides now."""
    response = post(api, as_binder_creates())
    return response.status_code == httpx2.codes.CREATED and is_mutated(response.json())


def plain_pod(namespace: str, labels: dict[str, str]) -> Json:
    """A pod of somebody else."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "plain-", "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "busybox:1"}]},
    }


def all_of(count: int, condition: Callable[[], bool]) -> bool:
    """Whether a condition holds several times in a row, so that both replicas were asked."""
    return all(condition() for _ in range(count))


def reviews(server: Deployment, mutation: str, *results: str) -> float:
    """How many reviews of a mutation the replicas answered with these outcomes."""
    samples = [
        f'kai_anywhere_admission_reviews_total{{mutation="{mutation}",outcome="{result}"}}' for result in results
    ]
    return sum(replica.metric(sample) for replica in server.replicas for sample in samples)


def served(port: int, bundle: bytes, server: Deployment) -> x509.Certificate:
    """Handshake and one request; the certificate that was presented."""
    context = ssl.create_default_context(cadata=bundle.decode("ascii"))
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=60)
    raw = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    raw.connect()
    try:
        assert raw.sock is not None
        connection.sock = context.wrap_socket(raw.sock, server_hostname=server.dns_name)
        presented = connection.sock.getpeercert(binary_form=True)
        connection.request("POST", "/mutate/reservation", body=b"{}", headers={"Content-Type": "application/json"})
        assert connection.getresponse().status == httpx2.codes.BAD_REQUEST
        assert isinstance(presented, bytes)
        return x509.load_der_x509_certificate(presented)
    finally:
        connection.close()


class Load:
    """Pods created one after the other, dry-run, until the block ends: without a pause, or with one.

    Attributes:
        answered: how many requests were answered.
        failures: the answers that were no pod with the overrides.
    """

    def __init__(self, api: httpx2.Client, *, pause_seconds: float = 0) -> None:
        self.answered = 0
        self.failures: list[str] = []
        self._api = api
        self._pause_seconds = pause_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            answer = post(self._api, as_binder_creates())
            if answer.status_code != httpx2.codes.CREATED or not is_mutated(answer.json()):
                self.failures.append(answer.text)
            self.answered += 1
            self._stop.wait(self._pause_seconds)
