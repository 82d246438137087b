"""Rules of `node_profiles`: one node shares its GPUs in one way."""

import pytest

from testbed.stacks import assert_refused, changed, parse, time_slicing, without

_REASON = "KAI fractions and time slicing don't compose on one node"


def test_fractions_with_replicas_are_refused_with_the_reason() -> None:
    assert_refused(
        changed(time_slicing(), "node_profiles.fractions.replicas", 4),
        "node_profiles.fractions",
        _REASON,
        "promises the same memory again, up to the number of replicas",
        "Remove 'replicas', or set sharing: time_slicing",
    )


def test_both_ways_in_one_profile_are_refused_with_the_reason() -> None:
    assert_refused(
        changed(time_slicing(), "node_profiles.sliced.sharing", ["kai", "time_slicing"]),
        "node_profiles.sliced",
        _REASON,
        "Choose one, or two profiles with different nodes",
    )


def test_a_node_in_profiles_of_both_ways_is_refused_with_the_reason() -> None:
    assert_refused(
        changed(time_slicing(), "node_profiles.fractions.nodes", ["gpu-7"]),
        "node_profiles",
        "node 'gpu-7' stands in the profiles 'sliced' and 'fractions'",
        _REASON,
        "Leave it in one",
    )


def test_a_node_in_two_profiles_of_one_way_is_refused_without_that_reason() -> None:
    stack = changed(
        time_slicing(), "node_profiles.more", {"sharing": "time_slicing", "nodes": ["gpu-7"], "replicas": 2}
    )
    assert_refused(stack, "node_profiles", "node 'gpu-7' stands in the profiles 'sliced' and 'more'. Leave it in one.")


def test_the_name_of_the_default_profile_is_taken() -> None:
    stack = changed(time_slicing(), "node_profiles.default", {"sharing": "kai", "nodes": ["gpu-1"]})
    assert_refused(stack, "node_profiles", "the profile 'default' is what nodes outside every profile have")


def test_an_unknown_way_of_sharing_names_the_known_ones() -> None:
    stack = changed(time_slicing(), "node_profiles.sliced.sharing", "mps")
    assert_refused(stack, "node_profiles.sliced.sharing", "'kai', 'time_slicing'", found="mps")


def test_a_profile_says_how_it_shares() -> None:
    stack = without(time_slicing(), "node_profiles.sliced.sharing")
    assert_refused(stack, "node_profiles.sliced", "the key 'sharing' is required here")


def test_time_slicing_needs_a_number_of_replicas() -> None:
    key = "node_profiles.sliced.replicas"
    assert_refused(without(time_slicing(), key), key, "required, but missing")


@pytest.mark.parametrize("replicas", [1, 0, 1001])
def test_replicas_are_two_or_more(replicas: int) -> None:
    key = "node_profiles.sliced.replicas"
    assert_refused(changed(time_slicing(), key, replicas), key, "or equal to", found=replicas)


def test_a_profile_names_at_least_one_node() -> None:
    key = "node_profiles.sliced.nodes"
    assert_refused(changed(time_slicing(), key, []), key, "at least 1 item")


def test_a_profiles_name_fits_a_label_value() -> None:
    stack = changed(time_slicing(), "node_profiles.Big_One", {"sharing": "kai", "nodes": ["gpu-1"]})
    assert_refused(stack, "node_profiles.Big_One", "not a DNS label", found="Big_One")


def test_nodes_in_different_profiles_share_in_different_ways() -> None:
    profiles = parse(time_slicing()).node_profiles
    assert {name: profile.sharing for name, profile in profiles.items()} == {
        "sliced": "time_slicing",
        "fractions": "kai",
    }
