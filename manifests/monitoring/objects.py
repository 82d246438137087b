"""The exporter of metrics and what is installed around it; nothing unless the settings ask for it."""

import json
from typing import Any, Final

from config.stack import StackSettings
from manifests.monitoring import alerts, dashboards
from manifests.objects import RBAC_GROUP, Manifest, StackObject, as_user, namespace, probe, to_api_servers, unprivileged
from manifests.tolerations import pod_tolerations

NAME: Final = "kai-anywhere-metrics"
"""Of every object of the exporter."""
ALERTS: Final = "kai-anywhere-alerts"
PORT: Final = 8080
USER: Final = 65532
"""The user of agents/metrics/Containerfile."""
OPERATOR_GROUP: Final = "monitoring.coreos.com/v1"
"""The Prometheus Operator's kinds."""

_LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "kai-anywhere"}
_SELECTOR = {"app.kubernetes.io/name": NAME}
_KAI_SERVICES = ("kai-scheduler-default", "queue-controller", "binder")
"""Services of KAI with metrics, by their label `app` (KAI v0.17.0 docs/metrics/service-monitors.yaml)."""
_KAI_PORTS = ("http-metrics", "metrics")


def objects(settings: StackSettings) -> dict[str, StackObject]:
    """The exporter, then what asks it and what shows its answers."""
    if not settings.monitoring.enabled:
        return {}
    before = {
        "namespace": namespace(settings.monitoring.namespace, pod_security="restricted"),
        "service-account": _object(settings, "v1", "ServiceAccount") | {"automountServiceAccountToken": False},
        **_roles(settings),
        "network-policy": _network_policy(settings),
        "service": _service(settings),
    }
    after = {**_prometheus(settings), **_dashboards(settings)}
    in_namespace = ("namespace",)
    return {
        **{
            name: StackObject(manifest, () if name == "namespace" else in_namespace)
            for name, manifest in before.items()
        },
        "deployment": StackObject(_deployment(settings), tuple(before)),
        **{name: StackObject(manifest, in_namespace) for name, manifest in after.items()},
    }


def _roles(settings: StackSettings) -> dict[str, Manifest]:
    """What the sharing map is made of, in lists alone: no single object, no watch, no Secret."""
    rules = [
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]},
        {
            "apiGroups": ["scheduling.run.ai"],
            "resources": ["bindrequests", "podgroups", "queues"],
            "verbs": ["list"],
        },
        {"apiGroups": ["kai.scheduler"], "resources": ["configs"], "verbs": ["list"]},
    ]
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": settings.monitoring.namespace}
    return {
        "cluster-role": _cluster_object("ClusterRole") | {"rules": rules},
        "cluster-role-binding": _cluster_object("ClusterRoleBinding")
        | {"roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": NAME}, "subjects": [subject]},
    }


def _network_policy(settings: StackSettings) -> Manifest:
    """In comes who scrapes, from any namespace; out goes only what looks like an API server."""
    return _object(settings, "networking.k8s.io/v1", "NetworkPolicy") | {
        "spec": {
            "podSelector": {"matchLabels": dict(_SELECTOR)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"namespaceSelector": {}}], "ports": [{"port": "metrics", "protocol": "TCP"}]}],
            "egress": [to_api_servers()],
        }
    }


def _service(settings: StackSettings) -> Manifest:
    manifest = _object(settings, "v1", "Service") | {
        "spec": {
            "selector": dict(_SELECTOR),
            "ports": [{"name": "metrics", "port": PORT, "protocol": "TCP", "targetPort": "metrics"}],
        }
    }
    # Pulumi would wait for endpoints, which come with the Deployment, for which it waits anyway.
    annotations = {"pulumi.com/skipAwait": "true"}
    if not settings.monitoring.service_monitor:
        annotations |= {
            "prometheus.io/scrape": "true",
            "prometheus.io/port": str(PORT),
            "prometheus.io/path": "/metrics",
        }
    manifest["metadata"]["annotations"] = annotations
    return manifest


def _deployment(settings: StackSettings) -> Manifest:
    monitoring = settings.monitoring
    spec: dict[str, Any] = {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": True,
        "securityContext": as_user(USER),
        "containers": [_container(settings)],
        **pod_tolerations(settings.cluster),
    }
    if monitoring.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in monitoring.pull_secrets]
    return _object(settings, "apps/v1", "Deployment") | {
        "spec": {
            # Two would tell everything twice, and sums would be double.
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": dict(_SELECTOR)},
            "template": {"metadata": {"labels": dict(_LABELS)}, "spec": spec},
        }
    }


def _container(settings: StackSettings) -> dict[str, Any]:
    monitoring = settings.monitoring

    interval = str(monitoring.interval_seconds)
    return {
        "name": "metrics",
        "image": monitoring.image,
        "imagePullPolicy": monitoring.pull_policy.value,
        "args": ["agents.metrics", "--interval-seconds", interval, "--port", str(PORT)],
        "ports": [{"name": "metrics", "containerPort": PORT, "protocol": "TCP"}],
        "livenessProbe": probe("/healthz", "metrics", 30),
        "readinessProbe": probe("/readyz", "metrics", 5),
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": unprivileged(),
    }


def _prometheus(settings: StackSettings) -> dict[str, Manifest]:
    """The alerts, and where the Prometheus Operator is asked for it, who is scraped."""
    rules = {"groups": alerts.groups()}
    if not settings.monitoring.service_monitor:
        # JSON is YAML, which is what Prometheus reads.
        return {"alerts": _named(settings, "v1", "ConfigMap", ALERTS) | {"data": {"alerts.yaml": _text(rules)}}}
    seconds = f"{settings.monitoring.interval_seconds}s"
    # Its samples name namespaces and pods: those of the workloads.
    endpoint = {"port": "metrics", "interval": seconds, "honorLabels": True}
    monitor = {"selector": {"matchLabels": dict(_SELECTOR)}, "endpoints": [endpoint]}
    kai = {
        "jobLabel": "app",
        "namespaceSelector": {"matchNames": [settings.kai.namespace]},
        "selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": list(_KAI_SERVICES)}]},
        "endpoints": [{"port": port, "interval": seconds} for port in _KAI_PORTS],
    }
    return {
        "service-monitor": _operators(settings, "ServiceMonitor", NAME) | {"spec": monitor},
        "kai-service-monitor": _operators(settings, "ServiceMonitor", "kai-anywhere-kai") | {"spec": kai},
        "alerts": _operators(settings, "PrometheusRule", ALERTS) | {"spec": rules},
    }


def _dashboards(settings: StackSettings) -> dict[str, Manifest]:
    if not settings.monitoring.dashboards.enabled:
        return {}
    config_maps = {}
    for name, dashboard in dashboards.of(settings).items():
        manifest = _named(settings, "v1", "ConfigMap", f"kai-anywhere-dashboard-{name}")
        manifest["metadata"]["labels"] |= settings.monitoring.dashboards.labels
        config_maps[f"dashboard-{name}"] = manifest | {"data": {f"kai-anywhere-{name}.json": _text(dashboard)}}
    return config_maps


def _text(content: object) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _operators(settings: StackSettings, kind: str, name: str) -> Manifest:
    manifest = _named(settings, OPERATOR_GROUP, kind, name)
    manifest["metadata"]["labels"] |= settings.monitoring.service_monitor_labels
    return manifest


def _object(settings: StackSettings, api_version: str, kind: str) -> Manifest:
    return _named(settings, api_version, kind, NAME)


def _named(settings: StackSettings, api_version: str, kind: str, name: str) -> Manifest:
    metadata = {"name": name, "namespace": settings.monitoring.namespace, "labels": dict(_LABELS)}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _cluster_object(kind: str) -> Manifest:
    return {"apiVersion": f"{RBAC_GROUP}/v1", "kind": kind, "metadata": {"name": NAME, "labels": dict(_LABELS)}}
