"""What is privileged by somebody else's design: data, with who, what, why and where upstream says so.

`python -m policy.exceptions` lists them. One that nothing needs is a finding of the policy `exceptions-in-use`.
"""

import sys
from dataclasses import dataclass

from policy.findings import Violation, show
from policy.reading import render
from policy.stack_platform import StackFacts
from policy.workloads import Document


@dataclass(frozen=True)
class Exemption:
    """One finding that is accepted.

    Attributes:
        rule: the rule's name.
        kind: the object's kind; token and object must agree on it.
        name: the object's name.
        namespace: the object's namespace; empty for what has none.
        path: the field, as findings write it.
        found: its value, as findings show it: no other value of the field is accepted.
        due: whether this stack must have a use for it; where not, it is unused only beside its object.
        who: whose design it is.
        what: what is accepted.
        why: why it can't be otherwise.
        upstream: where that stands.
    """

    rule: str
    kind: str
    name: str
    namespace: str
    path: str
    found: str
    due: bool
    who: str
    what: str
    why: str
    upstream: str

    def covers(self, document: Document, rule: str, violation: Violation) -> bool:
        """Whether a finding is this one."""
        same = self.path == render(violation.path) and self.found == show(violation.found)
        return self.rule == rule and same and self.is_about(document)

    def is_about(self, document: Document) -> bool:
        """Whether a document is the object, as the resource itself and not as a part of another."""
        own = (document.namespace, document.name) == (self.namespace, self.name)
        return own and document.path == () and document.is_only(self.kind)


def exemptions(stack: StackFacts) -> tuple[Exemption, ...]:
    """Every accepted finding of a stack."""
    return (
        Exemption(
            rule="namespaces",
            kind="Namespace",
            name=stack.operator_namespace,
            namespace="",
            path='metadata.labels["pod-security.kubernetes.io/enforce"]',
            found="privileged",
            due=stack.operator_installed,
            who="NVIDIA GPU Operator v26.7.0",
            what="its namespace enforces the Pod Security level privileged",
            why="its operands install the container toolkit on the node and read devices: privileged pods with host "
            "paths, made by the operator at run time",
            upstream="https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/getting-started.html",
        ),
    )


def main() -> None:
    """Print every exception of a stack with default names."""
    for each in exemptions(StackFacts()):
        sys.stdout.write(
            f"{each.kind} {f'{each.namespace}/' if each.namespace else ''}{each.name}: {each.path}\n"
            f"  found:    {each.found}\n"
            f"  rule:     {each.rule}\n"
            f"  who:      {each.who}\n"
            f"  what:     {each.what}\n"
            f"  why:      {each.why}\n"
            f"  upstream: {each.upstream}\n"
        )


if __name__ == "__main__":
    main()
