"""Rules of `pod_guard`: a scope, and exemptions where they lift something."""

import pytest

from config.pod_guard import GuardScope
from testbed.stacks import STACKS, assert_refused, changed, jetson, parse, without, x86


@pytest.mark.parametrize("name", STACKS)
def test_a_stack_guards_what_is_labelled_unless_it_says_more(name: str) -> None:
    guard = parse(without(STACKS[name](), "pod_guard")).pod_guard
    assert (guard.scope, guard.exempt_namespaces) == (GuardScope.LABELLED, ())


def test_the_whole_cluster_may_be_guarded_with_exemptions() -> None:
    stack = changed(x86(), "pod_guard", {"scope": "cluster", "exempt_namespaces": ["longhorn-system"]})
    guard = parse(stack).pod_guard
    assert (guard.scope, guard.exempt_namespaces) == (GuardScope.CLUSTER, ("longhorn-system",))


def test_another_scope_is_refused_with_those_that_there_are() -> None:
    assert_refused(
        changed(jetson(), "pod_guard.scope", "all"), "pod_guard.scope", "'labelled' or 'cluster'", found="all"
    )


def test_exemptions_of_a_guard_that_guards_only_labelled_namespaces_are_refused() -> None:
    assert_refused(
        changed(jetson(), "pod_guard.exempt_namespaces", ["longhorn-system"]),
        "pod_guard",
        "exempt_namespaces with scope 'labelled'",
        "or set scope: cluster",
    )


@pytest.mark.parametrize("name", ["Longhorn", "a.b", "-a", "*", ""])
def test_an_exemption_is_the_name_of_a_namespace(name: str) -> None:
    stack = changed(x86(), "pod_guard", {"scope": "cluster", "exempt_namespaces": [name]})
    assert_refused(stack, "pod_guard.exempt_namespaces.0", "not a DNS label", found=name)
