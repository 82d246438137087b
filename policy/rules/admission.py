"""No admission policy or webhook adds privilege or loses its teeth; ours keep selectors, timeout and failure policy."""

import re
from collections.abc import Iterator

from pod_checks import table
from pod_checks.language import Place
from policy import grants
from policy.cel import NotALiteralError, computes_fields, is_always_true, read_choices, takes_objects
from policy.findings import Told, Violation, told_name
from policy.interpreter import fields_read
from policy.reading import Hole, Path, dict_of, list_of, names, text_of
from policy.rule import Rule
from policy.stack_platform import OVERRIDES, RESERVATION, StackFacts
from policy.workloads import MUTATING, Document

_WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_MUTATIONS = ("Assign", "AssignMetadata", "AssignImage", "ModifySet")
_OURS = "kai-anywhere"
_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_GUARDS = frozenset({"kai-anywhere-reservation-guard", "kai-anywhere-pod-guard"})
_WRITES = frozenset({"mutations", "variables"})
_SCOPES: dict[str, tuple[dict[str, object], ...]] = {
    "kai-anywhere-reservation-guard": ({"matchLabels": {"kubernetes.io/metadata.name": RESERVATION}},),
    "kai-anywhere-pod-guard": ({"matchLabels": {"kai-anywhere.io/pod-guard": "enforce"}},),
}
"""The namespaces of each guard; the second one may also have all but some."""
_ALL_BUT_SOME = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": []}
_GUARD_RESOURCES = frozenset({"validatingadmissionpolicies", "validatingadmissionpolicybindings"})
_TAKE_AWAY = frozenset({"delete", "deletecollection", "update", "patch"})
_MAX_TIMEOUT_SECONDS = 10
_ELSE_ADDED = frozenset(
    {
        *("allowPrivilegeEscalation", "runAsUser", "runtimeClassName", "nodeName", "ephemeralContainers"),
        "pod-security",
        table.VISIBLE_DEVICES,
    }
)
_ADDED = _ELSE_ADDED.union(
    shape.partition(".")[0]
    for rule in ("privileged", "host-paths", "host-access", "devices")
    for shape in fields_read(rule) - {"httpGet.host", "tcpSocket.host"}
)
"""What a table's check forbids is known by these words; probes are common, so they are none."""
_ADDED_ANNOTATIONS = [
    field.rpartition("*")[2].strip("/.")
    for check in table.CHECKS
    if check.place is Place.ANNOTATIONS
    for field in check.fields
]
_ADDS = re.compile(rf"\b({'|'.join(map(re.escape, sorted({*_ADDED, *_ADDED_ANNOTATIONS})))})\b", re.IGNORECASE)
_ROLES = "rules|roleRef|subjects|aggregationRule"
_WRITES_ROLES = re.compile(rf"(?:\bObject\.|[\"']/)(?:{_ROLES})\b|\b(?:{_ROLES})\s*:")
"""A policy's expression that writes who may do what, computed; what it writes out, the rule `rbac` judges."""
_AROUND = {*_ROLES.split("|"), "verbs", "spec", "template", "containers", "securityContext", "volumes"}
_COMPUTED_FIELDS = frozenset(map(str.casefold, _ADDED | _AROUND))
_UNKNOWABLE = "what the expression adds can't be known without a request"
_OWN_SCOPE = "the policy's own constraints are the scope"
_AS_WRITTEN = "leave the policy's constraints as the program writes them"
_FREE = frozenset({"labels", "annotations"})
_INDEX = re.compile(r"{{\s*elementIndex\d*\s*}}|/metadata/(?:labels|annotations)/.*")
"""What may be computed in the path of a patch by Kyverno."""
_COMPUTED_TEXT = re.compile(r"\b(?:base64\.decode|join|format|replace)\s*\(")


def _check(document: Document, stack: StackFacts) -> Iterator[Violation]:
    if document.is_kind(*MUTATING):
        yield from _mutations(document)
    yield from _templates(document)
    yield from _takers(document)
    if document.is_kind("MutatingAdmissionPolicy") and grants.writes_reservation_pods(document, stack):
        yield Violation(
            (*document.path, "spec", "matchConstraints"),
            dict_of(document.root.get("spec")).get("matchConstraints"),
            "it also rewrites KAI's reservation pods, which are privileged on the stack's Jetsons",
            f"leave their namespace out: namespaceSelector, {_NAMESPACE_NAME} NotIn [{RESERVATION}]",
        )
    if document.is_kind("MutatingAdmissionPolicyBinding"):
        yield from _overrides_binding(document)
    if document.is_kind("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        yield from _guard(document)
    if document.is_kind("MutatingWebhookConfiguration"):
        yield from _outside(document)
    if document.is_kind(*_MUTATIONS, "HelmRelease"):
        yield from _locations(document)
    if document.is_kind(*_WEBHOOKS) and _is_ours(document):
        for index, webhook in enumerate(list_of(document.root.get("webhooks"))):
            yield from _webhook((*document.path, "webhooks", index), dict_of(webhook))


def _overrides_binding(document: Document) -> Iterator[Violation]:
    spec = dict_of(document.root.get("spec"))
    parameters = spec.get("paramRef")
    if document.name.startswith(OVERRIDES) and document.name != spec.get("policyName"):
        yield from _elsewhere(document, spec, "reservation pods of Jetsons would lack what they need")
    if not isinstance(parameters, Hole) and grants.binds_overrides_elsewhere(document):
        yield Violation(
            (*document.path, "spec", "paramRef"),
            parameters,
            "the overrides would reach nodes that are not Tegra",
            "select nodes by the platform label alone",
        )


def _mutations(document: Document) -> Iterator[Violation]:
    """What is computed; an expression that writes its objects out is judged as these, by every rule."""
    parameter = dict_of(dict_of(document.root.get("spec")).get("paramKind"))
    kind = text_of(parameter.get("kind")) if parameter.get("apiVersion") == "v1" else ""
    groups = {text_of(group) for entry in document.fields("apiGroups") for group in list_of(entry.value)}
    for field in document.fields("expression"):
        text = text_of(field.value)
        literal = _is_literal(text)
        # A patch says only in its path where its value goes, or it copies one.
        if not _WRITES.intersection(field.path) or not text or (literal and "JSONPatch" not in text):
            continue
        if match := _ADDS.search(text):
            yield Violation(field.path, Told(match.group()))
        elif literal:
            continue
        elif (
            computes_fields(text)
            or _COMPUTED_TEXT.search(text)
            or (not groups.isdisjoint({"*", "rbac.authorization.k8s.io"}) and _WRITES_ROLES.search(text))
        ):
            yield Violation(field.path, Told("a computed path or text"), _UNKNOWABLE, "write paths and values out")
        elif takes_objects(text, kind):
            yield Violation(
                field.path,
                Told("an object from elsewhere"),
                _UNKNOWABLE,
                "write the object out; take texts alone from a parameter: with string(), or in a comparison",
            )


def _templates(document: Document) -> Iterator[Violation]:
    """Kyverno's variables in the name of a field that it sets, or for one of ours, which may be a copy as well."""
    if "mutate" not in document.keys and "mutate" not in names(document.path):
        return
    for key, fields in document.keys.items():
        for field in fields:
            where = names(field.path)
            computed = "{{" in key or (key == "path" and "{{" in _INDEX.sub("", text_of(field.value)))
            if key in _COMPUTED_FIELDS:
                # What a patch copies has no value of its own; the field around it has one.
                copied = field.holder.get("op") in {"copy", "move"} and not isinstance(field.value, dict)
                computed = copied or "{{" in text_of(field.value)
            if computed and "mutate" in where and not _FREE.intersection(where):
                yield Violation(field.path, Told("a computed path or value"), _UNKNOWABLE, "write paths and values out")


def _takers(document: Document) -> Iterator[Violation]:
    """Roles that may take the guards away; what a wildcard allows is the rule `rbac`'s."""
    for field in document.fields("verbs"):
        rule = field.holder
        resources = {text_of(resource).casefold() for resource in list_of(rule.get("resources"))}
        only = rule.get("resourceNames")
        if _GUARD_RESOURCES.isdisjoint(resources) or (
            list_of(only) and _GUARDS.isdisjoint(map(text_of, list_of(only)))
        ):
            continue
        for index, verb in enumerate(list_of(field.value)):
            if text_of(verb).casefold() in _TAKE_AWAY:
                yield Violation(
                    (*field.path, index),
                    verb,
                    "its holder takes the guards away, or what they refuse",
                    "name the policies that it is for under resourceNames, or remove the verb",
                )


def _elsewhere(document: Document, spec: dict[str, object], why: str) -> Iterator[Violation]:
    path = (*document.path, "spec", "policyName")
    policy_name = told_name(spec.get("policyName"))
    yield Violation(path, policy_name, why, "bind the policy of the binding's own name")


def _says_yes(document: Document, spec: dict[str, object], why: str) -> Iterator[Violation]:
    """Validations that are the same for every object, and objects that are left out: ours have no condition."""
    validations = spec.get("validations")
    path = (*document.path, "spec", "validations")
    if not isinstance(validations, Hole) and not validations:
        yield Violation(path, validations, why, "leave the policy's validations as the program writes them")
    variables = {
        text_of(dict_of(entry).get("name")): text_of(dict_of(entry).get("expression"))
        for entry in list_of(spec.get("variables"))
    }
    for key, what in (("validations", "the same for every object"), ("matchConditions", "a condition")):
        for index, entry in enumerate(list_of(spec.get(key))):
            expression = text_of(dict_of(entry).get("expression"))
            if key == "matchConditions" or is_always_true(expression, variables):
                where = (*document.path, "spec", key, index, "expression")
                yield Violation(where, Told(what), why, "remove it")


def _outside(document: Document) -> Iterator[Violation]:
    for index, webhook in enumerate(list_of(document.root.get("webhooks"))):
        client = dict_of(dict_of(webhook).get("clientConfig"))
        if client.get("url") and not isinstance(client["url"], Hole):
            yield Violation(
                (*document.path, "webhooks", index, "clientConfig", "url"),
                client["url"],
                "a server outside the cluster rewrites objects after every review",
                "let a service of the cluster answer (clientConfig.service)",
            )


def _locations(document: Document) -> Iterator[Violation]:
    """Gatekeeper's mutations name the field that they set in a text, and Flux one whose value is in the cluster."""
    for field in document.fields("location", "targetPath"):
        if privilege := _ADDS.search(text_of(field.value)):
            yield Violation(field.path, Told(privilege.group()))


def _is_literal(text: str) -> bool:
    try:
        read_choices(text)
    except NotALiteralError:
        return False
    return True


def _guard(document: Document) -> Iterator[Violation]:
    if document.name not in _GUARDS:
        return
    spec = dict_of(document.root.get("spec"))
    why = "the guard would let through what it forbids"
    if document.is_kind("ValidatingAdmissionPolicy") and spec.get("failurePolicy", "Fail") != "Fail":
        yield Violation((*document.path, "spec", "failurePolicy"), spec.get("failurePolicy"), why, "set it to Fail")
    if document.is_kind("ValidatingAdmissionPolicy"):
        yield from _says_yes(document, spec, why)
        yield from _scope(document, spec, why)
    if document.is_kind("ValidatingAdmissionPolicyBinding"):
        if spec.get("policyName") != document.name:
            yield from _elsewhere(document, spec, why)
        actions = spec.get("validationActions")
        if not isinstance(actions, Hole) and "Deny" not in list_of(actions):
            yield Violation((*document.path, "spec", "validationActions"), actions, why, "add Deny")
    for key in ("matchResources", "paramRef", "paramKind"):
        if spec.get(key):
            yield Violation((*document.path, "spec", key), spec[key], why, f"remove it: {_OWN_SCOPE}")


def _scope(document: Document, spec: dict[str, object], why: str) -> Iterator[Violation]:
    """What a guard looks at: never less than pods that are created or changed, in its own namespaces."""
    constraints, path = dict_of(spec.get("matchConstraints")), (*document.path, "spec", "matchConstraints")
    for key in ("excludeResourceRules", "objectSelector"):
        if constraints.get(key):
            yield Violation((*path, key), constraints[key], why, f"remove it: {_OWN_SCOPE}")
    selector = constraints.get("namespaceSelector")
    if selector not in _SCOPES[document.name] and not (document.name.endswith("pod-guard") and _leaves_out(selector)):
        yield Violation((*path, "namespaceSelector"), selector, why, _AS_WRITTEN)
    operations = {
        operation
        for rule in map(dict_of, list_of(constraints.get("resourceRules")))
        if {"", "*"}.intersection(map(text_of, list_of(rule.get("apiGroups"))))
        and {"v1", "*"}.intersection(map(text_of, list_of(rule.get("apiVersions"))))
        and {"pods", "*", "*/*"}.intersection(map(text_of, list_of(rule.get("resources"))))
        and not rule.get("resourceNames")
        # A pod is no object of the cluster's scope, so `Cluster` says none.
        and rule.get("scope", "*") in {"*", "Namespaced"}
        for operation in map(text_of, list_of(rule.get("operations")))
    }
    if not operations & {"*"} and not {"CREATE", "UPDATE"} <= operations:
        yield Violation((*path, "resourceRules"), constraints.get("resourceRules"), why, _AS_WRITTEN)


def _leaves_out(selector: object) -> bool:
    """Whether a selector takes all namespaces but some by name."""
    expressions = [
        dict_of(requirement) | {"values": []} for requirement in list_of(dict_of(selector).get("matchExpressions"))
    ]
    return set(dict_of(selector)) == {"matchExpressions"} and expressions == [_ALL_BUT_SOME]


def _is_ours(document: Document) -> bool:
    labels = dict_of(document.metadata.get("labels"))
    namespaces = {
        text_of(dict_of(dict_of(dict_of(webhook).get("clientConfig")).get("service")).get("namespace"))
        for webhook in list_of(document.root.get("webhooks"))
    }
    part_of = labels.get("app.kubernetes.io/part-of")
    return document.name.startswith(_OURS) or part_of == _OURS or not namespaces.isdisjoint({_OURS, RESERVATION})


def _webhook(path: Path, webhook: dict[str, object]) -> Iterator[Violation]:
    if not webhook.get("namespaceSelector") or not webhook.get("objectSelector"):
        missing = "namespaceSelector" if not webhook.get("namespaceSelector") else "objectSelector"
        yield Violation(
            (*path, missing),
            webhook.get(missing),
            "while its server is down, every matching object of the cluster is refused or passes unchanged",
            "select only the namespaces and objects that it is for",
        )
    timeout = webhook.get("timeoutSeconds")
    if not isinstance(timeout, Hole) and not (
        isinstance(timeout, int | float) and not isinstance(timeout, bool) and 0 < timeout <= _MAX_TIMEOUT_SECONDS
    ):
        yield Violation(
            (*path, "timeoutSeconds"), timeout, "a slow server holds up the API server", "set at most 10 seconds"
        )
    failure = webhook.get("failurePolicy")
    if not isinstance(failure, Hole) and failure != "Fail":
        yield Violation(
            (*path, "failurePolicy"),
            failure,
            "while its server is down, objects pass without what it adds or checks",
            "set it to Fail",
        )
    for key, value in webhook.items():
        if isinstance(value, Hole) and key in {
            "namespaceSelector",
            "objectSelector",
            "timeoutSeconds",
            "failurePolicy",
        }:
            yield Violation((*path, key), value)


RULE = Rule(
    name="admission",
    title="No admission policy adds privilege beyond the platform's grants; guards stay, and our webhooks are bounded.",
    why="it changes pods after every review, so that each of them may come out privileged",
    remedy="remove it; on Tegra, reservation.overrides adds what reservation pods need",
    reads=frozenset(
        {
            "MutatingAdmissionPolicy:spec",
            "MutatingAdmissionPolicy:spec.mutations",
            "MutatingAdmissionPolicy:applyConfiguration.expression",
            "MutatingAdmissionPolicy:jsonPatch.expression",
            "MutatingAdmissionPolicy:applyConfiguration",
            "MutatingAdmissionPolicy:jsonPatch",
            "MutatingAdmissionPolicyBinding:spec.paramRef",
            "ValidatingAdmissionPolicyBinding:spec.validationActions",
            "MutatingWebhookConfiguration:webhooks",
        }
    ),
    check=_check,
)
