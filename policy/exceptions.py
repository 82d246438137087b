"""What is privileged by somebody else's design: data, with who, what, why and where upstream says so.

`python -m policy.exceptions` lists them. One that nothing needs is a finding of the policy `exceptions-in-use`.
"""

import sys
from dataclasses import dataclass

from policy.reading import Path, render
from policy.stack_platform import StackFacts
from policy.workloads import Document


@dataclass(frozen=True)
class Exemption:
    """One finding that is accepted.

    Attributes:
        rule: the rule's name.
        kind: the object's kind; token and object must agree on it.
        name: the object's name.
        path: the field, as findings write it.
        who: whose design it is.
        what: what is accepted.
        why: why it can't be otherwise.
        upstream: where that stands.
    """

    rule: str
    kind: str
    name: str
    path: str
    who: str
    what: str
    why: str
    upstream: str

    def covers(self, document: Document, rule: str, path: Path) -> bool:
        """Whether a finding is this one."""
        return self.rule == rule and self.is_about(document) and self.path == render(path)

    def is_about(self, document: Document) -> bool:
        """Whether a document is the object, as the resource itself and not as a part of another."""
        return document.path == () and document.is_only(self.kind) and document.name == self.name


def exemptions(stack: StackFacts) -> tuple[Exemption, ...]:
    """Every accepted finding of a stack."""
    return (
        Exemption(
            rule="namespaces",
            kind="Namespace",
            name=stack.operator_namespace,
            path='metadata.labels["pod-security.kubernetes.io/enforce"]',
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
            f"{each.kind} {each.name}: {each.path}\n"
            f"  rule:     {each.rule}\n"
            f"  who:      {each.who}\n"
            f"  what:     {each.what}\n"
            f"  why:      {each.why}\n"
            f"  upstream: {each.upstream}\n"
        )


if __name__ == "__main__":
    main()
