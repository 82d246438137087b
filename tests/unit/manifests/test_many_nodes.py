"""Labels of many nodes as one document, and back."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from manifests.many_nodes import apart, together
from manifests.ownership import annotated

LABELS = st.dictionaries(st.sampled_from(["platform", "memory", "count"]), st.sampled_from(["1", "2", ""]))
NODES = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.tuples(LABELS, st.booleans()))


def _node(name: str, labels: dict[str, str], *, adopted: bool = False) -> dict[str, Any]:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    return annotated(node, {"metadata": {"labels": {"memory": "4000"}}}) if adopted else node


@given(NODES)
def test_nodes_come_back_as_they_were(described: dict[str, tuple[dict[str, str], bool]]) -> None:
    nodes = {name: _node(name, labels, adopted=adopted) for name, (labels, adopted) in described.items()}
    assert apart(together(nodes)) == nodes


def test_what_all_have_is_said_once() -> None:
    nodes = {name: _node(name, {"platform": "tegra", "memory": str(mib)}) for name, mib in (("a", 1), ("b", 2))}
    assert together(nodes) == {
        "labels": {"platform": "tegra"},
        "nodes": {"a": {"labels": {"memory": "1"}}, "b": {"labels": {"memory": "2"}}},
    }


def test_nodes_that_are_alike_have_nothing_of_their_own() -> None:
    nodes = {name: _node(name, {"platform": "tegra"}) for name in ("a", "b")}
    assert together(nodes) == {"labels": {"platform": "tegra"}, "nodes": {"a": {}, "b": {}}}


def test_a_value_that_is_not_known_yet_is_of_its_node_though_all_nodes_share_it() -> None:
    unknown = object()
    nodes = {name: _node(name, {"platform": "tegra", "memory": unknown}) for name in ("a", "b")}  # type: ignore[dict-item]
    assert together(nodes)["labels"] == {"platform": "tegra"}
    assert together(nodes)["nodes"] == {name: {"labels": {"memory": unknown}} for name in ("a", "b")}


def test_the_nodes_themselves_are_read_too() -> None:
    nodes = {"a": _node("a", {"platform": "tegra"}, adopted=True)}
    assert apart({"nodes": nodes}) == nodes


def test_what_is_not_known_yet_counts_as_empty() -> None:
    unknown = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
    assert apart({}) == apart({"labels": unknown, "nodes": unknown}) == apart({"nodes": None}) == {}
    assert apart({"labels": {"platform": "tegra"}, "nodes": {"a": unknown}}) == {"a": _node("a", {"platform": "tegra"})}
    assert apart({"nodes": {"a": {"labels": unknown, "annotations": unknown}}}) == {"a": _node("a", {})}
