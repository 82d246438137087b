"""What the platform grants, and to whom: reservation objects on Tegra, as far as a node's rung goes."""

import json
import re

from policy.reading import Path, dict_of, list_of, one_of, text_of
from policy.stack_platform import (
    NONE,
    OVERRIDES,
    PLATFORM_LABEL,
    RESERVATION,
    RESERVATION_CONTAINER,
    RESERVATION_MUTATION,
    SERVER_SETTINGS,
    TEGRA,
    StackFacts,
)
from policy.workloads import CONTAINER_LISTS, Document

_IN_RESERVATION = {"matchLabels": {"kubernetes.io/metadata.name": RESERVATION}}
_RESERVATION_PODS = {"matchLabels": {"app": RESERVATION}}
_POD_CREATION = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
_THIS_NODE = "has(object.spec.nodeName) && object.spec.nodeName == params.metadata.name"
_GROUPS = ("podSecurityContext", frozenset({"supplementalGroups"}))
"""Where the document of the admission server has groups: no power over a node."""
_IMAGES = "(resourcereservation|resource-reservation)[:@][^/]+"
"""KAI's program: the published image's name, and the one that KAI's code falls back to (v0.17.0), tagged or pinned."""
_NO_WAY_IN = frozenset(
    {
        "command",
        "args",
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "envFrom",
        "volumeDevices",
    }
)
"""What would let a granted container run something else than KAI's own program."""
_ENVIRONMENT = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"}
"""KAI's own variables, and the field of the pod that each shows (v0.17, v0.18)."""
_ACCOUNT_FILES = "/var/run/secrets/kubernetes.io/serviceaccount"
_WRITES_SPEC = re.compile(r"""\bObject\.spec\b|["']/spec\b""")
"""A policy's expression that writes more than metadata; a computed path is a finding of its own."""
_MOUNT_KEYS = frozenset({"name", "mountPath", "readOnly"})


def allows(document: Document, rule: str, path: Path, stack: StackFacts) -> bool:
    """Whether the platform grants what a rule found.

    Args:
        document: the object with the finding.
        rule: the rule's name.
        path: of the finding.
        stack: the stack.
    """
    if not stack.tegra_nodes:
        return False
    if document.outer is not None:
        # Which node's it is, the guard in the cluster asks for each pod.
        nodes = _overridden_nodes(document.outer, stack)
        return any(within(document.root, stack.fragment(node)) for node in nodes)
    if document.path[:2] == SERVER_SETTINGS:
        place = (*document.path, *RESERVATION_MUTATION)
        return path[: len(place)] == place and _reservation_mutation(document) == stack.reservation_mutation()
    return _granted_to_pod(rule, path) and _is_reservation_pod(document, stack)


def _reservation_mutation(document: Document) -> dict[str, object]:
    """What the admission server adds to reservation pods, without groups and the text of its refusal.

    And without `rewrite`, which gives an annotation of theirs another value, and a pod no power.
    """
    mutation = dict_of(dict_of(document.root.get("mutations")).get("reservation"))
    fragments = {
        name: {
            key: value
            for key, value in dict_of(fragment).items()
            if key != "containerMissing" and (key, frozenset(dict_of(value))) != _GROUPS
        }
        for name, fragment in dict_of(mutation.get("fragments")).items()
    }
    added = {key: value for key, value in mutation.items() if key != "rewrite"}
    return added | {"fragments": fragments}


def is_overrides_policy(document: Document, stack: StackFacts) -> bool:
    """Whether this is an admission policy of ours, with a scope no wider than reservation pods on Tegra nodes."""
    return bool(_overridden_nodes(document, stack))


def _overridden_nodes(document: Document, stack: StackFacts) -> frozenset[str]:
    """The nodes whose reservation pods our admission policy changes; none if it is not ours, or its scope is wider."""
    spec = dict_of(document.root.get("spec"))
    constraints = dict_of(spec.get("matchConstraints"))
    expressions = [dict_of(condition).get("expression") for condition in list_of(spec.get("matchConditions"))]
    nodes = stack.overrides.get(document.name, frozenset())
    these_nodes = f"params.metadata.name in {json.dumps(sorted(nodes))}"
    is_ours = (
        document.is_only("MutatingAdmissionPolicy")
        and spec.get("failurePolicy") == "Fail"
        and spec.get("paramKind") == {"apiVersion": "v1", "kind": "Node"}
        and constraints.get("namespaceSelector") == _IN_RESERVATION
        and constraints.get("objectSelector") == _RESERVATION_PODS
        and [_without_defaults(rule) for rule in list_of(constraints.get("resourceRules"))] == _POD_CREATION
        and _THIS_NODE in expressions
        and (len(stack.overrides) == 1 or these_nodes in expressions)
    )
    return nodes if is_ours else frozenset()


def binds_overrides_elsewhere(document: Document) -> bool:
    """Whether a binding of that policy, whatever its name, selects other nodes than those with our platform label."""
    spec = dict_of(document.root.get("spec"))
    ours = any(name.startswith(OVERRIDES) for name in (text_of(spec.get("policyName")), document.name))
    selector = dict_of(spec.get("paramRef")).get("selector")
    return ours and selector != {"matchLabels": {PLATFORM_LABEL: TEGRA}}


def writes_reservation_pods(document: Document, stack: StackFacts) -> bool:
    """Whether another admission policy than ours writes the spec of pods, those of KAI's reservation included.

    Their guard refuses what comes out of it; without the guard it would be a privileged pod of somebody's own making.
    Match conditions are not looked at: what they say is known with a request only.
    """
    if not stack.grants or is_overrides_policy(document, stack):
        return False
    spec = dict_of(document.root.get("spec"))
    constraints = dict_of(spec.get("matchConstraints"))
    return (
        any(map(_is_about_pods, list_of(constraints.get("resourceRules"))))
        and _may_select(constraints.get("namespaceSelector"), _IN_RESERVATION["matchLabels"])
        and _may_select(constraints.get("objectSelector"), _RESERVATION_PODS["matchLabels"])
        and any(_WRITES_SPEC.search(text_of(field.value)) for field in document.fields("expression"))
    )


def _is_about_pods(rule: object) -> bool:
    fields = dict_of(rule)
    groups, resources = ({text_of(item) for item in list_of(fields.get(key))} for key in ("apiGroups", "resources"))
    return not groups.isdisjoint({"", "*"}) and not resources.isdisjoint({"pods", "*", "*/*"})


def _may_select(selector: object, labels: dict[str, str]) -> bool:
    """Whether a label selector takes an object with these labels, and with others only where it asks for none."""
    for key, value in dict_of(dict_of(selector).get("matchLabels")).items():
        if labels.get(key) != value:
            return False
    for requirement in map(dict_of, list_of(dict_of(selector).get("matchExpressions"))):
        value, values = labels.get(text_of(requirement.get("key"))), list_of(requirement.get("values"))
        match requirement.get("operator"):
            case "In" if value not in values:
                return False
            case "NotIn" if value in values:
                return False
            case "Exists" if value is None:
                return False
            case "DoesNotExist" if value is not None:
                return False
            case _:
                pass
    return True


def is_reservation_namespace(document: Document) -> bool:
    """Whether this is the reservation pods' namespace."""
    return document.is_only("Namespace") and document.name == RESERVATION


def within(value: object, granted: object) -> bool:
    """Whether a value says nothing that the granted one does not say."""
    match value, granted:
        case dict(), dict():
            return all(key in granted and within(item, granted[key]) for key, item in value.items())
        case list(), list():
            return all(any(within(item, allowed) for allowed in granted) for item in value)
        case _:
            return type(value) is type(granted) and value == granted


def _without_defaults(rule: object) -> object:
    """A resource rule without what the API server fills in."""
    return {key: value for key, value in dict_of(rule).items() if (key, value) != ("scope", "*")}


def _is_reservation_pod(document: Document, stack: StackFacts) -> bool:
    """KAI's own pod on a Tegra node: its namespace, label, node, account and program, and nothing foreign in it."""
    labels = dict_of(document.metadata.get("labels"))
    spec = dict_of(document.root.get("spec"))
    node = text_of(spec.get("nodeName"))
    granted = dict_of(stack.fragment(node)["spec"])
    containers = [container for pod in document.pods for _, container in pod.containers()]
    return (
        document.is_only("Pod")
        and document.namespace == RESERVATION
        and labels.get("app") == RESERVATION
        and one_of(spec.get("nodeName"), stack.tegra_nodes)
        and stack.rung_of(node) != NONE
        and spec.get("serviceAccountName") == RESERVATION
        and spec.get("runtimeClassName") == granted["runtimeClassName"]
        and not spec.get("resourceClaims")
        and [key for key in CONTAINER_LISTS if spec.get(key)] == ["containers"]
        and len(containers) == 1
        and _is_reservation_container(containers[0], dict_of(list_of(granted["containers"])[0]), stack)
        and all(_is_volume(dict_of(volume), granted) for volume in list_of(spec.get("volumes")))
    )


def _is_reservation_container(container: dict[str, object], granted: dict[str, object], stack: StackFacts) -> bool:
    mounts = [dict_of(mount) for mount in list_of(container.get("volumeMounts"))]
    granted_mounts = [{"readOnly": False} | dict_of(mount) for mount in list_of(granted["volumeMounts"])]
    return (
        container.get("name") == RESERVATION_CONTAINER
        and _NO_WAY_IN.isdisjoint(container)
        and re.fullmatch(f"{re.escape(stack.registry)}/{_IMAGES}", text_of(container.get("image"))) is not None
        and all(_is_variable(dict_of(variable), granted) for variable in list_of(container.get("env")))
        and all(
            _MOUNT_KEYS.issuperset(mount)
            and (mount.get("mountPath") == _ACCOUNT_FILES or {"readOnly": False} | mount in granted_mounts)
            for mount in mounts
        )
    )


def _is_volume(volume: dict[str, object], granted: dict[str, object]) -> bool:
    """Whether a volume is one of the overrides', or projected under another name: as one of theirs it were a driver."""
    ours = _item_named(granted["volumes"], volume)
    return set(volume) == {"name", "projected"} if ours is None else within(volume, ours)


def _is_variable(variable: dict[str, object], granted: dict[str, object]) -> bool:
    """Whether a variable is one of the overrides', or one of KAI's own."""
    source = variable.get("valueFrom")
    match variable.get("name"):
        case "GODEBUG":
            # KAI sets it with global.fipsMode: only (v0.18).
            return source is None
        case str(name) if name in _ENVIRONMENT:
            return dict_of(dict_of(source).get("fieldRef")).get("fieldPath") == _ENVIRONMENT[name]
        case _:
            return variable in list_of(granted["env"])


def _granted_to_pod(rule: str, path: Path) -> bool:
    match rule, path:
        case "privileged", ("spec", "containers", 0, "securityContext", "privileged"):
            return True
        case "scheduling", ("spec", "nodeName"):
            return True
        case "host-paths", ("spec", "volumes", int(), "hostPath", *_):
            return True
        case _:
            return False


def _item_named(items: object, like: object) -> object:
    name = dict_of(like).get("name")
    return next((item for item in list_of(items) if dict_of(item).get("name") == name), None)
