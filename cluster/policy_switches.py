"""How MutatingAdmissionPolicy v1beta1 is switched on in Kubernetes 1.34 and 1.35, by distribution (KEP-3962).

It is beta and off there: a feature gate, and a version of an API that is not served by itself. API servers take either
argument once: a second `feature-gates` replaces the first.
"""

from collections.abc import Mapping
from types import MappingProxyType

from config.cluster import Distribution

FEATURE_GATES = "feature-gates=MutatingAdmissionPolicy=true"
RUNTIME_CONFIG = "runtime-config=admissionregistration.k8s.io/v1beta1=true"

_FLAGS = f"--{FEATURE_GATES} and --{RUNTIME_CONFIG}"
_RANCHER = f"the list kube-apiserver-arg gets '{FEATURE_GATES}' and '{RUNTIME_CONFIG}'"
_HOW: Mapping[Distribution, str] = MappingProxyType(
    {
        Distribution.K3S: f"in /etc/rancher/k3s/config.yaml {_RANCHER}; then restart k3s",
        Distribution.RKE2: f"in /etc/rancher/rke2/config.yaml {_RANCHER}; then restart rke2-server",
        Distribution.KUBEADM: (
            f"in /etc/kubernetes/manifests/kube-apiserver.yaml the command gets {_FLAGS}; for the next upgrade also "
            "in apiServer.extraArgs of kubeadm's ClusterConfiguration"
        ),
        Distribution.K8S_SNAP: (
            f"in /var/snap/k8s/common/args/kube-apiserver add the lines {_FLAGS}; then snap restart k8s.kube-apiserver"
        ),
        Distribution.MICROK8S: (
            f"in /var/snap/microk8s/current/args/kube-apiserver add the lines {_FLAGS}; then snap restart "
            "microk8s.daemon-kubelite"
        ),
    }
)


def switch_on(distribution: Distribution) -> str:
    """What a person does on every server of a cluster, one after the other; ends with a full stop."""
    return f"on every server, {_HOW[distribution]}. Gates that are set already go into the same argument."
