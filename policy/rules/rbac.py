"""No role that lets its holder make itself stronger."""

import re
from collections.abc import Iterator

from policy.exceptions import exemptions
from policy.findings import Told, Violation
from policy.reading import Path, dict_of, list_of, text_of
from policy.rule import Rule
from policy.stack_platform import RESERVATION, StackFacts
from policy.workloads import Document

_VERBS = frozenset({"escalate", "bind", "impersonate", "*"})
_IMPERSONATION = ("impersonate:", "impersonate-on:")
"""Beginnings of the verbs of constrained impersonation: as whom, and for what (KEP-5284)."""
_RESOURCES = frozenset(
    {"*", "*/*", "nodes/proxy", "nodes/*", "*/proxy", "serviceaccounts/token", "serviceaccounts/*", "*/token"}
)
_READING = frozenset({"get", "list", "watch"})
_CHANGING = frozenset({"update", "patch"})
_NAMESPACES = frozenset({"namespaces", "namespaces/status", "namespaces/finalize", "*/status", "*/finalize"})
"""The API server takes labels from each of them (Kubernetes v1.36)."""
_EVERYBODY = frozenset(
    {
        *("system:masters", "system:anonymous", "system:unauthenticated", "system:authenticated"),
        "system:serviceaccounts",
    }
)
_PUBLIC = frozenset({"system:basic-user", "system:discovery", "system:public-info-viewer"})
"""Roles that Kubernetes itself gives to everybody who is authenticated."""
_SYSTEM_ROLES = re.compile(
    r"cluster-admin|kubeadm:cluster-admins|system:(?:controller:.*|kube-controller-manager|node|kubelet-api-admin"
    r"|persistent-volume-provisioner|aggregate-to-(?:admin|edit))"
)
_APPROVERS = re.compile(r"system:certificates\.k8s\.io:(?:kube-apiserver-client(?:-kubelet)?|legacy-unknown)-approver")
_SERVING_SIGNER = "kubernetes.io/kubelet-serving"
"""Kubernetes' only signer whose certificates log nobody in at the API server."""
_KUBERNETES_LABEL = "kubernetes.io/bootstrapping"
"""On every role that Kubernetes brings, cluster-admin among them."""
_FOR_ONE_NAMESPACE = frozenset({"admin", "edit"})
_SYSTEM_NAMESPACE = "kube-system"
"""Its pods may be privileged, and its service accounts are those of Kubernetes' controllers."""
_SYSTEM_WHY = "the role is a controller's own: whoever has it reads secrets, or starts pods in every namespace"
_EDIT_WHY = "for the whole cluster it reads every secret and acts as every service account, the controllers' included"
PRIVILEGED_NAMESPACE_WHY = (
    "pods of this namespace may be privileged: the role's holder starts them, and acts as every service account there"
)
PRIVILEGED_NAMESPACE_REMEDY = "write a role with the verbs and resources that are used, or bind it in another namespace"
_APPROVE_WHY = "its holder lets itself have a certificate of any user"
_ROLE_REMEDY = "write a role with the verbs and resources that are used"
_EVERYBODY_WHY = "the group is everything or everybody"
_EVERYBODY_REMEDY = "name the accounts or the team's group"
_IMPERSONATE_WHY = "its holder acts as anybody"
KUBELET_WHY = "the kubelet's interface runs commands in every pod of the node, past admission and audit"
_ACCOUNTS_WHY = "its holder makes tokens of other accounts"
NAMESPACES_WHY = "its holder lowers the Pod Security level of a namespace, or takes the cluster's guard away from it"
NAMESPACES_REMEDY = "leave the verb out, and set the labels of namespaces in the program"
_WHY = {
    "escalate": "its holder writes itself any role",
    "bind": "its holder binds itself to any role",
    "impersonate": _IMPERSONATE_WHY,
    "nodes/proxy": KUBELET_WHY,
    "*/proxy": KUBELET_WHY,
    "serviceaccounts/token": _ACCOUNTS_WHY,
    "*/token": _ACCOUNTS_WHY,
}


def _check(document: Document, stack: StackFacts) -> Iterator[Violation]:
    # Kyverno has a kind of this name too, and may write roles.
    is_audit_policy = document.is_only("Policy") and text_of(document.root.get("apiVersion")).startswith(
        "audit.k8s.io/"
    )
    for field in document.fields("verbs"):
        rule = field.holder
        # The API servers' policy of audit logs has rules of the same keys; in a role, `level` is dropped in silence.
        audits = "level" in rule and is_audit_policy
        if not audits and ("resources" in rule or "nonResourceURLs" in rule):
            yield from _verbs(field.path[:-1], rule)
            yield from _reach(field.path[:-1], rule)
            yield from _relabels(field.path[:-1], rule)
    yield from _bindings(document, stack)
    yield from _aggregations(document)


def _bindings(document: Document, stack: StackFacts) -> Iterator[Violation]:
    for field in document.fields("roleRef"):
        role = text_of(dict_of(field.value).get("name"))
        if _SYSTEM_ROLES.fullmatch(role):
            why = "the role may do everything" if role.endswith(("cluster-admin", "admins")) else _SYSTEM_WHY
            yield Violation((*field.path, "name"), Told(role), why, _ROLE_REMEDY)
        elif _APPROVERS.fullmatch(role):
            yield Violation((*field.path, "name"), Told(role), _APPROVE_WHY, _ROLE_REMEDY)
        elif role in _FOR_ONE_NAMESPACE and document.is_kind("ClusterRoleBinding"):
            yield Violation((*field.path, "name"), Told(role), _EDIT_WHY, "bind it in one namespace, by a RoleBinding")
        elif (
            role in _FOR_ONE_NAMESPACE
            and dict_of(field.value).get("kind") != "Role"
            and document.is_kind("RoleBinding")
            and document.namespace in _privileged_namespaces(stack)
        ):
            path = (*field.path, "name")
            yield Violation(path, Told(role), PRIVILEGED_NAMESPACE_WHY, PRIVILEGED_NAMESPACE_REMEDY)
    roles = {text_of(dict_of(field.value).get("name")) for field in document.fields("roleRef")}
    everybody = _EVERYBODY - {"system:authenticated"} if roles and roles <= _PUBLIC else _EVERYBODY
    for field in document.fields("subjects"):
        for index, subject in enumerate(list_of(field.value)):
            name = text_of(dict_of(subject).get("name"))
            if name in everybody:
                yield Violation((*field.path, index, "name"), Told(name), _EVERYBODY_WHY, _EVERYBODY_REMEDY)


def _privileged_namespaces(stack: StackFacts) -> set[str]:
    """Namespaces whose pods may be privileged, as far as their names say it: a binding tells no other label."""
    by_design = {exemption.name for exemption in exemptions(stack) if exemption.rule == "namespaces"}
    own = {
        exception.name
        for exception in stack.accepted
        if exception.rule == "namespaces" and exception.value == "privileged"
    }
    return by_design | own | {_SYSTEM_NAMESPACE} | ({RESERVATION} if stack.grants else set())


def _aggregations(document: Document) -> Iterator[Violation]:
    for field in document.fields("clusterRoleSelectors"):
        for index, selector in enumerate(list_of(field.value)):
            if isinstance(selector, dict) and not _selects_some(selector):
                why = "it gathers the rules of ClusterRoles that nobody marked for it, cluster-admin's among them"
                yield Violation((*field.path, index), selector, why, "select a label of your own")


def _selects_some(selector: dict[str, object]) -> bool:
    """Whether roles need a label for it that is not Kubernetes' own."""
    requirements = map(dict_of, list_of(selector.get("matchExpressions")))
    asked = {
        text_of(requirement.get("key"))
        for requirement in requirements
        if requirement.get("operator") in {"In", "Exists"}
    }
    return bool((asked | dict_of(selector.get("matchLabels")).keys()) - {_KUBERNETES_LABEL})


def _is_of_one_product(rule: dict[str, object]) -> bool:
    """Whether every group is a product's own: a wildcard there holds its own objects, and cannot grow."""
    groups = [text_of(group) for group in list_of(rule.get("apiGroups"))]
    return bool(groups) and all("." in group and not group.endswith((".k8s.io", "kubernetes.io")) for group in groups)


def _verbs(path: Path, rule: dict[str, object]) -> Iterator[Violation]:
    for index, verb in enumerate(list_of(rule.get("verbs"))):
        wide = verb == "*" and _is_of_one_product(rule)
        name = text_of(verb).casefold()
        if name.startswith(_IMPERSONATION):
            shown = Told(f"{name.partition(':')[0]}:...")
            yield Violation((*path, "verbs", index), shown, _IMPERSONATE_WHY)
        elif name in _VERBS and not wide:
            yield Violation((*path, "verbs", index), verb, _WHY.get(name, ""))
        elif name == "approve" and _logs_in(rule):
            remedy = f"name the signer under resourceNames, such as {_SERVING_SIGNER}"
            yield Violation((*path, "verbs", index), verb, _APPROVE_WHY, remedy)


def _relabels(path: Path, rule: dict[str, object]) -> Iterator[Violation]:
    """Verbs by which the holder labels namespaces anew: the level and the guard go by labels."""
    resources = {text_of(resource).casefold() for resource in list_of(rule.get("resources"))}
    groups = {text_of(group) for group in list_of(rule.get("apiGroups"))} or {""}
    if _NAMESPACES.isdisjoint(resources) or groups.isdisjoint({"", "*"}):
        return
    for index, verb in enumerate(list_of(rule.get("verbs"))):
        if text_of(verb).casefold() in _CHANGING:
            yield Violation((*path, "verbs", index), verb, NAMESPACES_WHY, NAMESPACES_REMEDY)


def _logs_in(rule: dict[str, object]) -> bool:
    """Whether a rule is about signers of certificates that the API server takes for users."""
    signers = [text_of(name) for name in list_of(rule.get("resourceNames"))] or [""]
    return (
        "signers" in list_of(rule.get("resources"))
        and "certificates.k8s.io" in list_of(rule.get("apiGroups"))
        and any(not name or (name.startswith("kubernetes.io/") and name != _SERVING_SIGNER) for name in signers)
    )


def _reach(path: Path, rule: dict[str, object]) -> Iterator[Violation]:
    reads_only = _READING.issuperset(verb for verb in list_of(rule.get("verbs")) if isinstance(verb, str))
    own = _is_of_one_product(rule)
    for index, resource in enumerate(list_of(rule.get("resources"))):
        text = text_of(resource).casefold()
        of_named = text == "serviceaccounts/token" and bool(rule.get("resourceNames"))
        harmless = of_named or (text.startswith("serviceaccounts") and reads_only) or (text.startswith("*") and own)
        if text in _RESOURCES and not harmless:
            yield Violation((*path, "resources", index), resource, _WHY.get(text, ""))
    for key in ("apiGroups", "nonResourceURLs"):
        for index, value in enumerate(list_of(rule.get(key))):
            if value == "*":
                yield Violation((*path, key, index), value)


RULE = Rule(
    name="rbac",
    title="No role escalates, binds, impersonates, opens namespaces, reaches kubelets, or says all with a wildcard.",
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
            "clusterRoleSelectors",
        }
    ),
    check=_check,
)
