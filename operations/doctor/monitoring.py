"""What checks know of the exporter's rights, and of who asks it. Read only where the stack has metrics."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import AliasPath, Field

from cluster.access.answers.answer import Answer


class _Named(Answer):
    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    annotations: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "annotations"))


class Rule(Answer):
    """A rule of a role; `*` is everything."""

    groups: list[str] = Field(default=[], alias="apiGroups")
    resources: list[str] = Field(default=[])
    verbs: list[str] = Field(default=[])

    def allows(self, verb: str, group: str, resource: str) -> bool:
        """Whether the rule alone allows it."""
        pairs = ((self.verbs, verb), (self.groups, group), (self.resources, resource))
        return all(value in listed or "*" in listed for listed, value in pairs)


class Role(_Named):
    """A ClusterRole."""

    rules: list[Rule] | None = None

    def allows(self, verb: str, group: str, resource: str) -> bool:
        """Whether it allows something."""
        return any(rule.allows(verb, group, resource) for rule in self.rules or ())


class RoleBinding(_Named):
    """A ClusterRoleBinding."""

    role: str = Field(default="", validation_alias=AliasPath("roleRef", "name"))
    subjects: list[dict[str, Any]] | None = None

    @property
    def accounts(self) -> frozenset[tuple[str, str, str]]:
        """Whom it binds: kind, namespace and name."""
        return frozenset(
            (str(subject.get("kind")), str(subject.get("namespace", "")), str(subject.get("name")))
            for subject in self.subjects or ()
        )

    @property
    def in_words(self) -> str:
        """What it binds, in words."""
        bound = ", ".join(sorted(f"{kind} {namespace}/{name}" for kind, namespace, name in self.accounts))
        return f"{bound or 'nobody'} to ClusterRole {self.role}"


class _Expression(Answer):
    """A requirement of a label selector."""

    key: str
    operator: str
    values: list[str] | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case "In":
                return labels.get(self.key) in (self.values or ())
            case "NotIn":
                return labels.get(self.key) not in (self.values or ())
            case "Exists":
                return self.key in labels
            case _:
                return self.key not in labels


class Selector(Answer):
    """A label selector; one that says nothing selects everything."""

    labels: dict[str, str] = Field(default={}, alias="matchLabels")
    expressions: list[_Expression] = Field(default=[], alias="matchExpressions")

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether it selects what has these labels."""
        return self.labels.items() <= labels.items() and all(
            expression.matches(labels) for expression in self.expressions
        )


class Prometheus(_Named):
    """A Prometheus of the Prometheus Operator: what is not said selects nothing, what is empty selects everything."""

    namespace: str = Field(default="", validation_alias=AliasPath("metadata", "namespace"))
    monitors: Selector | None = Field(default=None, validation_alias=AliasPath("spec", "serviceMonitorSelector"))
    namespaces: Selector | None = Field(
        default=None, validation_alias=AliasPath("spec", "serviceMonitorNamespaceSelector")
    )

    def selects(self, labels: Mapping[str, str], namespace: str, of_namespace: Mapping[str, str]) -> bool:
        """Whether it selects a ServiceMonitor with these labels, in a namespace with those."""
        if self.monitors is None or not self.monitors.matches(labels):
            return False
        return namespace == self.namespace if self.namespaces is None else self.namespaces.matches(of_namespace)

    @property
    def in_words(self) -> str:
        """What it selects, in words."""
        if self.monitors is None:
            return "selects no ServiceMonitor"
        labels = ", ".join(f"{key}={value}" for key, value in sorted(self.monitors.labels.items())) or "all"
        where = "its own namespace" if self.namespaces is None else _namespaces(self.namespaces)
        return f"selects ServiceMonitors {labels} in {where}"


def _namespaces(selector: Selector) -> str:
    labels = ", ".join(f"{key}={value}" for key, value in sorted(selector.labels.items()))
    return f"namespaces with {labels}" if labels else "all namespaces"


@dataclass(frozen=True)
class Monitoring:
    """What is read for it.

    Attributes:
        missing_kinds: of the Prometheus Operator's, those that the stack needs and the cluster does not know.
        roles: the exporter's ClusterRole.
        bindings: its ClusterRoleBinding.
        prometheuses: all of them.
    """

    missing_kinds: tuple[str, ...] = ()
    roles: tuple[Role, ...] = ()
    bindings: tuple[RoleBinding, ...] = ()
    prometheuses: tuple[Prometheus, ...] = ()
