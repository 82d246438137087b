"""The carrier `policy` of remote GPUs: admission policies that do in CEL what `injection` says.

Names and kinds of backends are written into the policies; addresses, which the cluster gives, are read where they
stand: the backends' Services are the policies' parameters. One policy per kind of backend, and one that refuses what
neither can serve.
"""

from config.gvirtus import BackendKind, GvirtusSettings
from config.stack import StackSettings
from manifests import reservation
from manifests.admission_objects import (
    HAS_CONTAINERS,
    POD_CREATION,
    Validation,
    apply_configuration,
    json_patch,
    mutating_binding,
    mutating_policy,
    outside_of,
    validating_policy,
)
from manifests.cel import constructor, literal, text
from manifests.gvirtus import injection as injected
from manifests.gvirtus.backends import BACKEND_LABEL
from manifests.mutations import HOST, NAME, PORT, Fragment
from manifests.objects import Manifest
from manifests.pod_guard import MAX_CONTAINERS, MAX_ENTRIES

REQUESTS = "kai-anywhere-gvirtus-requests"

_MARKS = {
    NAME: "variables.backend",
    HOST: "variables.host",
    PORT: "variables.port",
}


def policy_name(kind: BackendKind) -> str:
    """The name of a kind's policy and of its binding."""
    return f"kai-anywhere-{kind.value}-injection"


def namespaces_left_alone(settings: StackSettings) -> list[str]:
    """Namespaces whose pods are never changed, by either carrier: the cluster's own, ours, the operators'."""
    own = {settings.kai.namespace, settings.gpu_operator.namespace, reservation.NAMESPACE, "kube-system"}
    if settings.gvirtus is not None:
        own.add(settings.gvirtus.namespace)
    if settings.webhooks:
        own.add(settings.admission.namespace)
    return sorted(own)


def injection_policy(settings: StackSettings, gvirtus: GvirtusSettings, kind: BackendKind) -> Manifest:
    """The MutatingAdmissionPolicy of a kind of backend.

    ApplyConfiguration merges annotations, containers, env and mounts by their keys, so that a second round changes
    nothing; a downwardAPI volume has an atomic list in it, which only a JSON patch may write.
    """
    names = _names(gvirtus, kind)
    fragment = injected.fragment(kind, NAME)
    [variable] = fragment.env
    annotations = ", ".join(f"{literal(key)}: {text(note, _MARKS)}" for key, note in fragment.annotations.items())
    name, value = literal(variable["name"]), text(variable["value"], _MARKS)
    addition = f"name: c.name, env: [Object.spec.KIND.env{{name: {name}, value: {value}}}]"
    if fragment.volume_mounts:
        addition += f", volumeMounts: {constructor(fragment.volume_mounts, 'Object.spec.KIND.volumeMounts')}"
    wants = _wants(fragment)
    containers = f".filter(c, {wants}).map(c, Object.spec.KIND{{{addition}}})"
    expression = (
        "Object{\n"
        f"  metadata: Object.metadata{{annotations: {{{annotations}}}}},\n"
        "  spec: Object.spec{\n"
        f"    containers: object.spec.containers{containers.replace('KIND', 'containers')},\n"
        "    initContainers: object.spec.?initContainers.orValue([])"
        f"{containers.replace('KIND', 'initContainers')}}}}}"
    )
    # A pod without it ends at once, far from any GPU: refusing it says why.
    return mutating_policy(
        settings,
        policy_name(kind),
        _labelled_pods(settings),
        [*(json_patch(_volume_patch(volume)) for volume in fragment.volumes), apply_configuration(expression)],
        conditions={
            **HAS_CONTAINERS,
            f"a-{kind.value}-backend": f"{_backend(gvirtus)} in {literal(names)}",
            # It is asked once for each backend's Service; where there is none, the pod is refused in words.
            "its-service": f"params.metadata.name == {_backend(gvirtus)}",
            "within-bounds": _within_bounds(0),
        },
        variables={
            "backend": _backend(gvirtus),
            "host": "string(params.spec.clusterIP)",
            "port": "string(params.spec.ports[0].port)",
        },
        parameter="Service",
    )


def injection_binding(settings: StackSettings, gvirtus: GvirtusSettings, kind: BackendKind) -> Manifest:
    """Put a kind's policy into force, with the Services of backends."""
    parameters = {
        "namespace": gvirtus.namespace,
        "selector": {"matchExpressions": [{"key": BACKEND_LABEL, "operator": "Exists"}]},
        "parameterNotFoundAction": "Deny",
    }
    return mutating_binding(settings, policy_name(kind), parameters)


def requests_policy(settings: StackSettings, gvirtus: GvirtusSettings) -> Manifest:
    """A ValidatingAdmissionPolicy that refuses pods which can't be served, or which nobody has served.

    Every policy and webhook learns of a change of the backends in its own time. This one judges what came out, so that
    no pod slips through between two of them without its backend.
    """
    files = _names(gvirtus, BackendKind.GVIRTUS)
    [item] = injected.properties_volume()["downwardAPI"]["items"]
    variables = {
        "backend": _backend(gvirtus),
        "file": f"variables.backend in {literal(files)}",
        "containers": "object.spec.containers + object.spec.?initContainers.orValue([])",
    }
    unnamed, unknown = injected.unknown_backend("", gvirtus), injected.unknown_backend(NAME, gvirtus)
    backend_is_known = Validation(
        f"variables.backend in {literal(sorted(gvirtus.backends))}",
        injected.way_out(gvirtus),
        forbidden=False,
        message_expression=f"(variables.backend == '' ? {literal(unnamed)} : {text(unknown, _MARKS)})",
    )
    volume_is_ours = Validation(
        f"!variables.file || object.spec.?volumes.orValue([]).all(v, v.name != {literal(injected.VOLUME)}"
        f" || v.?downwardAPI.?items.orValue([]).exists(i, i.path == {literal(item['path'])}"
        f" && i.?fieldRef.?fieldPath.orValue('') == {literal(item['fieldRef']['fieldPath'])}))",
        injected.VOLUME_TAKEN,
        forbidden=False,
    )
    path_is_ours = Validation(
        "!variables.file || variables.containers.all(c, c.?env.orValue([]).exists(e, e.name == "
        f"{literal(injected.GVIRTUS_VARIABLE)}) || c.?volumeMounts.orValue([]).all(m, "
        f"!({_is_at(injected.PATH)}) || m.name == {literal(injected.VOLUME)}))",
        injected.PATH_TAKEN,
        forbidden=False,
    )
    # With what was added: a volume, and in each container a variable and a mount.
    within_bounds = Validation(_within_bounds(1), injected.TOO_LONG, forbidden=False)
    # Last: of several refusals, people see the first.
    served = [_served(names, kind) for kind in BackendKind if (names := _names(gvirtus, kind))]
    return validating_policy(
        REQUESTS,
        _labelled_pods(settings),
        variables,
        [backend_is_known, within_bounds, volume_is_ours, path_is_ours, *served],
    )


def _within_bounds(added: int) -> str:
    """Whether no list of a pod is longer than what the admission server changes: merging one takes ever longer."""
    most = MAX_ENTRIES + added
    lists = " && ".join(f"size(c.?{field}.orValue([])) <= {most}" for field in ("env", "volumeMounts"))
    containers = [f"object.spec.?{kind}.orValue([])" for kind in ("containers", "initContainers")]
    return " && ".join(
        [
            *(f"size({listed}) <= {MAX_CONTAINERS}" for listed in containers),
            f"size(object.spec.?volumes.orValue([])) <= {most}",
            *(f"{listed}.all(c, {lists})" for listed in containers),
        ]
    )


def _served(names: list[str], kind: BackendKind) -> Validation:
    """The validation that a pod has what its kind of backend gives, or its own in place of it.

    One container is evidence enough: a sidecar that another webhook adds in the last round is left alone.
    """
    fragment = injected.fragment(kind, NAME)
    annotated = "".join(
        f" && object.metadata.?annotations[?{literal(key)}].hasValue()" for key in sorted(fragment.annotations)
    )
    return Validation(
        f"!(variables.backend in {literal(names)}) || variables.containers.exists(c, "
        f"c.?env.orValue([]).exists(e, e.name == {literal(fragment.env[0]['name'])})){annotated}",
        injected.NOT_SERVED,
        forbidden=False,
    )


def _names(gvirtus: GvirtusSettings, kind: BackendKind) -> list[str]:
    return sorted(name for name, backend in gvirtus.backends.items() if backend.kind is kind)


def _labelled_pods(settings: StackSettings) -> Manifest:
    return {
        "namespaceSelector": outside_of(namespaces_left_alone(settings)),
        "objectSelector": {"matchLabels": {injected.ENABLED_LABEL: "true"}},
        "resourceRules": [POD_CREATION],
    }


def _backend(gvirtus: GvirtusSettings) -> str:
    """What the pod chose; match conditions know no variables, so it is written out there."""
    default = literal(gvirtus.default or "")
    return f"object.metadata.?annotations[?{literal(injected.BACKEND_ANNOTATION)}].orValue({default})"


def _wants(fragment: Fragment) -> str:
    [variable] = fragment.env
    name, value = literal(variable["name"]), literal(variable["value"])
    if not fragment.volume_mounts:
        return f"!c.?env.orValue([]).exists(e, e.name == {name})"
    [mount] = fragment.volume_mounts
    return (
        f"!c.?env.orValue([]).exists(e, e.name == {name} && e.?value.orValue('') != {value})"
        f" && !c.?volumeMounts.orValue([]).exists(m, {_is_at(mount['mountPath'])}"
        f" && m.name != {literal(mount['name'])})"
    )


def _is_at(path: str) -> str:
    """Whether mount `m` is at a path; a slash at its end makes it no other one."""
    return f"m.mountPath in {literal([path, f'{path}/'])}"


def _volume_patch(volume: Manifest) -> str:
    add = 'JSONPatch{op: "add", path: '
    return (
        f"object.spec.?volumes.orValue([]).exists(v, v.name == {literal(volume['name'])}) ? [] :\n"
        f'  (has(object.spec.volumes) ? [] : [{add}"/spec/volumes", value: []}}]) +\n'
        f'  [{add}"/spec/volumes/-", value: {constructor(volume, "Object.spec.volumes")}}}]'
    )
