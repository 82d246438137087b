"""The guard of the reservation pods' namespace: on a Tegra node KAI's own pod is privileged, and nothing else anywhere.

Everything else there stays within Pod Security's baseline, as the table of checks of the guard of all pods has it. The
namespace's own Pod Security level can't say so: it judges the pod after our overrides.
"""

from config.platform import TegraPlatform
from config.stack import StackSettings
from manifests import pod_grants, pod_guard, reservation
from manifests.cel import literal
from manifests.node_labels import PLATFORM, PLATFORM_TEGRA
from manifests.objects import Manifest, StackObject, deny_binding

GUARD = "kai-anywhere-reservation-guard"
NOT_OVERRIDDEN = (
    "this reservation pod was not given its Jetson's driver libraries, without which it dies with "
    f"ERROR_LIBRARY_NOT_FOUND: its node lacks the label {PLATFORM}={PLATFORM_TEGRA}, or the overrides are not in force "
    "yet; KAI tries again by itself, and make repair puts back what is missing"
)
_MAY_REMOVE_THE_GUARD = (
    "authorizer.group('admissionregistration.k8s.io').resource('validatingadmissionpolicybindings')"
    f".name({literal(GUARD)}).check('delete').allowed()"
)

_INTO_PODS = {
    "expression": (
        "(request.operation != 'CONNECT' && request.?subResource.orValue('') != 'ephemeralcontainers')"
        f" || {_MAY_REMOVE_THE_GUARD}"
    ),
    "reason": "Forbidden",
    "message": (
        "a reservation pod may be privileged, so nobody gets into it: exec, attach, port-forward, proxy and ephemeral "
        f"containers are for those who may take away the binding of the guard, {GUARD}; kubectl logs works"
    ),
}


def objects(settings: StackSettings) -> dict[str, StackObject]:
    """The guard and what puts it into force."""
    return {
        "guard": StackObject(guard_policy(settings)),
        "guard-binding": StackObject(deny_binding(GUARD), ("guard",)),
    }


def guard_policy(settings: StackSettings) -> Manifest:
    """The ValidatingAdmissionPolicy.

    It names the nodes themselves: a kubelet may label its own node, and parameters would be judged one by one, so
    that a pod of one Tegra node would fail for the other. An update is refused for what it adds, never for what was
    there: a pod that became privileged under other settings can still be annotated and deleted.
    """
    baseline = pod_guard.guard_policy(settings, pod_guard.BASELINE)["spec"]
    nodes: list[str] = []
    variables: dict[str, str] = {}
    validations: list[Manifest] = []
    if settings.overrides_apply and isinstance(settings.platform, TegraPlatform):
        nodes = sorted(settings.platform.tegra_nodes)
        variables = _variables(settings, settings.platform)
        validations = _of_reservation_pods(settings)
    who = f"KAI's own reservation pod may, on these Tegra nodes: {', '.join(nodes)}"
    only = literal(f"; only {who}" if nodes else "; no pod here may, since this stack has no overrides")
    validations += [
        each | {"messageExpression": f"{each['messageExpression']} + {only}"} for each in baseline["validations"]
    ]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": GUARD},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": reservation.IN_NAMESPACE,
                "resourceRules": [
                    _rule(["CREATE", "UPDATE"], ["pods", "pods/ephemeralcontainers"]),
                    _rule(["CONNECT"], ["pods/exec", "pods/attach", "pods/portforward", "pods/proxy"]),
                ],
            },
            "variables": [
                *baseline["variables"],
                *({"name": name, "expression": expression} for name, expression in variables.items()),
            ],
            "validations": [
                _INTO_PODS,
                # The object of a connection is no pod.
                *(
                    each | {"expression": f"request.operation == 'CONNECT' || ({each['expression']})"}
                    for each in validations
                ),
            ],
        },
    }


def _rule(operations: list[str], resources: list[str]) -> dict[str, object]:
    return {"apiGroups": [""], "apiVersions": ["v1"], "operations": operations, "resources": resources}


def _variables(settings: StackSettings, platform: TegraPlatform) -> dict[str, str]:
    differences = " + ".join(
        f"({condition} ? [] : [{literal(difference)}])"
        for difference, condition in pod_grants.marks(settings, platform, "object").items()
    )
    return {
        "reservation": (
            f"object.metadata.?labels[?'app'].orValue('') == {literal(reservation.APP_LABEL)}"
            f" && object.spec.?nodeName.orValue('') in {literal(sorted(platform.tegra_nodes))}"
        ),
        "has_privilege": "variables.containers[0].exists(c, c[1].?securityContext.?privileged.orValue(false))",
        "differences": differences,
    }


def _of_reservation_pods(settings: StackSettings) -> list[Manifest]:
    binder = f"system:serviceaccount:{settings.kai.namespace}:binder"
    created = "request.operation == 'CREATE' && variables.reservation"
    return [
        {
            "expression": f"!({created}) || variables.has_privilege",
            "message": NOT_OVERRIDDEN,
        },
        {
            "expression": (
                f"!({created}) || request.userInfo.username == {literal(binder)} || {_MAY_REMOVE_THE_GUARD}"
            ),
            "reason": "Forbidden",
            "message": f"a privileged reservation pod is created by KAI's binder ({binder}) alone",
        },
        {
            "expression": f"!({created}) || variables.differences.size() == 0",
            "reason": "Forbidden",
            "message": "this reservation pod is not as KAI makes it, so it gets no privilege on its Jetson",
            "messageExpression": (
                "'this reservation pod is not as KAI makes it, so it gets no privilege on its Jetson: '"
                " + variables.differences.join('; ')"
            ),
        },
        {
            "expression": (
                "request.operation != 'UPDATE' || request.?subResource.orValue('') != '' || !variables.has_privilege"
                " || !variables.another_image"
            ),
            "message": "the image of a privileged reservation pod does not change: let KAI create a new pod",
        },
    ]
