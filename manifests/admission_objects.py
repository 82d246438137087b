"""The shapes of admission objects: policies and what they are made of."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

from config.stack import StackSettings
from manifests.objects import Manifest

ADMISSION_GROUP = "admissionregistration.k8s.io"
ADMISSION = f"{ADMISSION_GROUP}/v1"
NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""A label that the API server sets itself; nobody can give a namespace another one."""
Parameter: TypeAlias = Literal["Node", "Service"]
"""The kinds of parameters that policies may have: some that the API server watches for itself, to admit pods and to
find webhooks (v1.34, v1.36).

Symptom with another one of the core group, such as ConfigMap: once no binding has named one for a second, as after
`pulumi destroy`, the API server follows them for policies no more until it is restarted. After the next `up` requests
are refused with `no params found for policy binding`, or the policy reads objects of before. Seen with v1.36.3.
Upstream: https://github.com/kubernetes/kubernetes/issues/130887 is open, as its pull request 141015 is.
"""
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Validation:
    """One condition that a request must meet.

    Attributes:
        expression: true where it does.
        message: for a request that does not.
        forbidden: whether the refusal is 403; otherwise it is 422.
        message_expression: CEL of a message that says more; where it fails, `message` is shown.
    """

    expression: str
    message: str
    forbidden: bool = True
    message_expression: str = ""

    def manifest(self) -> Manifest:
        """As the policy has it."""
        return (
            {"expression": self.expression, "message": self.message}
            | ({"reason": "Forbidden"} if self.forbidden else {})
            | ({"messageExpression": self.message_expression} if self.message_expression else {})
        )


def validating_policy(
    name: str,
    constraints: Mapping[str, object],
    variables: Mapping[str, str],
    validations: Iterable[Validation],
    conditions: Mapping[str, str] = _NONE,
) -> Manifest:
    """A ValidatingAdmissionPolicy; a request that it can't judge is refused.

    Args:
        name: its name.
        constraints: which requests it judges.
        variables: expressions by name, in the order in which they build on each other.
        validations: what it asks.
        conditions: further conditions of the requests that it judges, by name.
    """
    spec = {"failurePolicy": "Fail", "matchConstraints": dict(constraints)} | _named(conditions, variables)
    return _object(
        "ValidatingAdmissionPolicy", name, spec | {"validations": [validation.manifest() for validation in validations]}
    )


def mutating_policy(  # noqa: PLR0913 - the fields of its kind
    settings: StackSettings,
    name: str,
    constraints: Mapping[str, object],
    mutations: Iterable[Manifest],
    *,
    conditions: Mapping[str, str] = _NONE,
    variables: Mapping[str, str] = _NONE,
    parameter: Parameter | None = None,
) -> Manifest:
    """A MutatingAdmissionPolicy; a request that it can't change is refused.

    Args:
        settings: the stack's settings, which say the version that its cluster serves.
        name: its name.
        constraints: which requests it changes.
        mutations: of `apply_configuration` and `json_patch`.
        conditions: further conditions of these requests, by name.
        variables: expressions by name, in the order in which they build on each other.
        parameter: the kind of its parameters, or None.
    """
    spec: Manifest = {"failurePolicy": "Fail", "reinvocationPolicy": "IfNeeded"}
    if parameter is not None:
        spec["paramKind"] = {"apiVersion": "v1", "kind": parameter}
    spec |= {"matchConstraints": dict(constraints)} | _named(conditions, variables)
    return _object("MutatingAdmissionPolicy", name, spec | {"mutations": list(mutations)}, _mutating(settings))


def apply_configuration(expression: str) -> Manifest:
    """A mutation that merges an object, lists by their keys."""
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def json_patch(expression: str) -> Manifest:
    """A mutation by the operations of RFC 6902."""
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def mutating_binding(settings: StackSettings, policy: str, parameters: Mapping[str, object] | None = None) -> Manifest:
    """Put a MutatingAdmissionPolicy into force, under its name.

    Args:
        settings: the stack's settings, which say the version that its cluster serves.
        policy: its name.
        parameters: which parameters it has, or None.
    """
    spec = {"policyName": policy} | ({} if parameters is None else {"paramRef": dict(parameters)})
    return _object("MutatingAdmissionPolicyBinding", policy, spec, _mutating(settings))


def deny_binding(policy: str) -> Manifest:
    """Put a ValidatingAdmissionPolicy into force, under its name: what it finds is refused."""
    spec = {"policyName": policy, "validationActions": ["Deny"]}
    return _object("ValidatingAdmissionPolicyBinding", policy, spec)


def outside_of(namespaces: Sequence[str]) -> dict[str, object]:
    """Select every namespace but these."""
    return {"matchExpressions": [{"key": NAMESPACE_NAME, "operator": "NotIn", "values": list(namespaces)}]}


def requests(operations: Sequence[str], resources: Sequence[str], group: str = "") -> dict[str, object]:
    """The requests of a policy: operations on resources of a group, by default the core one."""
    return {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": list(operations),
        "resources": list(resources),
    }


def binder(settings: StackSettings) -> str:
    """The user name of KAI's binder, which creates the reservation pods."""
    return f"system:serviceaccount:{settings.kai.namespace}:{settings.kai.binder_service_account}"


POD_CREATION = requests(["CREATE"], ["pods"])
"""Pods as they are created: their containers can't change later, and KAI and Jobs update pods."""
HAS_CONTAINERS: Mapping[str, str] = MappingProxyType({"has-containers": "object.spec.containers != null"})
"""A condition of policies that read a pod's containers. Kubernetes refuses a pod without any after all changes; until
then the list is null, and CEL's error would be told in place of that refusal."""


def _mutating(settings: StackSettings) -> str:
    version = settings.cluster.policies_version
    if version is None:
        raise ValueError("by these settings no API server serves MutatingAdmissionPolicy: a webhook is the carrier")
    return f"{ADMISSION_GROUP}/{version}"


def _object(kind: str, name: str, spec: Mapping[str, object], version: str = ADMISSION) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}


def _named(conditions: Mapping[str, str], variables: Mapping[str, str]) -> Manifest:
    """Match conditions and variables; the fields are left out where there are none."""
    lists = {"matchConditions": conditions, "variables": variables}
    return {
        field: [{"name": name, "expression": expression} for name, expression in expressions.items()]
        for field, expressions in lists.items()
        if expressions
    }
