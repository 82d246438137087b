"""What the platform grants, and to whom: reservation objects on Tegra, and nothing else."""

from policy.reading import Path, dict_of, list_of, one_of, text_of
from policy.stack_platform import (
    OVERRIDES,
    PLATFORM_LABEL,
    RESERVATION,
    RESERVATION_CONTAINER,
    RESERVATION_FILE,
    TEGRA,
    StackFacts,
)
from policy.workloads import CONTAINER_LISTS, Document

_IN_RESERVATION = {"matchLabels": {"kubernetes.io/metadata.name": RESERVATION}}
_RESERVATION_PODS = {"matchLabels": {"app": RESERVATION}}
_POD_CREATION = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
_THIS_NODE = "has(object.spec.nodeName) && object.spec.nodeName == params.metadata.name"
_IMAGES = frozenset({"resourcereservation", "resource-reservation"})
"""KAI's program: the published image's name, and the one that KAI's code falls back to (v0.17.0)."""
_NO_WAY_IN = frozenset({"command", "args", "lifecycle", "envFrom"})
"""What would let a granted container run something else than KAI's own program."""
_WRITABLE: dict[str, object] = {"readOnly": False}
"""What a mount is that does not say it."""


def allows(document: Document, rule: str, path: Path, stack: StackFacts) -> bool:
    """Whether the platform grants what a rule found.

    Args:
        document: the object with the finding.
        rule: the rule's name.
        path: of the finding.
        stack: the stack.
    """
    if not stack.grants:
        return False
    if document.outer is not None:
        return is_overrides_policy(document.outer, stack) and within(document.root, stack.fragment())
    if document.path[:2] == RESERVATION_FILE:
        return document.root == stack.reservation_file()
    return _is_reservation_pod(document, stack) and _granted_to_pod(document, rule, path, stack)


def is_overrides_policy(document: Document, stack: StackFacts) -> bool:
    """Whether this is our admission policy, with a scope no wider than reservation pods on Tegra nodes."""
    spec = dict_of(document.root.get("spec"))
    constraints = dict_of(spec.get("matchConstraints"))
    expressions = [dict_of(condition).get("expression") for condition in list_of(spec.get("matchConditions"))]
    return (
        stack.grants
        and document.is_only("MutatingAdmissionPolicy")
        and document.name == OVERRIDES
        and spec.get("failurePolicy") == "Fail"
        and spec.get("paramKind") == {"apiVersion": "v1", "kind": "Node"}
        and constraints.get("namespaceSelector") == _IN_RESERVATION
        and constraints.get("objectSelector") == _RESERVATION_PODS
        and [_without_defaults(rule) for rule in list_of(constraints.get("resourceRules"))] == _POD_CREATION
        and _THIS_NODE in expressions
    )


def is_overrides_binding(document: Document) -> bool:
    """Whether a binding of that policy selects nodes with our platform label."""
    parameters = dict_of(dict_of(document.root.get("spec")).get("paramRef"))
    return parameters.get("selector") == {"matchLabels": {PLATFORM_LABEL: TEGRA}}


def is_reservation_namespace(document: Document) -> bool:
    """Whether this is the reservation pods' namespace."""
    return document.is_only("Namespace") and document.name == RESERVATION


def within(value: object, granted: object) -> bool:
    """Whether a value says nothing that the granted one does not say."""
    match value, granted:
        case dict(), dict():
            return all(key in granted and within(item, granted[key]) for key, item in value.items())
        case list(), list():
            return all(any(within(item, other) for other in granted) for item in value)
        case _:
            return type(value) is type(granted) and value == granted


def _without_defaults(rule: object) -> object:
    """A resource rule without what the API server fills in."""
    return {key: value for key, value in dict_of(rule).items() if (key, value) != ("scope", "*")}


def _is_reservation_pod(document: Document, stack: StackFacts) -> bool:
    """KAI's own pod on a Tegra node: its namespace, label, node, account and program."""
    labels = dict_of(document.metadata.get("labels"))
    spec = dict_of(document.root.get("spec"))
    containers = [container for pod in document.pods for _, container in pod.containers()]
    return (
        document.is_only("Pod")
        and document.namespace == RESERVATION
        and labels.get("app") == RESERVATION
        and one_of(spec.get("nodeName"), stack.tegra_nodes)
        and spec.get("serviceAccountName") == RESERVATION
        and [key for key in CONTAINER_LISTS if spec.get(key)] == ["containers"]
        and len(containers) == 1
        and containers[0].get("name") == RESERVATION_CONTAINER
        and _NO_WAY_IN.isdisjoint(containers[0])
        and _image_name(text_of(containers[0].get("image"))) in _IMAGES
    )


def _image_name(reference: str) -> str:
    """The last part of an image's path, without tag and digest."""
    return reference.rpartition("/")[2].partition("@")[0].partition(":")[0]


def _granted_to_pod(document: Document, rule: str, path: Path, stack: StackFacts) -> bool:
    fragment = dict_of(stack.fragment()["spec"])
    spec = dict_of(document.root.get("spec"))
    match rule, path:
        case "privileged", ("spec", "containers", 0, "securityContext", "privileged"):
            return True
        case "scheduling", ("spec", "nodeName"):
            return True
        case "host-paths", ("spec", "volumes", int(index), "hostPath", *_):
            volumes = list_of(spec.get("volumes"))
            mounts = dict_of(list_of(spec.get("containers"))[0]).get("volumeMounts")
            granted = dict_of(list_of(fragment["containers"])[0])["volumeMounts"]
            name = dict_of(volumes[index]).get("name")
            ours = [_WRITABLE | mount for mount in map(dict_of, list_of(mounts)) if mount.get("name") == name]
            readable = [_WRITABLE | dict_of(mount) for mount in list_of(granted)]
            return within(volumes[index], _item_named(fragment["volumes"], volumes[index])) and within(ours, readable)
        case _:
            return False


def _item_named(items: object, like: object) -> object:
    name = dict_of(like).get("name")
    return next((item for item in list_of(items) if dict_of(item).get("name") == name), None)
