"""The two carriers of remote GPUs say the same: the server, and the function that the policy is checked against."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.admission.errors import RefusalError
from agents.admission.gvirtus import Backends, mutate
from tests.support.stacks import Json
from tests.unit.agents.admission.test_patches import PODS

injection = pytest.importorskip("manifests.gvirtus_injection", reason="this checkout has no GVirtuS components")
gvirtus_settings = pytest.importorskip("config.gvirtus")

_NEAR = {"host": "10.96.0.10", "port": "9999", "kind": "gvirtus"}
_FAR = {"host": "lupine.gvirtus.svc", "port": "14833", "kind": "lupine"}


def _injection(default: str | None) -> object:
    endpoints = {
        name: injection.Endpoint(name, gvirtus_settings.BackendKind(backend["kind"]), backend["host"], backend["port"])
        for name, backend in (("near", _NEAR), ("far", _FAR))
    }
    return injection.Injection(endpoints, default)


@given(PODS, st.sampled_from(["near", "far", None]))
def test_both_give_the_same_pod_or_the_same_refusal(pod: Json, default: str | None) -> None:
    asked = _injection(default)
    document = json.dumps(injection.webhook_document(asked)).encode()
    backends = msgspec.json.decode(document, type=Backends)
    wanted = (pod["metadata"].get("labels") or {}).get("gvirtus.io/enabled") == "true"
    refusal = injection.refusal(pod, asked) if wanted else None
    if refusal is None:
        assert mutate(pod, backends) == injection.inject(pod, asked)
    else:
        with pytest.raises(RefusalError) as caught:
            mutate(pod, backends)
        assert str(caught.value) == refusal
