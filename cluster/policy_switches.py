"""How MutatingAdmissionPolicy v1beta1 is switched on in Kubernetes 1.34 and 1.35, by distribution (KEP-3962).

It is beta and off there: a feature gate, and a version of an API that is not served by itself. API servers take either
argument once: a second `feature-gates` replaces the first.
"""

from config.cluster import Distribution

FEATURE_GATES = "feature-gates=MutatingAdmissionPolicy=true"
RUNTIME_CONFIG = "runtime-config=admissionregistration.k8s.io/v1beta1=true"

_FLAGS = f"--{FEATURE_GATES} and --{RUNTIME_CONFIG}"
_RANCHER = f"the list kube-apiserver-arg gets '{FEATURE_GATES}' and '{RUNTIME_CONFIG}'"


def switch_on(distribution: Distribution) -> str:
    """What a person does on every server of a cluster, one after the other; ends with a full stop."""
    return f"on every server, {_how(distribution)}. Gates that are set already go into the same argument."


def _how(distribution: Distribution) -> str:
    match distribution:
        case Distribution.K3S:
            return f"in /etc/rancher/k3s/config.yaml {_RANCHER}; then restart k3s"
        case Distribution.RKE2:
            return f"in /etc/rancher/rke2/config.yaml {_RANCHER}; then restart rke2-server"
        case Distribution.KUBEADM:
            file = "/etc/kubernetes/manifests/kube-apiserver.yaml"
            later = "for the next upgrade also in apiServer.extraArgs of kubeadm's ClusterConfiguration"
            return f"in {file} the command gets {_FLAGS}; {later}"
        case Distribution.K8S_SNAP:
            file = "/var/snap/k8s/common/args/kube-apiserver"
            return f"in {file} add the lines {_FLAGS}; then snap restart k8s.kube-apiserver"
        case Distribution.MICROK8S:
            file = "/var/snap/microk8s/current/args/kube-apiserver"
            return f"in {file} add the lines {_FLAGS}; then snap restart microk8s.daemon-kubelite"
