"""The guard of the reservation pods' namespace: on a Tegra node KAI's own pod has what its rung gives.

Everything else there stays within Pod Security's baseline, as the table of checks of the guard of all pods has it. The
namespace's own Pod Security level can't say so: it judges the pod after our overrides.
"""

from dataclasses import replace

from config.reservation import Privilege
from config.stack import StackSettings
from manifests import pod_grants, pod_guard, reservation
from manifests.admission_objects import Validation, binder, deny_binding, requests, validating_policy
from manifests.cel import literal
from manifests.node_labels import PLATFORM, PLATFORM_TEGRA
from manifests.objects import Manifest, StackObject
from manifests.wording import first_of

GUARD = "kai-anywhere-reservation-guard"
NOT_OVERRIDDEN = (
    "this reservation pod was not given its Jetson's driver libraries, without which it dies with "
    f"ERROR_LIBRARY_NOT_FOUND: its node lacks the label {PLATFORM}={PLATFORM_TEGRA}, or the overrides are not in force "
    "yet; KAI tries again by itself, and pulumi up --refresh puts back what is missing"
)
_MAY_REMOVE_THE_GUARD = (
    "authorizer.group('admissionregistration.k8s.io').resource('validatingadmissionpolicybindings')"
    f".name({literal(GUARD)}).check('delete').allowed()"
)

_INTO_PODS = Validation(
    expression=(
        "(request.operation != 'CONNECT' && request.?subResource.orValue('') != 'ephemeralcontainers')"
        f" || {_MAY_REMOVE_THE_GUARD}"
    ),
    message=(
        "a reservation pod may be privileged, so nobody gets into it: exec, attach, port-forward, proxy and ephemeral "
        f"containers are for those who may take away the binding of the guard, {GUARD}; kubectl logs works"
    ),
)
_CONSTRAINTS = {
    "namespaceSelector": reservation.IN_NAMESPACE,
    "resourceRules": [
        requests(["CREATE", "UPDATE"], ["pods", "pods/ephemeralcontainers"]),
        requests(["CONNECT"], ["pods/exec", "pods/attach", "pods/portforward", "pods/proxy"]),
    ],
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
    variables = pod_guard.variables(settings, pod_guard.BASELINE)
    validations: list[Validation] = []
    if pod_grants.granted_nodes(settings):
        variables |= _variables(settings)
        validations = _of_reservation_pods(settings)
    validations.append(pod_guard.nothing_new(f"; {_who_may(settings)}"))
    # The object of a connection is no pod.
    of_pods = [
        replace(validation, expression=f"request.operation == 'CONNECT' || ({validation.expression})")
        for validation in validations
    ]
    return validating_policy(GUARD, _CONSTRAINTS, variables, [_INTO_PODS, *of_pods])


def _who_may(settings: StackSettings) -> str:
    permissions = {Privilege.PRIVILEGED: "may", Privilege.DEVICES: "may read its driver's libraries"}
    granted = pod_grants.granted_nodes(settings)
    who = [
        f"only KAI's own reservation pod {permissions[rung]}, on these Tegra nodes: {first_of(nodes)}"
        for rung, nodes in granted.items()
    ]
    if who:
        return "; ".join(who)
    why = "reservation.privilege is none" if settings.overrides_apply else "this stack has no overrides"
    return f"no pod here may, since {why}"


def _variables(settings: StackSettings) -> dict[str, str]:
    differences = " + ".join(
        f"({condition} ? [] : [{literal(difference)}])"
        for difference, condition in pod_grants.marks(settings, "object").items()
    )
    return {
        "reservation": pod_grants.goes_to_granted(settings, "object"),
        "has_privilege": "variables.containers[0].exists(c, c[1].?securityContext.?privileged.orValue(false))",
        "differences": differences,
    }


def _is_overridden(settings: StackSettings) -> str:
    """Whether a reservation pod has what its node's rung adds: the privilege, or else the libraries."""
    granted = pod_grants.granted_nodes(settings)
    privileged = "variables.has_privilege"
    if Privilege.DEVICES not in granted:
        return privileged
    volume = reservation.tegra_fragment(settings, Privilege.DEVICES).volumes[0]
    libraries = f"object.spec.?volumes.orValue([]).exists(v, v.name == {literal(volume['name'])})"
    if Privilege.PRIVILEGED not in granted:
        return libraries
    return f"({pod_grants.goes_to(granted[Privilege.PRIVILEGED], 'object')} ? {privileged} : {libraries})"


def _of_reservation_pods(settings: StackSettings) -> list[Validation]:
    account = binder(settings)
    created = "request.operation == 'CREATE' && variables.reservation"
    not_kais = "this reservation pod is not as KAI makes it, so it gets no privilege on its Jetson"
    return [
        Validation(f"!({created}) || {_is_overridden(settings)}", NOT_OVERRIDDEN, forbidden=False),
        Validation(
            f"!({created}) || request.userInfo.username == {literal(account)} || {_MAY_REMOVE_THE_GUARD}",
            f"a reservation pod with power over its node is created by KAI's binder ({account}) alone",
        ),
        Validation(
            f"!({created}) || variables.differences.size() == 0",
            not_kais,
            message_expression=f"'{not_kais}: ' + variables.differences.join('; ')",
        ),
        Validation(
            "request.operation != 'UPDATE' || request.?subResource.orValue('') != '' || !variables.has_privilege"
            " || !variables.another_image",
            "the image of a privileged reservation pod does not change: let KAI create a new pod",
            forbidden=False,
        ),
    ]
