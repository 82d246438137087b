"""Checks of what the cluster has for KAI's reservation pods: overrides, guard, Pod Security, RuntimeClass."""

from collections.abc import Iterable, Iterator
from functools import partial

from manifests import reservation, reservation_guard, reservation_index
from manifests.admission import RESERVATION_WEBHOOK
from manifests.objects import manifests
from manifests.ownership import key
from operations.doctor.check import Check, Finding, Severity, Subject, of_node
from operations.doctor.checks.binding import UNBOUND
from operations.doctor.checks.kai import config_put_back
from operations.doctor.facts import Facts, Source

_POD_SECURITY = "pod-security.kubernetes.io/enforce"


def _missing(facts: Facts, keys: Iterable[str]) -> list[str]:
    return sorted(set(keys) & (facts.missing or frozenset()))


def _overrides(facts: Facts) -> Iterator[Finding]:
    settings = facts.settings
    if settings is None or settings.overridden_platform is None:
        return
    objects = manifests(reservation.objects(settings) | reservation_index.objects(settings))
    keys = [key(manifest) for manifest in objects.values() if manifest["kind"] != "Namespace"]
    for name in _missing(facts, [*keys, f"MutatingWebhookConfiguration/{RESERVATION_WEBHOOK}"]):
        kind, *rest = name.split("/")
        yield Finding(
            Subject(kind, rest[-1]),
            f"{kind} {rest[-1]} is missing: reservation pods on Jetsons get no libraries and no devices.",
            (f"{kind} {rest[-1]}: not found", f"Jetsons: {', '.join(sorted(settings.platform.jetsons))}"),
        )


def _guard(facts: Facts) -> Iterator[Finding]:
    if facts.settings is None:
        return
    gain = "gets a Jetson's privileges" if facts.settings.platform.jetsons else "may make others than KAI's"
    for name in _missing(facts, map(key, manifests(reservation_guard.objects(facts.settings)).values())):
        kind, *rest = name.split("/")
        yield Finding(
            Subject(kind, rest[-1]),
            f"{kind} {rest[-1]} is missing: whoever may make pods in {reservation.NAMESPACE} {gain}.",
            (f"{kind} {rest[-1]}: not found",),
        )


def _pod_security(facts: Facts) -> Iterator[Finding]:
    if facts.settings is None:
        return
    required = reservation.reservation_namespace(facts.settings)["metadata"]["labels"][_POD_SECURITY]
    for namespace in facts.namespaces:
        level = namespace.labels.get(_POD_SECURITY)
        if namespace.name == reservation.NAMESPACE and required == "privileged" and level not in {None, required}:
            yield Finding(
                Subject("Namespace", namespace.name, annotations=namespace.annotations),
                f"namespace '{namespace.name}' enforces the pod-security level '{level}', and reservation pods on "
                f"Jetsons need '{required}'.",
                (f"label {_POD_SECURITY}={level}",),
            )


def _no_class(facts: Facts) -> Iterator[Finding]:
    config = facts.config
    if (
        config is None
        or config.reservation.get("runtimeClassName")
        or any(policy.nri for policy in facts.cluster_policies)
    ):
        return
    overridden = facts.settings is not None and facts.settings.overridden_platform is not None
    others = [
        node.name
        for node in facts.kai_gpu_nodes
        if not (overridden and facts.settings and node.name in facts.settings.platform.jetsons)
    ]
    if others:
        yield Finding(
            Subject("Config", config.name, annotations=config.annotations),
            "KAI gives its reservation pods no RuntimeClass.",
            ("Config kai-config: spec.binder.resourceReservation.runtimeClassName is empty",),
            reach=frozenset(map(of_node, others)),
            remedy=""
            if facts.settings is None
            else config_put_back({"binder": {"resourceReservation": {"runtimeClassName": reservation.RUNTIME_CLASS}}}),
        )


_check = partial(Check, needs={Source.STACK})

CHECKS = (
    _check(
        "KA0501",
        "The overrides of a Jetson's reservation pods are missing",
        _overrides,
        symptom="Reservation pods on Jetsons end with `ERROR_LIBRARY_NOT_FOUND` or `Driver Not Loaded`.",
        cause="The admission policy, its binding or the webhook that adds libraries and devices was deleted.",
        remedy="Put them back: `kai-anywhere repair --stack {stack}`. Pods that are there already do not change: KAI "
        "makes new ones.",
        source="this program: manifests/reservation.py",
        explains=UNBOUND | {"KA0105", "KA0504", "KA0505", "KA0508"},
    ),
    _check(
        "KA0502",
        "The guard of the reservation namespace is missing",
        _guard,
        symptom="Nothing fails. Whoever may create pods in the namespace of the reservation pods can be root on a "
        "Jetson.",
        cause="The ValidatingAdmissionPolicy or its binding was deleted.",
        remedy="Put it back: `kai-anywhere repair --stack {stack}`.",
        source="this program: manifests/reservation_guard.py",
        explains={"KA0105"},
    ),
    _check(
        "KA0503",
        "Pod Security refuses a Jetson's reservation pods",
        _pod_security,
        needs={Source.NAMESPACES},
        symptom="BindRequests fail with `violates PodSecurity`.",
        cause=f"The label `{_POD_SECURITY}` of the reservation pods' namespace was changed.",
        remedy="Put it back: `kai-anywhere repair --stack {stack}`.",
        source="Kubernetes Pod Security; this program: manifests/reservation.py",
        explains=UNBOUND | {"KA0512"},
    ),
    _check(
        "KA0516",
        "Reservation pods get no RuntimeClass",
        _no_class,
        needs={Source.CONFIG, Source.NODES, Source.SHARDS, Source.CLUSTER_POLICIES},
        severity=Severity.WARNING,
        symptom="Reservation pods end with `ERROR_LIBRARY_NOT_FOUND`, unless NVIDIA's runtime is the node's default.",
        cause="From KAI 0.16 on the RuntimeClass of reservation pods is empty by default. The path that upstream's "
        "docs name, binder.resourceReservation.runtimeClassName, is read by no template.",
        remedy="Set binder.runtimeClassName=nvidia in KAI's values.",
        source="KAI v0.17.0 docs/gpu-sharing/README.md; #349, #360, #1543",
        explains=UNBOUND | {"KA0504"},
    ),
)
