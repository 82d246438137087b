"""What is privileged by somebody else's design: data, with who, what, why and where upstream says so.

`python -m policy.exceptions` lists them. One that nothing needs is a finding of the policy `exceptions-in-use`.
"""

import json
import sys
from dataclasses import dataclass

from policy.reading import Path, dict_of, list_of, render
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
        values: what the field may hold, as JSON with sorted keys; empty means anything.
        namespace: the object's namespace; empty where the kind has none, or the name is enough.
        due: whether this stack must have a use for it; where not, it is unused only beside its object.
    """

    rule: str
    kind: str
    name: str
    path: str
    who: str
    what: str
    why: str
    upstream: str
    values: tuple[str, ...] = ()
    namespace: str = ""
    due: bool = True

    def covers(self, document: Document, rule: str, path: Path) -> bool:
        """Whether a finding is this one."""
        if self.rule != rule or not self.is_about(document) or self.path != render(path):
            return False
        return not self.values or _text_at(document.root, path) in self.values

    def is_about(self, document: Document) -> bool:
        """Whether a document is the object, as the resource itself and not as a part of another."""
        same_namespace = not self.namespace or document.namespace == self.namespace
        return same_namespace and document.path == () and document.is_only(self.kind) and document.name == self.name


def _text_at(root: object, path: Path) -> str:
    """What stands at a place that a rule found; a value that can't be read is equal to none that is accepted."""
    for step in path:
        root = list_of(root)[step] if isinstance(step, int) else dict_of(root).get(step)
    return json.dumps(root, sort_keys=True, default=repr)


_FRONTENDS = "gvirtus-frontends"
_KUBELETS = ("/var/lib/kubelet", "/var/snap/microk8s/common/var/lib/kubelet")
_PLUGIN = "Kubernetes' device plugins, here squat/generic-device-plugin 0.2.0"
_SOCKET = (
    "a device plugin registers at the kubelet by a socket in this folder, and there is no other way; this one has no "
    "other folder of the node, no privilege and no capability"
)
_UPSTREAM = "https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/"


def exemptions(stack: StackFacts) -> tuple[Exemption, ...]:
    """Every accepted finding of a stack."""
    return (*_operators(stack), *(_frontends() if stack.remote_gpu_frontends else ()))


def _frontends() -> tuple[Exemption, ...]:
    return (
        Exemption(
            rule="namespaces",
            kind="Namespace",
            name=_FRONTENDS,
            path='metadata.labels["pod-security.kubernetes.io/enforce"]',
            what="the namespace of the frontends' device plugin enforces the Pod Security level privileged",
            who=_PLUGIN,
            why=_SOCKET,
            upstream=_UPSTREAM,
        ),
        Exemption(
            rule="host-paths",
            kind="DaemonSet",
            name="gvirtus-device-plugin",
            namespace=_FRONTENDS,
            path="spec.template.spec.volumes[0].hostPath",
            what="the frontends' device plugin mounts the kubelet's folder of device plugins",
            values=tuple(
                json.dumps({"path": f"{kubelet}/device-plugins", "type": "Directory"}) for kubelet in _KUBELETS
            ),
            who=_PLUGIN,
            why=_SOCKET,
            upstream=_UPSTREAM,
        ),
    )


def _operators(stack: StackFacts) -> tuple[Exemption, ...]:
    return (
        Exemption(
            rule="namespaces",
            kind="Namespace",
            name=stack.operator_namespace,
            path='metadata.labels["pod-security.kubernetes.io/enforce"]',
            values=('"privileged"',),
            due=stack.operator_installed,
            who="NVIDIA GPU Operator v26.7.2",
            what="its namespace enforces the Pod Security level privileged",
            why="its operands install the container toolkit on the node and read devices: privileged pods with host "
            "paths, made by the operator at run time",
            upstream="https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/getting-started.html",
        ),
    )


def main() -> None:
    """Print every exception of a stack with default names and remote GPUs."""
    for exemption in exemptions(StackFacts(remote_gpu_frontends=True)):
        sys.stdout.write(
            f"{exemption.kind} {f'{exemption.namespace}/' if exemption.namespace else ''}{exemption.name}: "
            f"{exemption.path}\n"
            f"  values:   {' or '.join(exemption.values) or 'any'}\n"
            f"  rule:     {exemption.rule}\n"
            f"  who:      {exemption.who}\n"
            f"  what:     {exemption.what}\n"
            f"  why:      {exemption.why}\n"
            f"  upstream: {exemption.upstream}\n"
        )


if __name__ == "__main__":
    main()
