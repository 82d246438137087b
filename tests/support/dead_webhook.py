"""An admission webhook of somebody else's for which nobody answers."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx2

from testbed.waiting import eventually

NAME = "judge"
_PATH = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@contextmanager
def judged_by_nobody(api: httpx2.Client, group: str, resource: str) -> Iterator[None]:
    """Nothing of a kind can be made meanwhile: its webhook's Service is not there.

    Args:
        api: where.
        group: the kind's API group.
        resource: its plural.
    """
    rule = {"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [resource]}
    webhook = {
        "name": "judge.example.com",
        "clientConfig": {"service": {"name": "judge", "namespace": "judging"}},
        "rules": [rule],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    api.post(_PATH, json={"metadata": {"name": NAME}, "webhooks": [webhook]}).raise_for_status()
    try:
        eventually(lambda: not _is_taken(api, group, resource))
        yield
    finally:
        api.delete(f"{_PATH}/{NAME}").raise_for_status()
        eventually(lambda: _is_taken(api, group, resource))


def _is_taken(api: httpx2.Client, group: str, resource: str) -> bool:
    """Whether one could be made; the API server learns of webhooks in its own time, and judges what is valid."""
    path = f"/apis/{group}/v1" if group else "/api/v1"
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "main"}]}}}
    made = {"metadata": {"name": "judged"}, **({"spec": spec} if resource == "jobs" else {})}
    return api.post(f"{path}/namespaces/default/{resource}", params={"dryRun": "All"}, json=made).is_success
