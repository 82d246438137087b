"""The whole of what a stack means, compared with files that a reviewer has read.

`jetson` and `x86` hold every document; the other folders hold what is different there, `null` where it is absent.
"""

import pytest

from testbed.stacks import STACKS, parse
from tests.support.golden import Golden
from tests.support.values import documents_of

_DIFFERENCES = {
    "never": "jetson",
    "unprivileged": "jetson",
    "rungs": "jetson",
    "mixed": "jetson",
    "operator-elsewhere": "jetson",
    "webhook": "jetson",
    "rungs-webhook": "webhook",
    "cert-manager": "webhook",
    "stack-certificates": "webhook",
    "spark": "x86",
    "hami-core": "x86",
    "time-slicing": "x86",
    "k8s-snap": "x86",
    "air-gapped": "x86",
    "gvirtus": "jetson",
    "gvirtus-full": "operator-elsewhere",
    "gvirtus-webhook": "gvirtus",
    "beta-policies": "gvirtus",
    "monitoring": "jetson",
    "monitoring-full": "x86",
}


@pytest.mark.parametrize("stack", ["jetson", "x86"])
def test_every_document_of_a_platform_is_the_reviewed_one(stack: str, golden: Golden) -> None:
    golden.check(stack, documents_of(parse(STACKS[stack]())))


@pytest.mark.parametrize(("stack", "base"), _DIFFERENCES.items())
def test_a_variant_differs_from_its_platform_as_reviewed(stack: str, base: str, golden: Golden) -> None:
    before, after = documents_of(parse(STACKS[base]())), documents_of(parse(STACKS[stack]()))
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    assert names, "a variant that changes nothing tests nothing"
    golden.check(stack, {name: after.get(name) for name in names})


def test_every_stack_has_golden_files() -> None:
    assert {*_DIFFERENCES, "jetson", "x86"} == STACKS.keys()
