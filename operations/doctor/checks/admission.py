"""Checks of what judges and changes pods at admission."""

import base64
import binascii
from collections.abc import Iterator

from cryptography import x509

from config.reservation import POLICY_CARRIER_WAYS_OUT
from manifests.admission import NAME
from operations.doctor.check import Check, Finding, Subject, of_deployment
from operations.doctor.checks.workloads import how_to_start, judge_deployment, remedy_of_deployment
from operations.doctor.facts import Facts, Source, Webhook, WebhookConfiguration
from operations.doctor.monitoring import Selector

_CLUSTER_WIDE = (
    ("", "nodes"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    *(("rbac.authorization.k8s.io", resource) for resource in ("clusterroles", "clusterrolebindings")),
)
_NAMESPACED = (
    *(("", resource) for resource in ("namespaces", "configmaps", "secrets", "services", "serviceaccounts")),
    *(("apps", resource) for resource in ("deployments", "daemonsets", "replicasets")),
    ("batch", "jobs"),
    *(("rbac.authorization.k8s.io", resource) for resource in ("roles", "rolebindings")),
)
"""What the stack, both charts and their controllers write, by group and plural; a namespace has its own labels."""
_NAME_LABEL = "kubernetes.io/metadata.name"
"""Which the API server gives each namespace."""
_KAI = (
    ("MutatingWebhookConfiguration", "mutating-kai-admission"),
    ("ValidatingWebhookConfiguration", "validating-kai-admission"),
)


def _hooks(facts: Facts) -> Iterator[tuple[str, WebhookConfiguration, Webhook]]:
    for kind, listed in (
        ("MutatingWebhookConfiguration", facts.mutating_webhooks),
        ("ValidatingWebhookConfiguration", facts.validating_webhooks),
    ):
        for configuration in listed:
            for webhook in configuration.webhooks:
                yield kind, configuration, webhook


def _concerns_us(facts: Facts, webhook: Webhook) -> bool:
    """Whether it is ours, or judges pods, or anything else without which nothing is installed or removed.

    Of anything but pods, one that chooses among objects may leave out all of ours.
    """
    ours = {facts.kai_namespace, facts.operator_namespace}
    if facts.settings is not None:
        ours.add(facts.settings.admission.namespace)
    if webhook.namespace in ours or webhook.judges("", "pods"):
        return True
    if webhook.objects != Selector() or webhook.conditions:
        return False
    if any(webhook.judges(*kind) for kind in _CLUSTER_WIDE):
        return True
    labels = {namespace.name: namespace.labels for namespace in facts.namespaces}
    places = ({_NAME_LABEL: name} | labels.get(name, {}) for name in {*ours, facts.reservation_namespace})
    return any(webhook.judges(*kind) for kind in _NAMESPACED) and any(map(webhook.namespaces.matches, places))


def _unanswered(facts: Facts) -> Iterator[Finding]:
    for kind, configuration, webhook in _hooks(facts):
        if webhook.failure_policy != "Fail" or not webhook.service or not _concerns_us(facts, webhook):
            continue
        slices = [
            endpoint_slice
            for endpoint_slice in facts.endpoint_slices
            if endpoint_slice.namespace == webhook.namespace
            and endpoint_slice.labels.get("kubernetes.io/service-name") == webhook.service
        ]
        # An address without the condition is ready (discovery/v1).
        if any(endpoint.ready is not False for endpoint_slice in slices for endpoint in endpoint_slice.endpoints or ()):
            continue
        # Ours and KAI's Services have their Deployments' names.
        server = facts.deployment(webhook.namespace, webhook.service)
        yield Finding(
            Subject(kind, configuration.name, annotations=configuration.annotations),
            f"webhook '{webhook.name}' judges {', '.join(webhook.resources)}, and nobody answers for it: they "
            "are refused.",
            (
                f"{kind} {configuration.name}: failurePolicy=Fail, service {webhook.namespace}/{webhook.service}",
                f"EndpointSlices of service {webhook.namespace}/{webhook.service}: no address that is ready",
            ),
            about=frozenset({of_deployment(webhook.namespace, webhook.service)}),
            remedy=how_to_start(server) if server is not None else "",
        )


def _server(facts: Facts) -> Iterator[Finding]:
    if facts.settings is not None and facts.settings.webhooks:
        server = facts.settings.admission
        yield from judge_deployment(
            facts, server.namespace, NAME, role="The admission server", replicas=server.replicas
        )


def _policies(facts: Facts) -> Iterator[Finding]:
    settings = facts.settings
    if settings is None or facts.version is None or settings.cluster.policies_version in facts.policy_versions:
        return
    for section in settings.policy_carriers:
        yield Finding(
            Subject("Cluster", facts.version.git),
            f"{section}.carrier is 'policy', and the API server ({facts.version.git}) does not serve "
            f"MutatingAdmissionPolicy {settings.cluster.policies_version}.",
            (f"served versions of MutatingAdmissionPolicy: {', '.join(sorted(facts.policy_versions)) or 'none'}",),
            remedy=POLICY_CARRIER_WAYS_OUT[section],
        )


def _expired(facts: Facts) -> Iterator[Finding]:
    for kind, configuration, webhook in _hooks(facts):
        if not webhook.ca_bundle or not _concerns_us(facts, webhook):
            continue
        try:
            authorities = x509.load_pem_x509_certificates(base64.b64decode(webhook.ca_bundle))
        except (ValueError, binascii.Error):
            authorities = []
        ends = max((certificate.not_valid_after_utc for certificate in authorities), default=None)
        if ends is None or ends < facts.snapshot.taken:
            state = "can't be read" if ends is None else f"has ended at {ends:%Y-%m-%d %H:%M} UTC"
            yield Finding(
                Subject(kind, configuration.name, annotations=configuration.annotations),
                f"webhook '{webhook.name}' trusts no authority that is valid: its caBundle {state}.",
                (f"{kind} {configuration.name}: webhooks[].clientConfig.caBundle {state}",),
            )


def _kai_webhooks(facts: Facts) -> Iterator[Finding]:
    if facts.config is None or not facts.config.is_on("admission"):
        return
    existing = {(kind, configuration.name) for kind, configuration, _ in _hooks(facts)}
    for kind, name in _KAI:
        if (kind, name) not in existing:
            yield Finding(
                Subject(kind, name),
                f"KAI's {kind} {name} is missing: pods with a fraction get no RuntimeClass and no variables.",
                (f"{kind} {name}: not found",),
            )


CHECKS = (
    Check(
        "KA0903",
        "The API server does not serve the stack's policies",
        _policies,
        needs={Source.STACK},
        symptom="Reservation pods on Jetsons, or pods with remote GPUs, are not changed at all.",
        cause="MutatingAdmissionPolicy is served as v1 from Kubernetes 1.36 on; 1.34 and 1.35 serve v1beta1 where "
        "somebody switched it on.",
        remedy="Use the carrier webhook, or switch the policies on: docs/distributions.md.",
        source="Kubernetes 1.36 release notes",
        explains={"KA0105", "KA0501", "KA0504", "KA0804", "KA0805"},
    ),
    Check(
        "KA0902",
        "The admission server does not run",
        _server,
        needs={Source.DEPLOYMENTS},
        symptom="Reservation pods, and pods with remote GPUs, are refused: `failed calling webhook`.",
        cause=f"Deployment `{NAME}` is scaled to 0, is missing, or has no pod that is ready.",
        remedy=remedy_of_deployment(replicas=2),
        source="this program: manifests/admission.py",
        explains={"KA0105", "KA0512", "KA0901"},
    ),
    Check(
        "KA0904",
        "A webhook trusts no valid authority",
        _expired,
        needs={Source.WEBHOOKS, Source.NAMESPACES},
        symptom="`failed calling webhook ...: x509: certificate signed by unknown authority`, or has expired.",
        cause="The authority was not renewed: its server was off for longer than its certificate lives, or somebody "
        "overwrote caBundle.",
        remedy="Restart the server that owns it, so that it publishes its authority anew; for ours: kubectl "
        "--namespace {admission_namespace} rollout restart deployment kai-anywhere-admission",
        source="Kubernetes admissionregistration/v1; docs/admission.md",
        explains={"KA0512"},
    ),
    Check(
        "KA0905",
        "KAI's webhook of pods is missing",
        _kai_webhooks,
        needs={Source.WEBHOOKS, Source.CONFIG},
        symptom="Pods with a fraction run, and see every GPU or none.",
        cause="The configuration was deleted while KAI's operator did not run; the operator puts it back.",
        remedy="Let KAI's operator run (KA0202), then make the pods again.",
        source="KAI v0.17.0 pkg/operator/operands/admission/resources.go",
    ),
    Check(
        "KA0901",
        "A webhook does not answer",
        _unanswered,
        needs={Source.WEBHOOKS, Source.ENDPOINTS, Source.NAMESPACES},
        symptom="`failed calling webhook ...: no endpoints available for service`, or `service ... not found`; what it "
        "judges can't be created, changed or deleted, so that `pulumi up` and `kai-anywhere down` may fail too.",
        cause="No pod behind its service is ready, or it was left behind by something that was removed.",
        remedy="Start what serves it: the evidence names its service. If that was removed for good, whoever installed "
        "it removes the configuration {name} too. Then run again what failed.",
        source="Kubernetes admissionregistration/v1: failurePolicy",
        explains={"KA0512", "KA0706"},
    ),
)
