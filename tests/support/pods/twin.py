"""The policy pack and its twin in the cluster, asked about the same objects."""

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2

from manifests import pod_guard
from manifests.admission_objects import deny_binding
from policy.judge import judge
from policy.rules import POD_RULES
from policy.stack_platform import StackFacts
from testbed.stacks import Json, jetson, parse
from testbed.waiting import eventually
from tests.policy.objects import changed
from tests.support.pods.corpus import CONTAINER, KINDS, Change, both, plain

GUARDED, FREE, RESERVATION = "guarded", "free", "kai-resource-reservation"
BINDER = "system:serviceaccount:kai-scheduler:binder"
STACK = StackFacts(tegra_nodes=frozenset({"jetson-1"}), labelled_nodes=frozenset({"jetson-1"}))
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
DRY = {"dryRun": "All"}
MERGE = {"Content-Type": "application/merge-patch+json"}


OFFENCES = both(("spec.hostPID", True), (f"{CONTAINER}.securityContext.privileged", True))
BEFORE = [
    changed(plain("running"), "spec.nodeName", "cpu-1"),
    both(("spec.nodeName", "cpu-1"), ("metadata.finalizers", ["example.com/stays"]))(OFFENCES(plain("old-pod"))),
    changed(KINDS["Deployment"](OFFENCES(plain("old"))), "spec.replicas", 0),
]
"""What the guard finds in the namespace when it comes."""


def prepare(api: httpx2.Client) -> None:
    """Give a cluster the twin of the Jetson stack, two guarded namespaces and a free one, and what was there before."""
    for name in (GUARDED, FREE, RESERVATION):
        make_namespace(api, name)
    for key in BEFORE:
        post(api, path_of(key, GUARDED), key)
    for name in (GUARDED, RESERVATION):
        label = {"metadata": {"labels": {pod_guard.LABEL: pod_guard.LABEL_ENFORCE}}}
        assert api.patch(f"/api/v1/namespaces/{name}", json=label, headers=MERGE).is_success
    post(api, f"/api/v1/namespaces/{RESERVATION}/serviceaccounts", {"metadata": {"name": RESERVATION}})
    for name in ("nvidia", "nvidia-cdi", "kata", "other"):
        # Kubernetes itself refuses a pod with a class that is not there.
        post(api, "/apis/node.k8s.io/v1/runtimeclasses", {"metadata": {"name": name}, "handler": name})
    post(
        api,
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "metadata": {"name": "binder"},
            "subjects": [{"kind": "User", "name": BINDER, "apiGroup": "rbac.authorization.k8s.io"}],
            "roleRef": {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"},
        },
    )
    post(api, POLICIES, pod_guard.guard_policy(parse(jetson())))
    post(api, POLICIES.removesuffix("policies") + "policybindings", deny_binding(pod_guard.POD_GUARD))
    probe = changed(plain(), "spec.hostPID", True)
    eventually(lambda: not any(create(api, probe, namespace).is_success for namespace in (GUARDED, RESERVATION)))


def make_namespace(api: httpx2.Client, name: str) -> None:
    """Create a namespace and wait until pods can be created in it."""
    post(api, "/api/v1/namespaces", {"metadata": {"name": name}})
    eventually(lambda: api.get(f"/api/v1/namespaces/{name}/serviceaccounts/default").is_success)


def post(api: httpx2.Client, path: str, body: Json) -> Json:
    """Create an object for good."""
    response = api.post(path, json=body)
    assert response.status_code == httpx2.codes.CREATED, response.text
    answer: Json = response.json()
    return answer


def create(api: httpx2.Client, body: Json, namespace: str = GUARDED, *, user: str | None = None) -> httpx2.Response:
    """Create an object without storing it."""
    headers = {} if user is None else {"Impersonate-User": user}
    body = changed(body, "metadata.namespace", namespace)
    return api.post(path_of(body, namespace), json=body, params=DRY, headers=headers)


def path_of(body: Json, namespace: str) -> str:
    """Where objects of this one's kind are created."""
    group = "/api/v1" if body["apiVersion"] == "v1" else f"/apis/{body['apiVersion']}"
    return f"{group}/namespaces/{namespace}/{body['kind'].lower()}s"


def findings(body: Json, stack: StackFacts = STACK) -> set[tuple[str, str]]:
    """Rule and found value of what the pack finds."""
    token = f"kubernetes:{'core/v1' if body['apiVersion'] == 'v1' else body['apiVersion']}:{body['kind']}"
    result = judge(token, "one", copy.deepcopy(body), stack, POD_RULES).findings
    return {(finding.rule, finding.path) for finding in result}


def denied(response: httpx2.Response) -> bool:
    """Whether the twin refused it; anything but its refusal and a success is an error of the test's object."""
    if response.is_success:
        return False
    message = response.json()["message"]
    assert f"ValidatingAdmissionPolicy '{pod_guard.POD_GUARD}'" in message, message
    assert "in more ways than a message can hold" not in message, "the message itself could not be computed"
    return True


def disagreement(api: httpx2.Client, body: Json, namespace: str = GUARDED) -> str:
    """How pack and twin differ on a creation; empty where they agree, message included."""
    result = findings(changed(body, "metadata.namespace", namespace))
    return compare(result, create(api, body, namespace))


def compare(places: set[tuple[str, str]], response: httpx2.Response) -> str:
    """How what the pack finds differs from the API server's answer."""
    if denied(response) != bool(places):
        return f"the pack finds {places or 'nothing'}, the API server says {response.text[:600]}"
    if not places or (message := str(response.json()["message"])).endswith("..."):
        return ""
    text = _without_brackets(message)
    missing = [
        (rule, path)
        for rule, path in places
        if f"{_without_brackets(path).removesuffix('.value')} is " not in text or f"({rule}: " not in text
    ]
    return f"{missing} not told in: {message}" if missing else ""


def _without_brackets(text: str) -> str:
    """Paths in one form: the pack has indexes there, the twin names."""
    return re.sub(r"\[[^]]*]", "", text)


def places(change: Change) -> list[str]:
    """Where a change can stand in a pod that is created."""
    return ["spec.containers.0", "spec.initContainers.0"] if change.everywhere else [""]


def as_sidecar(pod: Json) -> Json:
    """The pod with an init container that may have probes and hooks."""
    return changed(pod, "spec.initContainers.0.restartPolicy", "Always")


@contextmanager
def unguarded(api: httpx2.Client, refused: Json) -> Iterator[None]:
    """The guarded namespace as it was before its guard, which refuses this object."""

    def label(value: str | None) -> None:
        body = {"metadata": {"labels": {pod_guard.LABEL: value}}}
        api.patch(f"/api/v1/namespaces/{GUARDED}", json=body, headers=MERGE).raise_for_status()

    refused = changed(refused, "metadata.name", "other")
    label(None)
    try:
        eventually(lambda: create(api, refused).is_success)
        yield
    finally:
        label(pod_guard.LABEL_ENFORCE)
        eventually(lambda: not create(api, refused).is_success)
