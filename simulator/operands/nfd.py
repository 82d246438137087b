"""Node Feature Discovery: labels nodes by NodeFeatureRules, from what a machine of each kind has."""

import re
from collections.abc import Mapping
from typing import Any

from simulator.nodes import KIND_ANNOTATION, NodeKind
from simulator.operands.world import Decision, Merge, Object, Ref, World, annotations, at, has_condition, labels

MASTER_SUFFIX = "node-feature-discovery-master"
LABELS_ANNOTATION = "nfd.node.kubernetes.io/feature-labels"
"""Where NFD remembers the labels that it set, so that it can take them back."""

DEFAULT_NAMESPACE = "feature.node.kubernetes.io"
"""What a label without a namespace gets."""

_KNOWN_RULE_KEYS = {"name", "labels", "vars", "matchFeatures", "matchAny"}
_WITH_PCI_GPU = {NodeKind.X86.value, NodeKind.SPARK.value}
_PCI_GPU = {"vendor": "10de", "class": "0302"}

Attributes = Mapping[str, str]


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
        rule_labels = _labels_for(node, world.node_feature_rules, complaints) if masters else {}
        had = [name for name in annotations(node).get(LABELS_ANNOTATION, "").split(",") if name]
        taken_back: dict[str, str | None] = {name: None for name in had if name not in rule_labels}
        differing = {name: value for name, value in rule_labels.items() if labels(node).get(name) != value}
        if taken_back or differing or sorted(had) != sorted(rule_labels):
            remembered = ",".join(sorted(rule_labels)) or None
            patch = {
                "metadata": {"labels": {**taken_back, **differing}, "annotations": {LABELS_ANNOTATION: remembered}}
            }
            changes.append(Merge(Ref("v1", "Node", node["metadata"]["name"]), patch))
    return Decision(tuple(changes), tuple(dict.fromkeys(complaints)))


def _labels_for(node: Object, rules: tuple[Object, ...], complaints: list[str]) -> dict[str, str]:
    rule_labels: dict[str, str] = {}
    matched: dict[str, str] = {}
    for resource in rules:
        for rule in at(resource, "spec", "rules") or ():
            try:
                if _matches(rule, _features(node, matched)):
                    labelled = {_qualified(name): value for name, value in (rule.get("labels") or {}).items()}
                    rule_labels |= labelled
                    matched |= labelled | (rule.get("vars") or {})
            except UnsupportedRuleError as error:
                complaints.append(
                    f"NodeFeatureRule {resource['metadata']['name']}, rule {rule.get('name')!r} is ignored: {error}. "
                    "The simulator knows matchFeatures and matchAny on the features system.name, kernel.version, "
                    "pci.device and rule.matched, with In, InRegexp, Exists or DoesNotExist."
                )
    return rule_labels


def _features(node: Object, matched: Attributes) -> Mapping[str, list[Attributes]]:
    """What NFD's worker finds on the machine: by feature, its instances; and what rules before this one gave."""
    pci = [_PCI_GPU] if annotations(node).get(KIND_ANNOTATION) in _WITH_PCI_GPU else []
    return {
        "system.name": [{"nodename": node["metadata"]["name"]}],
        "kernel.version": [{"full": str(at(node, "status", "nodeInfo", "kernelVersion") or "")}],
        "pci.device": [*pci],
        "rule.matched": [matched],
    }


def _matches(rule: Mapping[str, Any], features: Mapping[str, list[Attributes]]) -> bool:
    if unknown := rule.keys() - _KNOWN_RULE_KEYS:
        raise UnsupportedRuleError(f"it uses {', '.join(sorted(unknown))}")
    alternatives = rule.get("matchAny")
    return all(_term_matches(term, features) for term in rule.get("matchFeatures") or ()) and (
        not alternatives
        or any(
            all(_term_matches(term, features) for term in alternative.get("matchFeatures") or ())
            for alternative in alternatives
        )
    )


def _term_matches(term: Mapping[str, Any], features: Mapping[str, list[Attributes]]) -> bool:
    """Whether one instance of the feature has everything that is expected."""
    instances = features.get(str(term.get("feature")))
    if instances is None or term.get("matchName") is not None:
        raise UnsupportedRuleError(f"it matches feature {term.get('feature')}")
    expected = (term.get("matchExpressions") or {}).items()
    checked = [[_expected(one.get(element), element, how) for element, how in expected] for one in instances]
    return any(all(results) for results in checked)


def _expected(value: str | None, element: str, expression: Mapping[str, Any]) -> bool:
    values = expression.get("value") or ()
    match expression.get("op"):
        case "In":
            return value in values
        case "InRegexp":
            return value is not None and any(_fits(pattern, value) for pattern in values)
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case operator:
            raise UnsupportedRuleError(f"it tests {element} with {operator}")


def _fits(pattern: str, value: str) -> bool:
    try:
        return re.search(pattern, value) is not None
    except re.error as error:  # NFD's are Go's, which knows what Python does not, such as \pL
        raise UnsupportedRuleError(f"{pattern!r} is no expression of Python's: {error}") from error


def _qualified(name: str) -> str:
    return name if "/" in name else f"{DEFAULT_NAMESPACE}/{name}"
