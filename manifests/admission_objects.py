"""The shapes of admission objects: policies and what they are made of."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from config.stack import StackSettings
from manifests.objects import Manifest

ADMISSION = "admissionregistration.k8s.io/v1"
NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""A label that the API server sets itself; nobody can give a namespace another one."""


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
    name: str, constraints: Mapping[str, object], variables: Mapping[str, str], validations: Iterable[Validation]
) -> Manifest:
    """A ValidatingAdmissionPolicy; a request that it can't judge is refused.

    Args:
        name: its name.
        constraints: which requests it judges.
        variables: expressions by name, in the order in which they build on each other.
        validations: what it asks.
    """
    return {
        "apiVersion": ADMISSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": dict(constraints),
            "variables": [{"name": each, "expression": expression} for each, expression in variables.items()],
            "validations": [each.manifest() for each in validations],
        },
    }


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
    return f"system:serviceaccount:{settings.kai.namespace}:binder"
