"""No role that lets its holder make itself stronger."""

from collections.abc import Iterator

from policy.findings import Violation
from policy.reading import Path, dict_of, list_of, text_of
from policy.rule import Rule
from policy.stack_platform import StackFacts
from policy.workloads import Document

_VERBS = frozenset({"escalate", "bind", "impersonate", "*"})
_RESOURCES = frozenset({"*", "*/*", "nodes/proxy", "nodes/*", "serviceaccounts/token", "serviceaccounts/*"})
_READING = frozenset({"get", "list", "watch"})
_EVERYBODY = frozenset({"system:masters", "system:anonymous", "system:unauthenticated"})
_WHY = {
    "escalate": "its holder writes itself any role",
    "bind": "its holder binds itself to any role",
    "impersonate": "its holder acts as anybody",
    "nodes/proxy": "the kubelet's interface runs commands in every pod of the node, past admission and audit",
    "serviceaccounts/token": "its holder makes tokens of other accounts",
}


def _check(document: Document, _: StackFacts) -> Iterator[Violation]:
    for field in document.fields("verbs"):
        rule = field.holder
        if "level" not in rule and ("resources" in rule or "nonResourceURLs" in rule):
            yield from _verbs(field.path[:-1], rule)
            yield from _reach(field.path[:-1], rule)
    yield from _bindings(document)


def _bindings(document: Document) -> Iterator[Violation]:
    for field in document.fields("roleRef"):
        if dict_of(field.value).get("name") == "cluster-admin":
            yield Violation((*field.path, "name"), "cluster-admin", "the role may do everything")
    for field in document.fields("subjects"):
        for index, subject in enumerate(list_of(field.value)):
            name = text_of(dict_of(subject).get("name"))
            if name in _EVERYBODY:
                yield Violation((*field.path, index, "name"), name, "the group is everything or everybody")
    for field in document.fields("clusterRoleSelectors"):
        for index, selector in enumerate(list_of(field.value)):
            if isinstance(selector, dict) and not any(selector.values()):
                yield Violation((*field.path, index), selector, "it gathers the rules of every ClusterRole")


def _verbs(path: Path, rule: dict[str, object]) -> Iterator[Violation]:
    for index, verb in enumerate(list_of(rule.get("verbs"))):
        if isinstance(verb, str) and verb.casefold() in _VERBS:
            yield Violation((*path, "verbs", index), verb, _WHY.get(verb.casefold(), ""))


def _reach(path: Path, rule: dict[str, object]) -> Iterator[Violation]:
    reads_only = _READING.issuperset(verb for verb in list_of(rule.get("verbs")) if isinstance(verb, str))
    for index, resource in enumerate(list_of(rule.get("resources"))):
        text = text_of(resource).casefold()
        if text in _RESOURCES and not (text.startswith("serviceaccounts") and reads_only):
            yield Violation((*path, "resources", index), resource, _WHY.get(text, ""))
    for key in ("apiGroups", "nonResourceURLs"):
        for index, value in enumerate(list_of(rule.get(key))):
            if value == "*":
                yield Violation((*path, key, index), value)


RULE = Rule(
    name="rbac",
    title="No role escalates, binds, impersonates, reaches kubelets, or says everything with a wildcard.",
    why="a wildcard holds what the next Kubernetes version adds, escalation included",
    remedy="name the verbs, resources and groups that are used",
    reads=frozenset(
        {
            "Role:rules",
            "ClusterRole:rules",
            "rules.verbs",
            "rules.resources",
            "rules.apiGroups",
            "rules.nonResourceURLs",
            "RoleBinding:roleRef",
            "ClusterRoleBinding:roleRef",
            "roleRef.name",
            "ClusterRoleBinding:subjects",
            "aggregationRule",
        }
    ),
    check=_check,
)
