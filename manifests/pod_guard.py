"""The policy pack's checks of pods as an admission policy, for what comes into the cluster without this program.

It renders the table that the pack reads too (pod_checks/), so that both give the same verdict. It judges pods and every
kind that carries a pod template natively; of a binding and of a status that leaves annotations as they are, which
schedulers and kubelets send often, the annotations alone, since these reach the pod. What the pack asks of roles,
webhooks, namespaces, volumes, releases and custom resources stays in the pack: an operator's pods are judged here once
they are created.

An update is compared with what was there: what offended before and is left alone is no reason to refuse the removal of
a finalizer. As in Pod Security (k8s.io/pod-security-admission v0.36.3, isSignificantPodUpdate) a new image in a pod
makes everything count again.

What CEL takes for a list grows faster than the list. One that is longer than any of a pod that is meant to run is not
looked into: it is refused, unless it is what was there before.
"""

from collections.abc import Sequence

from config.gvirtus import FRONTENDS_NAMESPACE
from config.kai import GpuSharingMode
from config.pod_guard import GuardScope
from config.stack import StackSettings
from manifests import reservation
from manifests.admission_objects import Validation, binder, deny_binding, outside_of, requests, validating_policy
from manifests.cel import literal
from manifests.objects import Manifest, StackObject
from manifests.pod_grants import is_granted, may_be_privileged
from pod_checks import language, table
from pod_checks.language import Check, Place, Unless

POD_GUARD = "kai-anywhere-pod-guard"
LABEL = "kai-anywhere.io/pod-guard"
LABEL_ENFORCE = "enforce"
SYSTEM_NAMESPACES = ("kube-system",)
"""Network, storage and control plane pods live there: they are the node."""
BASELINE = tuple(check for check in table.CHECKS if check.rule in {"privileged", "host-paths", "host-access"})
"""Pod Security's baseline, for the guard of reservation pods. Not the rest of the table: KAI names its pods' nodes
itself, and with simulated GPUs its image has no tag."""

_ANNOTATED = ["pods/status", "pods/binding", "bindings"]
"""What sets a pod's annotations, and nothing else that a check looks at."""
_KINDS = {
    "": ["pods", "pods/ephemeralcontainers", "podtemplates", "replicationcontrollers", *_ANNOTATED],
    "apps": ["daemonsets", "deployments", "replicasets", "statefulsets"],
    "batch": ["cronjobs", "jobs"],
}
_TEMPLATES = {"Pod": "", "PodTemplate": "template.", "CronJob": "spec.jobTemplate.spec.template."}
"""Where a kind has its pod; every other kind under `spec.template.`."""
MAX_CONTAINERS = 100
MAX_ENTRIES = 1000
"""Of each other list. Both are the admission server's bounds (agents/admission/pods.py)."""
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_ANNOTATIONS, _LIMITS = "annotations", "resources.limits"
_LONGEST_MESSAGE = 1200
"""Characters. The API server takes 5120 bytes of a message expression; beyond, it shows the static message."""


INSTALLED = "installed"
"""What the component waits for: the stack's own releases, whose pods the guard judges from their next roll-out on."""


def objects(settings: StackSettings) -> dict[str, StackObject]:
    """The guard and what puts it into force."""
    return {
        "policy": StackObject(guard_policy(settings), (INSTALLED,)),
        "binding": StackObject(deny_binding(POD_GUARD), ("policy",)),
    }


def guard_policy(settings: StackSettings) -> Manifest:
    """The ValidatingAdmissionPolicy of a stack."""
    constraints = {
        "namespaceSelector": _namespaces(settings),
        "resourceRules": [requests(["CREATE", "UPDATE"], resources, group) for group, resources in _KINDS.items()],
    }
    return validating_policy(POD_GUARD, constraints, variables(settings, table.CHECKS), [nothing_new()])


def variables(settings: StackSettings, checks: Sequence[Check]) -> dict[str, str]:
    """The variables that a guard judges pods by.

    They build on each other. A list of one or two comes first: what is asked for, then what was there. In it, every
    node of the pod that is judged is a box `[path, node, template, granted]`. Checks make a list of texts from each
    box; nothing forbidden, an empty one.

    Args:
        settings: the stack's settings.
        checks: what is asked; the guard of reservation pods asks fewer than the table has.
    """
    annotations = [check for check in checks if check.place is Place.ANNOTATIONS]

    def texts(index: int) -> str:
        few, all_texts = (
            " + ".join(f"variables.{check.name}[{index}]" for check in some) for some in (annotations, checks)
        )
        return f"(variables.annotations_alone ? {few} : {all_texts})"

    return {
        **_boxes(settings),
        **_long(checks),
        **{check.name: _check(settings, check) for check in checks},
        "found": texts(0),
        # Names and images of each object: the containers of a pod that runs stay in their order.
        "programs": "variables.containers.map(cs, cs.map(c, [c[0], c[1].?image.orValue('')]))",
        "another_image": "object.kind == 'Pod' && variables.programs[0] != variables.programs[1]",
        "before": ("oldObject == null || (!variables.annotations_alone && variables.another_image) ? [] : " + texts(1)),
        "fresh": "variables.found.map(l, l.filter(f, !variables.before.exists(o, f in o))).filter(l, l.size() > 0)",
        "text": ("variables.too_long != '' ? variables.too_long : variables.fresh.map(l, l.join('; ')).join('; ')"),
    }


_NAME = "object.metadata.?name.orValue(object.metadata.?generateName.orValue(''))"


_TOLD = (
    f"(string(object.kind) + ' ' + string({_NAME}) + ': ' + (size(variables.text) > {_LONGEST_MESSAGE} ?"
    f" variables.text.substring(0, {_LONGEST_MESSAGE}) + '...' : variables.text)).replace('\\n', ' ')"
)
"""The object, and the text about it: in one line, since a message with a line break would not be shown."""
_TOO_LONG = "is more than the guard judges: make several pods of it, or leave such a list as it was"


def nothing_new(and_who_may: str = "") -> Validation:
    """A pod has nothing that a check forbids and no list too long to be judged, but for what it had before.

    One validation: whenever a policy is new, the controller manager compiles all variables anew for each expression of
    a validation and each kind (k8s.io/apiserver v0.36.3, pkg/admission/plugin/policy/validating/typechecking.go), which
    takes it seconds.

    Args:
        and_who_may: what a message says after what is forbidden.
    """
    ends = f"(variables.too_long == '' ? {literal(and_who_may)} : {literal(f', which {_TOO_LONG}')})"
    return Validation(
        expression="variables.text == ''",
        message=(
            f"it asks for power over its node, in more ways than a message can hold, or has more than {MAX_CONTAINERS} "
            f"containers or {MAX_ENTRIES} of anything else ({POD_GUARD})"
        ),
        message_expression=f"{_TOLD} + {ends}",
    )


def exempt_namespaces(settings: StackSettings) -> list[str]:
    """Namespaces that scope `cluster` leaves out, since their pods are privileged by design; none for `labelled`.

    The GPU Operator's operands install the container toolkit on the node and read devices, whoever installed it; a
    device plugin registers in the kubelet's folder.
    """
    if settings.pod_guard.scope is GuardScope.LABELLED:
        return []
    plugins = (
        {FRONTENDS_NAMESPACE} if settings.gvirtus is not None and settings.gvirtus.frontends is not None else set()
    )
    ours = {*SYSTEM_NAMESPACES, settings.gpu_operator.namespace, *plugins}
    return sorted(ours.union(settings.pod_guard.exempt_namespaces))


def _namespaces(settings: StackSettings) -> dict[str, object]:
    match settings.pod_guard.scope:
        case GuardScope.LABELLED:
            return {"matchLabels": {LABEL: LABEL_ENFORCE}}
        case GuardScope.CLUSTER:
            return outside_of(exempt_namespaces(settings))


def _boxes(settings: StackSettings) -> dict[str, str]:
    def of(*keys: str) -> str:
        return " + ".join(
            f"{_short('p[1]', key)}.map(i, [dyn(p[0] + '.{key}[' + i.name + ']'), dyn(i), p[2], p[3]])" for key in keys
        )

    containers = of(*_CONTAINERS)
    return {
        # A status with other annotations may take away the request that lifts a check.
        "annotations_alone": (
            "object.kind == 'Binding' || (request.?subResource.orValue('') == 'status'"
            " && object.metadata.?annotations.orValue({}) == oldObject.metadata.?annotations.orValue({}))"
        ),
        "objects": "oldObject == null ? [dyn(object)] : [dyn(object), dyn(oldObject)]",
        "place": f"{literal(_TEMPLATES)}[?object.kind].orValue('spec.template.')",
        "templates": (
            "variables.objects.map(o, o.kind == 'Pod' ? o : o.kind == 'PodTemplate' ? o.template"
            " : o.kind == 'CronJob' ? o.spec.jobTemplate.spec.template : o.spec.template)"
        ),
        "specs": (
            "variables.templates.map(t,"
            f" [dyn(variables.place + 'spec'), dyn(t.spec), t, dyn({is_granted(settings, 't')})])"
        ),
        "pods": "variables.specs.map(p, [p])",
        "containers": f"variables.specs.map(p, {containers})",
        "contexts": f"variables.specs.map(p, [p] + {containers})",
        "volumes": f"variables.specs.map(p, {of('volumes')})",
        # Those of the object itself and of its templates; a list for each object.
        "annotations": (
            "variables.objects.map(o, [[dyn('metadata'), dyn(o.metadata)]] + (o.kind == 'CronJob' ?"
            " [[dyn('spec.jobTemplate.metadata'), dyn(o.spec.jobTemplate.?metadata.orValue({}))]] : [])"
            " + (o.kind in ['Pod', 'Binding'] ? [] : [[dyn(variables.place + 'metadata'),"
            " dyn((o.kind == 'PodTemplate' ? o.template : o.kind == 'CronJob' ? o.spec.jobTemplate.spec.template"
            " : o.spec.template).?metadata.orValue({}))]]))"
        ),
        # A pod that runs has a node's name; and KAI's binder names the node of its reservation pods on every platform.
        "node_was_chosen": (
            "object.kind == 'Pod' && (request.operation != 'CREATE' || (request.namespace == "
            f"{literal(reservation.NAMESPACE)} && request.userInfo.username == {literal(binder(settings))}))"
        ),
    }


def _long(checks: Sequence[Check]) -> dict[str, str]:
    """What is too long to be looked into: of each object lists of `[text, list]`, and the texts of new ones."""
    pods: list[str] = [*_CONTAINERS, "volumes"]
    containers: list[str] = []
    for check in checks:
        match check.place:
            case Place.POD:
                pods += _lists(check)
            case Place.CONTAINERS:
                containers += _lists(check)
            case Place.ENVIRONMENT:
                containers.append("env")
            case _:
                pass

    def of(box: str, fields: Sequence[str]) -> str:
        return " + ".join(
            f"({_is_long(f'{box}[1]', field)} ? [[dyn({box}[0] + "
            f"{literal(f'.{field} has more than {_most(field)} entries')}), dyn({box}[1].{field})]] : [])"
            for field in dict.fromkeys(fields)
        )

    new, old = (
        f"(variables.long_annotations[{index}] + (variables.annotations_alone ? [] : "
        f"variables.long_in_pods[{index}] + variables.long_in_containers[{index}]))"
        for index in (0, 1)
    )
    return {
        "long_in_pods": f"variables.specs.map(p, [{of('p', pods)}])",
        "long_in_containers": f"variables.containers.map(bs, bs.map(b, {of('b', containers)}))",
        "long_annotations": f"variables.annotations.map(bs, bs.map(b, {of('b', [_ANNOTATIONS])}))",
        # What changes in such a list nobody sees, so it has to be the same.
        "too_long": (
            f"{new}.map(l, l.filter(f, oldObject == null || !{old}.exists(o, f in o)).map(f, f[0]))"
            ".filter(l, l.size() > 0).map(l, l.join('; ')).join('; ')"
        ),
    }


def _lists(check: Check) -> list[str]:
    return [field.partition("[]")[0] for field in check.fields if "[]" in field]


def _is_long(place: str, field: str) -> str:
    return f"size({place}{_optional(field)}.orValue({_empty(field)})) > {_most(field)}"


def _short(place: str, field: str) -> str:
    """A list or map, or an empty one in place of one that is too long to be looked into."""
    empty = _empty(field)
    return f"({_is_long(place, field)} ? {empty} : {place}{_optional(field)}.orValue({empty}))"


def _empty(field: str) -> str:
    return "{}" if field in {_ANNOTATIONS, _LIMITS} else "[]"


def _most(field: str) -> int:
    return MAX_CONTAINERS if field in _CONTAINERS else MAX_ENTRIES


_BOXES = {
    Place.POD: "pods",
    Place.CONTAINERS: "containers",
    Place.ENVIRONMENT: "containers",
    Place.HANDLERS: "containers",
    Place.CONTEXTS: "contexts",
    Place.VOLUMES: "volumes",
    Place.ANNOTATIONS: "annotations",
}


def _check(settings: StackSettings, check: Check) -> str:
    """For each object a list with the texts of each box."""
    fields = check.fields
    if check.place is Place.CONTEXTS:
        fields = tuple(f"securityContext.{field}" for field in fields)
    elif check.place is Place.HANDLERS:
        fields = tuple(f"{handler}.{field}" for handler in table.HANDLERS for field in fields)
    texts = _texts(check, fields)
    lifted = [f"({condition})" for condition in _lifted(settings, check)]
    if lifted:
        texts = f"{' || '.join(lifted)} ? [] : {texts}"
    return f"variables.{_BOXES[check.place]}.map(bs, bs.map(b, {texts}))"


def _texts(check: Check, fields: Sequence[str]) -> str:
    """The texts that the fields of box `b` give."""
    because = literal(f" ({check.rule}: {check.why}; {check.remedy})")
    if check.place is Place.ANNOTATIONS:
        ends = [field.partition("*")[::2] for field in fields]
        is_one = f"{literal(ends)}.exists(e, k.startsWith(e[0]) && k.endsWith(e[1]))"
        return (
            f"{_short('b[1]', _ANNOTATIONS)}.filter(k, {is_one}"
            f" && [b[1].annotations[?k]].exists(v, {_bad(check.allowed, 'v')})).map(k,"
            f" b[0] + '.annotations[' + k + '] is ' + b[1].annotations[k] + {because})"
        )
    # One filter for all fields: what the API server takes to compile a check grows with its comprehensions.
    single = [field for field in fields if check.place is not Place.ENVIRONMENT and "[]" not in field]
    pairs = [f"[{', '.join(_pair(field, f'b[1]{_optional(field)}') for field in single)}]"] if single else []
    pairs += [_pairs_of_items(check.place, field) for field in fields if field not in single]
    return (
        f"({' + '.join(pairs)}).filter(f, {_bad(check.allowed, 'f[1]')})"
        f".map(f, b[0] + f[0] + {_shown(check.allowed, 'f[1]')} + {because})"
    )


def _pair(place: str, value: str) -> str:
    """A field's path, and its optional value."""
    return f"[dyn({literal(f'.{place} is ')}), dyn({value})]"


def _pairs_of_items(place: Place, field: str) -> str:
    """A pair for each item of a list of box `b`."""
    if place is Place.ENVIRONMENT:
        # Beside an empty value the API server takes valueFrom.
        pair = _pair(f"env[{field}]", "has(i.valueFrom) ? optional.of(dyn('from elsewhere')) : i.?value")
        return f"{_short('b[1]', 'env')}.filter(i, i.name == {literal(field)}).map(i, {pair})"
    path, _, rest = field.partition("[]")
    item = f"i{_optional(rest[1:])}" if rest else "optional.of(i)"
    return f"{_short('b[1]', path)}.map(i, {_pair(path + rest, item)})"


def _optional(path: str) -> str:
    return "".join(f".?{key}" for key in path.split("."))


def _bad(allowed: language.Allowed, v: str) -> str:  # noqa: PLR0911 - one for each kind
    """Whether an optional value is there and forbidden."""
    match allowed:
        case language.OneOf(values):
            return f"{v}.hasValue() && !({v}.value() in {literal(sorted(values))})"
        case language.NotTrue():
            return f"{v}.orValue(false)"
        case language.Zero():
            return f"{v}.orValue(0) != 0"
        case language.Absent():
            return f"{v}.hasValue()"
        case language.Begins(prefixes):
            return f"{v}.orValue('') != '' && !{literal(list(prefixes))}.exists(p, {v}.value().startsWith(p))"
        case language.BeginsNot(prefix):
            return f"{v}.orValue('').startsWith({literal(prefix)})"
        case language.NoStartOf(text):
            return f"{v}.orValue('') != '' && {literal(text)}.startsWith({v}.value())"
        case language.Pinned():
            tagged = f"{v}.value().matches({literal(f'^{table.TAGGED}$')})"
            latest = f"{v}.value().matches({literal(f'^{table.LATEST}$')})"
            digest = f"{v}.value().contains({literal(table.DIGEST)})"
            return f"{v}.orValue('') != '' && !{digest} && (!{tagged} || {latest})"


def _shown(allowed: language.Allowed, v: str) -> str:
    """A forbidden value as a text; without `dyn` the compiler takes the first kind that `string` is for."""
    match allowed:
        case language.Absent(shown) if shown:
            return f"string(dyn({v}.value()).?{shown}.orValue('there'))"
        case _:
            return f"string(dyn({v}.value()))"


def _lifted(settings: StackSettings, check: Check) -> list[str]:
    """What keeps a check from looking at box `b`: the table's own conditions, and the platform's grants."""
    conditions: list[str] = []
    match check.unless:
        case Unless.OWN_USERS:
            conditions.append("!b[2].spec.?hostUsers.orValue(true)")
        case Unless.GPU_REQUESTED:
            conditions += [
                f"{_short('b[1]', key)}.exists(c, {_short('c', _LIMITS)}.exists(k,"
                f" k.matches({literal(f'^{table.GPU_RESOURCES}$')}) && {_positive('c.resources.limits[k]')}))"
                for key in ("containers", "initContainers")
            ]
            conditions.append(_fraction())
            if settings.kai.gpu_sharing_mode is GpuSharingMode.NV_FRACTIONS:
                conditions.append(_container_memory())
        case Unless.WRITTEN_BY_KAI:
            conditions.append(
                "object.kind == 'Pod' && request.operation == 'UPDATE'"
                f" && request.userInfo.username == {literal(binder(settings))}"
            )
        case Unless.GIVEN_BY_KAI if settings.kai.gpu_sharing_mode is not GpuSharingMode.NV_FRACTIONS:
            # Ephemeral containers come later, when KAI does not look any more.
            named, of = f"b[2].metadata.annotations[?{literal(table.FRACTION_CONTAINER)}]", literal(table.OF_CONTAINER)
            annotations = _short("b[2].metadata", _ANNOTATIONS)
            of_no_other = f"{annotations}.all(k, !k.startsWith({of}) || k.startsWith({of} + b[1].name + '.'))"
            conditions.append(
                f"{_fraction()} && !b[0].contains('.ephemeralContainers[') && b[1].name == {named}"
                f".orValue(b[2].spec.containers[0].name) && ({named}.hasValue() || {of_no_other})"
            )
        case Unless.GIVEN_BY_KAI | None:
            pass
    match check.name:
        case "privileged":
            conditions.append(may_be_privileged(settings, "b[2]", "b[3]"))
        case "host_paths":
            conditions.append("b[3]")
        case "node_names":
            conditions += ["b[3]", "variables.node_was_chosen"]
        case _:
            pass
    return conditions


def _fraction() -> str:
    """Whether the pod of box `b` has a fraction that KAI gives it."""
    amount = _positive("b[2].?metadata.?annotations[?k].orValue('')")
    return (
        f"b[2].spec.?schedulerName.orValue('') == {literal(table.KAI_SCHEDULER)}"
        f" && {literal(sorted(table.FRACTIONS))}.exists(k, {amount})"
    )


def _container_memory() -> str:
    """Whether a container of box `b`'s pod is given GPU memory by NvFractions' own annotations."""
    prefix, keys = table.CONTAINER_MEMORY
    amount = f"b[2].?metadata.?annotations[?{literal(prefix)} + c.name + key].orValue('')"
    has_memory = f"{literal(list(keys))}.exists(key, {_positive(amount)})"
    return (
        f"b[2].spec.?schedulerName.orValue('') == {literal(table.KAI_SCHEDULER)}"
        f" && ({_short('b[2].spec', 'containers')} + {_short('b[2].spec', 'initContainers')}).exists(c, {has_memory})"
    )


def _positive(quantity: str) -> str:
    return f"string({quantity}).matches({literal(f'^{table.POSITIVE}$')})"
