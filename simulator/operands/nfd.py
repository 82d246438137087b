"""Node Feature Discovery's master: labels nodes by NodeFeatureRules, as far as rules name nodes."""

from collections.abc import Mapping
from typing import Any

from simulator.operands.world import Decision, Merge, Object, Ref, World, annotations, at, has_condition, labels

MASTER_SUFFIX = "node-feature-discovery-master"
LABELS_ANNOTATION = "nfd.node.kubernetes.io/feature-labels"
"""Where NFD remembers the labels that it set, so that it can take them back."""

DEFAULT_NAMESPACE = "feature.node.kubernetes.io"
"""What a label without a namespace gets."""

_KNOWN_RULE_KEYS = {"name", "labels", "matchFeatures"}


class UnsupportedRuleError(Exception):
    """A rule uses what real NFD knows and this one does not."""


def decide(world: World) -> Decision:
    """Set the labels of all rules, take back what no rule gives any more.

    Without any master the labels go too: the chart's clean-up Job removes them when NFD is uninstalled. A master that
    is there but not available changes nothing.
    """
    masters = [d for d in world.deployments if d["metadata"]["name"].endswith(MASTER_SUFFIX)]
    if masters and not any(has_condition(master, "Available") for master in masters):
        return Decision()
    complaints: list[str] = []
    changes = []
    for node in world.nodes:
        wanted = _labels_for(node, world.node_feature_rules, complaints) if masters else {}
        had = [name for name in annotations(node).get(LABELS_ANNOTATION, "").split(",") if name]
        taken_back: dict[str, str | None] = {name: None for name in had if name not in wanted}
        differing = {name: value for name, value in wanted.items() if labels(node).get(name) != value}
        if taken_back or differing or sorted(had) != sorted(wanted):
            remembered = ",".join(sorted(wanted)) or None
            patch = {
                "metadata": {"labels": {**taken_back, **differing}, "annotations": {LABELS_ANNOTATION: remembered}}
            }
            changes.append(Merge(Ref("v1", "Node", node["metadata"]["name"]), patch))
    return Decision(tuple(changes), tuple(dict.fromkeys(complaints)))


def _labels_for(node: Object, rules: tuple[Object, ...], complaints: list[str]) -> dict[str, str]:
    wanted: dict[str, str] = {}
    for resource in rules:
        for rule in at(resource, "spec", "rules") or ():
            try:
                if _matches(rule, node):
                    wanted |= {_qualified(name): value for name, value in (rule.get("labels") or {}).items()}
            except UnsupportedRuleError as error:
                complaints.append(
                    f"NodeFeatureRule {resource['metadata']['name']}, rule {rule.get('name')!r} is ignored: {error}. "
                    "The simulator knows matchFeatures on feature system.name, element nodename, with In or Exists."
                )
    return wanted


def _matches(rule: Mapping[str, Any], node: Object) -> bool:
    if unknown := rule.keys() - _KNOWN_RULE_KEYS:
        raise UnsupportedRuleError(f"it uses {', '.join(sorted(unknown))}")
    return all(_term_matches(term, node) for term in rule.get("matchFeatures") or ())


def _term_matches(term: Mapping[str, Any], node: Object) -> bool:
    if term.get("feature") != "system.name" or term.get("matchName") is not None:
        raise UnsupportedRuleError(f"it matches feature {term.get('feature')}")
    for element, expression in (term.get("matchExpressions") or {}).items():
        match element, expression.get("op"):
            case "nodename", "In":
                if node["metadata"]["name"] not in (expression.get("value") or ()):
                    return False
            case "nodename", "Exists":
                pass
            case _:
                raise UnsupportedRuleError(f"it tests {element} with {expression.get('op')}")
    return True


def _qualified(name: str) -> str:
    return name if "/" in name else f"{DEFAULT_NAMESPACE}/{name}"
