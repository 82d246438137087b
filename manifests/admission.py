"""The admission server, the carrier `webhook`: everything that is installed for it, and what API servers send to it."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from config.admission import CertManagerCertificates, OwnCertificates, StackCertificates, Webhook
from config.stack import StackSettings
from manifests import reservation, reservation_index
from manifests.admission_objects import ADMISSION, ADMISSION_GROUP, POD_CREATION, outside_of
from manifests.gvirtus import injection
from manifests.gvirtus.policy import namespaces_left_alone
from manifests.mutations import VERSION, Mutation
from manifests.objects import RBAC_GROUP, Manifest, StackObject, as_user, namespace, probe, to_api_servers, unprivileged
from manifests.tolerations import pod_tolerations

NAME: Final = "kai-anywhere-admission"
"""Of every object of the server; its Service's DNS name stands in its certificate."""
RESERVATION_WEBHOOK: Final = "kai-anywhere-reservation"
GVIRTUS_WEBHOOK: Final = "kai-anywhere-gvirtus"
SETTINGS: Final = f"{NAME}-v{VERSION}"
"""The ConfigMap of the settings. Replicas of another version keep theirs until those of this version are ready."""
GVIRTUS_BACKENDS: Final = injection.SERVER_CONFIG
"""The ConfigMap of the backends. Optional, since the server runs before there is any backend."""
SETTINGS_FOLDER: Final = "/etc/kai-anywhere"
CERTIFICATE_FOLDER: Final = "/etc/kai-anywhere-certificate"
PORT: Final = 8443
HEALTH_PORT: Final = 8080
USER: Final = 65532
"""The user of agents/Containerfile."""

_LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "kai-anywhere"}
_SELECTOR = {"app.kubernetes.io/name": NAME}
_DRAIN_SECONDS = 10
_SETTINGS_OBJECT = "settings"


AUTHORITY: Final = "authority-"
"""What the names of Secrets begin with that hold an authority of the stack's own; the component fills them, once."""
READY: Final = "ready"
"""What the component waits for: the server answers."""


def objects(settings: StackSettings) -> dict[str, StackObject]:
    """The server and what sends to it; nothing where no webhook carries anything.

    Its configurations come after the Deployment, so that `destroy` takes them first: without a server behind them they
    refuse pods. The server is ready once it has published its authority in them, so only the last object waits.
    """
    if not settings.webhooks:
        return {}
    before = {
        "namespace": namespace(settings.admission.namespace, pod_security="restricted"),
        "service-account": _object(settings, "v1", "ServiceAccount") | {"automountServiceAccountToken": False},
        **_roles(settings),
        **_certificate(settings),
        _SETTINGS_OBJECT: _settings(settings),
        "service": _service(settings),
        "network-policy": _network_policy(settings),
    }
    configurations = webhooks(settings)
    budget = {"spec": {"maxUnavailable": 1, "selector": {"matchLabels": _SELECTOR}}}
    return {
        **{
            name: StackObject(
                manifest, () if name == "namespace" else ("namespace",), versioned=name == _SETTINGS_OBJECT
            )
            for name, manifest in before.items()
        },
        "deployment": StackObject(_deployment(settings), tuple(before)),
        **{name: StackObject(manifest, ("deployment",)) for name, manifest in configurations.items()},
        "disruption-budget": StackObject(
            _object(settings, "policy/v1", "PodDisruptionBudget") | budget, (*configurations, READY)
        ),
    }


def webhooks(settings: StackSettings) -> dict[str, Manifest]:
    """The MutatingWebhookConfigurations, by a short name."""
    configurations = {}
    for webhook in settings.webhooks:
        match webhook:
            case Webhook.RESERVATION:
                configurations["reservation-webhook"] = reservation_webhook(settings)
            case Webhook.GVIRTUS:
                configurations["gvirtus-webhook"] = gvirtus_webhook(settings)
    return configurations


def reservation_webhook(settings: StackSettings) -> Manifest:
    """Send reservation pods that have a node: at creation, and the update that says their GPU.

    That is the scope of the carrier `policy`. All other updates pass while the server is down.
    """
    conditions = {"the-pod-has-a-node": "has(object.spec.nodeName)"}
    platform = settings.overridden_platform
    rewrite = None if platform is None else reservation_index.rewrite(platform)
    if rewrite is not None:
        conditions["says-another-gpu"] = f"request.operation == 'CREATE' || ({reservation_index.applies(rewrite)})"
    return _webhook(
        settings,
        RESERVATION_WEBHOOK,
        "reservation",
        namespaces=reservation.IN_NAMESPACE,
        labels={"app": reservation.APP_LABEL},
        conditions=[{"name": name, "expression": expression} for name, expression in conditions.items()],
        rules=[POD_CREATION] if rewrite is None else [POD_CREATION, reservation_index.POD_UPDATE],
    )


def gvirtus_webhook(settings: StackSettings) -> Manifest:
    """Send pods that ask for a remote GPU, at creation: the scope of the carrier `policy`."""
    # The server's own namespace among them: without it, no replica could start to let others in.
    return _webhook(
        settings,
        GVIRTUS_WEBHOOK,
        "gvirtus",
        namespaces=outside_of(namespaces_left_alone(settings)),
        labels={injection.ENABLED_LABEL: "true"},
        conditions=[],
        rules=[POD_CREATION],
    )


def gvirtus_backends(settings: StackSettings) -> Manifest:
    """The ConfigMap of the backends without its data, in the server's namespace."""
    metadata = {"name": GVIRTUS_BACKENDS, "namespace": settings.admission.namespace, "labels": dict(_LABELS)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def gvirtus_backends_data(endpoints: Mapping[str, str]) -> dict[str, str]:
    """Its data, which the kubelet mounts as a file. No replica restarts for it: it is read when it changes."""
    return {"gvirtus-endpoints.json": json.dumps(endpoints, indent=2) + "\n"}


def mutations(settings: StackSettings) -> dict[str, Mutation]:
    """What the server adds to pods, by the last part of its webhooks' paths."""
    by_path = {}
    if Webhook.RESERVATION in settings.webhooks and (platform := settings.overridden_platform):
        by_path["reservation"] = reservation.mutation(settings).model_copy(
            update={"rewrite": reservation_index.rewrite(platform)}
        )
    if Webhook.GVIRTUS in settings.webhooks and settings.gvirtus is not None:
        by_path["gvirtus"] = injection.mutation(settings.gvirtus)
    return by_path


def server_settings(settings: StackSettings) -> dict[str, Any]:
    """The server's settings.json; the keys are those of `agents/admission/settings.py`."""
    certificate: dict[str, Any]
    match settings.admission.certificates:
        case OwnCertificates() as own:
            certificate = {
                "kind": "own",
                "secret": NAME,
                "lifetime_seconds": own.lifetime_seconds,
                "propagation_seconds": own.propagation_seconds,
            }
        case CertManagerCertificates():
            certificate = {"kind": "mounted", "folder": CERTIFICATE_FOLDER}
        case StackCertificates() as stack:
            certificate = {"kind": "signed", "folder": CERTIFICATE_FOLDER, "lifetime_seconds": stack.lifetime_seconds}
    return {
        "version": VERSION,
        "namespace": settings.admission.namespace,
        "service": NAME,
        "webhook_configurations": _configurations(settings),
        "certificate": certificate,
        "drain_seconds": _DRAIN_SECONDS,
        "port": PORT,
        "health_port": HEALTH_PORT,
        "mutations": {name: mutation.document() for name, mutation in mutations(settings).items()},
    }


def _configurations(settings: StackSettings) -> list[str]:
    return [manifest["metadata"]["name"] for manifest in webhooks(settings).values()]


def _webhook(  # noqa: PLR0913 - what differs between the two
    settings: StackSettings,
    name: str,
    mutation: str,
    *,
    namespaces: dict[str, Any],
    labels: dict[str, str],
    conditions: list[dict[str, str]],
    rules: list[Manifest],
) -> Manifest:
    metadata: dict[str, Any] = {"name": name, "labels": dict(_LABELS)}
    if isinstance(settings.admission.certificates, CertManagerCertificates):
        metadata["annotations"] = {"cert-manager.io/inject-ca-from": f"{settings.admission.namespace}/{NAME}"}
    return {
        "apiVersion": ADMISSION,
        "kind": "MutatingWebhookConfiguration",
        "metadata": metadata,
        "webhooks": [
            {
                "name": f"{mutation}.kai-anywhere.io",
                "admissionReviewVersions": ["v1"],
                # A pod without what the server adds would only crash-loop: refusing it says why.
                "failurePolicy": "Fail",
                "matchPolicy": "Equivalent",
                "reinvocationPolicy": "IfNeeded",
                "sideEffects": "None",
                "timeoutSeconds": settings.admission.timeout_seconds,
                # caBundle is not here: the server or cert-manager owns that field, or the component fills it in.
                "clientConfig": {
                    "service": {
                        "name": NAME,
                        "namespace": settings.admission.namespace,
                        "path": f"/mutate/{mutation}",
                        "port": 443,
                    }
                },
                "namespaceSelector": namespaces,
                "objectSelector": {"matchLabels": labels},
                "rules": [rule | {"scope": "Namespaced"} for rule in rules],
            }
            | ({"matchConditions": conditions} if conditions else {})
        ],
    }


def _roles(settings: StackSettings) -> dict[str, Manifest]:
    """Its own Secret and webhook configurations by name, as far as it needs them, and nodes for reservation pods."""
    stack = isinstance(settings.admission.certificates, StackCertificates)
    own = isinstance(settings.admission.certificates, OwnCertificates)
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": settings.admission.namespace}
    configurations = {
        "apiGroups": [ADMISSION_GROUP],
        "resources": ["mutatingwebhookconfigurations"],
        "resourceNames": _configurations(settings),
        "verbs": ["get", "patch"] if own else ["get"],
    }
    nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}
    secret = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [NAME], "verbs": ["get", "update"]}
    asks_for_nodes = any(mutation.pods.node_labels for mutation in mutations(settings).values())
    rules = [nodes] * asks_for_nodes + [configurations] * (not stack)
    roles: dict[str, Manifest] = {}
    if rules:
        roles["cluster-role"] = _cluster_object(f"{RBAC_GROUP}/v1", "ClusterRole") | {"rules": rules}
        roles["cluster-role-binding"] = _cluster_object(f"{RBAC_GROUP}/v1", "ClusterRoleBinding") | {
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": NAME},
            "subjects": [subject],
        }
    if own:
        roles["role"] = _object(settings, f"{RBAC_GROUP}/v1", "Role") | {"rules": [secret]}
        roles["role-binding"] = _object(settings, f"{RBAC_GROUP}/v1", "RoleBinding") | {
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role", "name": NAME},
            "subjects": [subject],
        }
    return roles


def _certificate(settings: StackSettings) -> dict[str, Manifest]:
    match settings.admission.certificates:
        case OwnCertificates():
            # Empty: the server fills it. It may not create Secrets, since that right has no names.
            return {"secret": _object(settings, "v1", "Secret") | {"type": "Opaque"}}
        case CertManagerCertificates() as source:
            dns_name = f"{NAME}.{settings.admission.namespace}.svc"
            spec = {
                "secretName": NAME,
                "commonName": dns_name,
                "dnsNames": [dns_name],
                "usages": ["server auth", "digital signature"],
                "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
                "issuerRef": {"group": "cert-manager.io", "kind": source.issuer_kind.value, "name": source.issuer},
            }
            return {"certificate": _object(settings, "cert-manager.io/v1", "Certificate") | {"spec": spec}}
        case StackCertificates() as stack:
            return {f"{AUTHORITY}{name}": _authority(settings, name) for name in stack.authorities}


def _authority(settings: StackSettings, name: str) -> Manifest:
    secret = _object(settings, "v1", "Secret") | {"type": "Opaque"}
    secret["metadata"]["name"] = f"{NAME}-{name}"
    return secret


def _mounted_secret(settings: StackSettings) -> str | None:
    match settings.admission.certificates:
        case OwnCertificates():
            return None
        case CertManagerCertificates():
            return NAME
        case StackCertificates() as stack:
            return f"{NAME}-{stack.authorities[0]}"


def _settings(settings: StackSettings) -> Manifest:
    data = {"settings.json": json.dumps(server_settings(settings), indent=2) + "\n"}
    manifest = _object(settings, "v1", "ConfigMap") | {"data": data}
    manifest["metadata"]["name"] = SETTINGS
    return manifest


def _service(settings: StackSettings) -> Manifest:
    manifest = _object(settings, "v1", "Service") | {
        "spec": {
            "selector": dict(_SELECTOR),
            "ports": [{"name": "webhook", "port": 443, "protocol": "TCP", "targetPort": "webhook"}],
        }
    }
    # Pulumi would wait for endpoints, which come with the Deployment, for which it waits anyway.
    manifest["metadata"]["annotations"] = {"pulumi.com/skipAwait": "true"}
    return manifest


def _network_policy(settings: StackSettings) -> Manifest:
    """API servers come from addresses that nobody knows beforehand; out goes only what looks like an API server."""
    return _object(settings, "networking.k8s.io/v1", "NetworkPolicy") | {
        "spec": {
            "podSelector": {"matchLabels": dict(_SELECTOR)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [
                {"ports": [{"port": "webhook", "protocol": "TCP"}]},
                {"from": [{"namespaceSelector": {}}], "ports": [{"port": "health", "protocol": "TCP"}]},
            ],
            "egress": [to_api_servers()],
        }
    }


def _deployment(settings: StackSettings) -> Manifest:
    admission = settings.admission
    data = json.dumps(_settings(settings)["data"], sort_keys=True).encode()
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(_SELECTOR)},
    }
    spec: dict[str, Any] = {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": True,
        "priorityClassName": "system-cluster-critical",
        "terminationGracePeriodSeconds": 3 * _DRAIN_SECONDS,
        "securityContext": as_user(USER),
        "topologySpreadConstraints": [spread],
        "containers": [_container(settings)],
        "volumes": _volumes(settings),
        **pod_tolerations(settings.cluster),
    }
    if admission.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in admission.pull_secrets]
    # The server reads its files at start: other content means other pods.
    annotations = {"kai-anywhere.io/settings": hashlib.sha256(data).hexdigest()[:16]}
    manifest = _object(settings, "apps/v1", "Deployment") | {
        "spec": {
            "replicas": admission.replicas,
            "selector": {"matchLabels": dict(_SELECTOR)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": dict(_LABELS), "annotations": annotations}, "spec": spec},
        }
    }
    # Ready only once the webhook configurations are there, which come after it.
    manifest["metadata"]["annotations"] = {"pulumi.com/waitFor": "jsonpath={.status.observedGeneration}"}
    return manifest


def _container(settings: StackSettings) -> dict[str, Any]:
    admission = settings.admission
    mounts = [{"name": "settings", "mountPath": SETTINGS_FOLDER, "readOnly": True}]
    if _mounted_secret(settings) is not None:
        mounts.append({"name": "certificate", "mountPath": CERTIFICATE_FOLDER, "readOnly": True})

    return {
        "name": "admission",
        "image": admission.image,
        "imagePullPolicy": admission.pull_policy.value,
        "args": ["agents.admission"],
        "ports": [
            {"name": "webhook", "containerPort": PORT, "protocol": "TCP"},
            {"name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP"},
        ],
        "livenessProbe": probe("/healthz", "health", 10),
        "readinessProbe": probe("/readyz", "health", 2),
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": unprivileged(),
        "volumeMounts": mounts,
    }


def _volumes(settings: StackSettings) -> list[dict[str, Any]]:
    sources = [{"configMap": {"name": SETTINGS}}, {"configMap": {"name": GVIRTUS_BACKENDS, "optional": True}}]
    volumes: list[dict[str, Any]] = [{"name": "settings", "projected": {"sources": sources}}]
    secret = _mounted_secret(settings)
    if secret is not None:
        volumes.append({"name": "certificate", "secret": {"secretName": secret}})
    return volumes


def _object(settings: StackSettings, api_version: str, kind: str) -> Manifest:
    metadata = {"name": NAME, "namespace": settings.admission.namespace, "labels": dict(_LABELS)}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _cluster_object(api_version: str, kind: str) -> Manifest:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": NAME, "labels": dict(_LABELS)}}
