"""Both carriers of remote GPUs say the same: the server's mutation is the function that the policies render."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from agents.admission.errors import RefusalError
from agents.admission.gvirtus import Backends, mutate
from manifests.gvirtus import backends as gvirtus
from manifests.gvirtus.injection import Injection, inject, refusal, webhook_document
from testbed.stacks import gvirtus_webhook, parse
from tests.support.gvirtus.cases import ADDRESSES, CASES, stack_of
from tests.unit.manifests.test_gvirtus_injection import _INJECTION, _NO_DEFAULT, _pods


def _server(injection: Injection) -> Backends:
    return msgspec.convert(webhook_document(injection), Backends)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(_pods)
def test_every_pod_comes_out_the_same_or_is_refused_with_the_same_words(pod: dict[str, Any]) -> None:
    for injection in (_INJECTION, _NO_DEFAULT):
        expected = inject(pod, injection)
        if (message := refusal(expected, injection)) is None:
            assert mutate(pod, _server(injection)) == expected
        else:
            with pytest.raises(RefusalError) as caught:
                mutate(pod, _server(injection))
            assert str(caught.value) == message


@pytest.mark.parametrize("name", CASES)
def test_the_cases_that_run_on_a_real_api_server_come_out_the_same(name: str) -> None:
    remote = parse(stack_of(gvirtus_webhook())).gvirtus
    assert remote is not None
    injection = gvirtus.injection(remote, ADDRESSES)
    pod = CASES[name]()
    expected = inject(pod, injection)
    assert refusal(expected, injection) is None
    assert mutate(pod, _server(injection)) == expected
    assert (expected == pod) == (name == "lupine set by hand"), "all others get something"
