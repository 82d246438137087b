"""No admission policy or webhook adds privilege or loses its teeth; ours keep selectors, timeout and failure policy."""

import re
from collections.abc import Iterator

from policy import grants
from policy.cel import NotALiteralError, read_literal
from policy.findings import Told, Violation
from policy.reading import Hole, Path, dict_of, list_of, text_of
from policy.rule import Rule
from policy.stack_platform import RESERVATION, StackFacts
from policy.workloads import Document

_WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_MUTATIONS = ("Assign", "AssignMetadata", "AssignImage", "ModifySet")
_OURS = "kai-anywhere"
_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_GUARDS = frozenset({"kai-anywhere-reservation-guard", "kai-anywhere-pod-guard"})
_WRITES = frozenset({"mutations", "variables"})
_MAX_TIMEOUT_SECONDS = 10
_ADDS = re.compile(
    r"\b(privileged|hostPath|host(?:Network|PID|IPC|Port|Process)|capabilities|procMount|allowPrivilegeEscalation"
    r"|runAsUser|runtimeClassName|seccompProfile|appArmorProfile|seLinuxOptions|sysctls|volumeDevices|nodeName"
    r"|ephemeralContainers|pod-security)\b",
    re.IGNORECASE,
)
_COMPUTED_PATH = re.compile(
    r"""\bpath\s*:\s*+(?!["']/metadata/(?:labels|annotations))(?:["'][^"']*["']\s*\+|(?!["']))"""
)
_FROM_PARAMETERS = re.compile(r"""\bpath\s*:\s*["']/spec[^"']*["']\s*,\s*value\s*:\s*(?:dyn\()?params\b""")
_COMPUTED_TEXT = re.compile(r"\b(?:base64\.decode|join|format|replace)\s*\(")


def _check(document: Document, stack: StackFacts) -> Iterator[Violation]:
    if document.is_kind("MutatingAdmissionPolicy"):
        yield from _mutations(document)
        if grants.writes_reservation_pods(document, stack):
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
    if document.is_kind(*_MUTATIONS):
        yield from _locations(document)
    if document.is_kind(*_WEBHOOKS) and _is_ours(document):
        for index, webhook in enumerate(list_of(document.root.get("webhooks"))):
            yield from _webhook((*document.path, "webhooks", index), dict_of(webhook))


def _overrides_binding(document: Document) -> Iterator[Violation]:
    parameters = dict_of(document.root.get("spec")).get("paramRef")
    if not isinstance(parameters, Hole) and grants.binds_overrides_elsewhere(document):
        yield Violation(
            (*document.path, "spec", "paramRef"),
            parameters,
            "the overrides would reach nodes that are not Tegra",
            "select nodes by the platform label alone",
        )


def _mutations(document: Document) -> Iterator[Violation]:
    """What is computed; an expression that writes its object out is judged as that object, by every rule."""
    for field in document.fields("expression"):
        text = text_of(field.value)
        if not _WRITES.intersection(field.path) or not text or _is_literal(text):
            continue
        if found := _ADDS.search(text):
            yield Violation(field.path, Told(found.group()))
        elif _COMPUTED_PATH.search(text) or _COMPUTED_TEXT.search(text) or _FROM_PARAMETERS.search(text):
            yield Violation(
                field.path,
                Told("a computed path or text"),
                "what the expression adds can't be known without a request",
                "write paths and values out",
            )


def _says_yes(document: Document, spec: dict[str, object], why: str) -> Iterator[Violation]:
    """Expressions that are the same for every object."""
    validations = spec.get("validations")
    path = (*document.path, "spec", "validations")
    if not isinstance(validations, Hole) and not validations:
        yield Violation(path, validations, why, "leave the policy's validations as the program writes them")
    for key, says in (("validations", "true"), ("matchConditions", "false")):
        for index, each in enumerate(list_of(spec.get(key))):
            expression = text_of(dict_of(each).get("expression")).strip().strip("()").strip()
            if expression == says:
                yield Violation((*document.path, "spec", key, index, "expression"), says, why, "remove it")


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
    """Gatekeeper's mutations name the field that they set in a text."""
    for field in document.fields("location"):
        if found := _ADDS.search(text_of(field.value)):
            yield Violation(field.path, Told(found.group()))


def _is_literal(text: str) -> bool:
    try:
        read_literal(text)
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
    if document.is_kind("ValidatingAdmissionPolicyBinding"):
        actions = spec.get("validationActions")
        if not isinstance(actions, Hole) and "Deny" not in list_of(actions):
            yield Violation((*document.path, "spec", "validationActions"), actions, why, "add Deny")
        if spec.get("matchResources"):
            path = (*document.path, "spec", "matchResources")
            yield Violation(path, spec["matchResources"], why, "remove it: the policy's own constraints are the scope")


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
    title="No admission policy adds privilege beyond the platform's grants, and our webhooks are bounded.",
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
