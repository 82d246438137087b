"""What is added to KAI's reservation pods on Tegra nodes.

KAI's Config carries a runtime class and security contexts for these pods, cluster-wide, but neither environment nor
volumes (KAI v0.18, API kai/v1/binder/binder.go); a privileged pod on a multi-GPU x86 node sees every GPU and
refuses to work. So everything is added at admission, per node: how much, reservation.privilege says.
"""

from collections.abc import Sequence

from config.admission import Webhook
from config.reservation import Privilege
from config.stack import StackSettings
from manifests.admission_objects import (
    POD_CREATION,
    apply_configuration,
    json_patch,
    mutating_binding,
    mutating_policy,
)
from manifests.cel import constructor, literal
from manifests.mutations import Fragment, Mutation, Pods
from manifests.node_labels import PLATFORM, PLATFORM_TEGRA
from manifests.objects import Manifest, StackObject, namespace

NAMESPACE = "kai-resource-reservation"
APP_LABEL = "kai-resource-reservation"
SERVICE_ACCOUNT = "kai-resource-reservation"
CONTAINER = "resource-reservation"
"""The pod's only container (KAI v0.18, pkg/binder/binding/resourcereservation)."""
RUNTIME_CLASS = "nvidia"
"""Created by the GPU Operator's ClusterPolicy."""
SECURITY_CONTEXT = {"privileged": True, "allowPrivilegeEscalation": True, "runAsNonRoot": False, "runAsUser": 0}
"""What the container gets on Tegra: every field that KAI sets since v0.15. `privileged: true` alone is rejected beside
its `allowPrivilegeEscalation: false`, and its uid 10000 can't open the device files."""
OVERRIDES = "kai-anywhere-reservation-overrides"
NODES_OF_THE_RUNG = "the-node-is-on-this-rung"
"""The match condition of a policy whose rung is not that of all Tegra nodes."""
WITH_HOST_PATHS = frozenset({Privilege.PRIVILEGED, Privilege.DEVICES})
"""Rungs whose pods Pod Security's baseline refuses."""
IN_NAMESPACE = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
"""Selects the reservation pods' namespace, by a label that the API server sets itself."""


def objects(settings: StackSettings) -> dict[str, StackObject]:
    """The namespace, and the overrides where a policy carries them: a policy for each rung that nodes are on."""
    stack_objects = {"namespace": StackObject(reservation_namespace(settings))}
    # A webhook is the admission server's.
    if Webhook.RESERVATION not in settings.webhooks:
        for rung in nodes_by_privilege(settings):
            suffix = _suffix(settings, rung)
            stack_objects[f"policy{suffix}"] = StackObject(overrides_policy(settings, rung))
            stack_objects[f"binding{suffix}"] = StackObject(overrides_binding(settings, rung), (f"policy{suffix}",))
    return stack_objects


def nodes_by_privilege(settings: StackSettings) -> dict[Privilege, list[str]]:
    """The nodes of each rung that there is, by rung, the most powerful first; empty without overrides."""
    nodes: dict[Privilege, list[str]] = {}
    for (rung, _), listed in variants(settings).items():
        nodes[rung] = sorted([*nodes.get(rung, []), *listed])
    return nodes


def variants(settings: StackSettings) -> dict[tuple[Privilege, tuple[str, ...]], list[str]]:
    """The nodes by what their reservation pods get: the rung, and the folders of the driver's libraries.

    The most powerful rung first, and of a rung the platform's own folders last; empty without overrides.
    """
    platform = settings.overridden_platform
    if platform is None:
        return {}
    nodes: dict[tuple[Privilege, tuple[str, ...]], list[str]] = {}
    for node, rung in settings.privileges.items():
        nodes.setdefault((rung, platform.library_folders(node)), []).append(node)
    order = [*Privilege]
    usual = (platform.driver_library_path,)
    return {key: nodes[key] for key in sorted(nodes, key=lambda key: (order.index(key[0]), key[1] == usual, key[1]))}


def tegra_fragment(settings: StackSettings, rung: Privilege, folders: Sequence[str] = ()) -> Fragment:
    """Everything that a reservation pod on Tegra has beyond what KAI gives it; carriers render it.

    Symptom without it: the pod dies with `ERROR_LIBRARY_NOT_FOUND`, then `Driver Not Loaded`, since the container
    toolkit mounts neither libraries nor devices. Seen on Jetson Thor with k3s; KAI up to v0.17.0; v0.18 makes
    the same pod.
    A toolkit from 1.19 on injects both, with the groups of the devices (NVIDIA Container Toolkit v1.20.0,
    internal/edits/device.go): there a lower rung does. The variables are those of every rung: they give no power, and
    KAI's image has no ldconfig that would find libraries.

    Args:
        settings: the settings of a Tegra stack with overrides.
        rung: how much the pod gets.
        folders: of the driver's libraries, of nodes that say them; the others have the platform's. A pod has them under
            the same paths: links are absolute.
    """
    platform = settings.overridden_platform
    if platform is None:
        raise ValueError("a stack without overrides adds nothing to reservation pods")
    folders = folders or (platform.driver_library_path,)
    mounts: list[tuple[str, str, dict[str, bool]]] = []
    if rung in WITH_HOST_PATHS:
        mounts += [
            (f"nvidia-libs-{number}" if number > 1 else "nvidia-libs", path, {"readOnly": True})
            for number, path in enumerate(folders, 1)
        ]
    if rung is Privilege.PRIVILEGED:
        mounts.append(("dev-nvidia", platform.device_path, {}))
    # Root needs no groups.
    groups = settings.reservation.supplemental_groups if rung is not Privilege.PRIVILEGED else []
    return Fragment(
        # CEL's merge key: without it the pod's container would stay as it was, without an error.
        container=CONTAINER,
        container_missing=(
            f"a reservation pod on the Tegra node {{node}} needs a container named {CONTAINER!r}, as KAI makes it; "
            f"this one has: {{containers}}. Another program's pod does not belong into the namespace {NAMESPACE} with "
            "these labels."
        ),
        runtime_class_name=RUNTIME_CLASS,
        env=[
            {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
            {"name": "LD_LIBRARY_PATH", "value": ":".join(folders)},
        ],
        volumes=[{"name": name, "hostPath": {"path": path, "type": "Directory"}} for name, path, _ in mounts],
        volume_mounts=[{"name": name, "mountPath": path} | read_only for name, path, read_only in mounts],
        security_context=dict(SECURITY_CONTEXT) if rung is Privilege.PRIVILEGED else {},
        pod_security_context={"supplementalGroups": groups} if groups else {},
    )


def reservation_namespace(settings: StackSettings) -> Manifest:
    """The namespace of the reservation pods.

    Ours, since KAI's chart labels it only when it creates it: Pod Security judges the pod after our overrides, so a
    stack whose rungs mount host folders needs `privileged`; everywhere else KAI's own pod fits `baseline`.
    """
    rungs = {*settings.privileges.values()}
    return namespace(NAMESPACE, pod_security="privileged" if rungs & WITH_HOST_PATHS else "baseline")


def overrides_policy(settings: StackSettings, rung: Privilege) -> Manifest:
    """The carrier `policy`: a MutatingAdmissionPolicy that adds a rung's fragment.

    ApplyConfiguration merges containers, env and volumes by name and volumeMounts by path, so a second round changes
    nothing. A reservation pod without libraries only crash-loops: refusing it says why. Where nodes are on several
    rungs the policy names its own: a kubelet may label its node, but not move it to another rung.
    """
    constraints = {
        "namespaceSelector": IN_NAMESPACE,
        "objectSelector": {"matchLabels": {"app": APP_LABEL}},
        "resourceRules": [POD_CREATION],
    }
    # KAI sets nodeName itself; CEL can't look a node up, so the node comes as the parameter.
    conditions = {
        "the-pod-goes-to-this-node": "has(object.spec.nodeName) && object.spec.nodeName == params.metadata.name"
    }
    if len(variants(settings)) > 1:
        nodes = nodes_by_privilege(settings)[rung]
        conditions[NODES_OF_THE_RUNG] = f"params.metadata.name in {literal(nodes)}"
    fragment = tegra_fragment(settings, rung)
    mutations = [apply_configuration(_by_node(settings, rung))]
    if groups := fragment.pod_security_context.get("supplementalGroups"):
        # ApplyConfiguration refuses lists without keys. The API server itself gives every pod a security context.
        path = "/spec/securityContext/supplementalGroups"
        mutations.append(json_patch(f"[JSONPatch{{op: 'add', path: '{path}', value: {literal(groups)}}}]"))
    return mutating_policy(
        settings,
        f"{OVERRIDES}{_suffix(settings, rung)}",
        constraints,
        mutations,
        conditions=conditions,
        parameter="Node",
    )


def mutation(settings: StackSettings) -> Mutation:
    """The mutation for the carrier `webhook`.

    Namespace and labels are in it, so that the server gives no privilege outside of them, whatever its webhook selects.
    """
    pods = Pods(namespace=NAMESPACE, labels={"app": APP_LABEL}, node_labels={PLATFORM: PLATFORM_TEGRA})
    nodes = variants(settings)
    fragments = {_name(*variant): tegra_fragment(settings, *variant) for variant in nodes}
    if len(fragments) == 1:
        return Mutation(pods=pods, fragments={"": next(iter(fragments.values()))})
    by_node = {node: _name(*variant) for variant, listed in nodes.items() for node in listed}
    return Mutation(pods=pods, fragments=fragments, by_node=by_node)


def overrides_binding(settings: StackSettings, rung: Privilege) -> Manifest:
    """Bind a rung's policy to the nodes with our platform label; no such node means no mutation."""
    nodes = {"matchLabels": {PLATFORM: PLATFORM_TEGRA}}
    policy = f"{OVERRIDES}{_suffix(settings, rung)}"
    return mutating_binding(settings, policy, {"selector": nodes, "parameterNotFoundAction": "Allow"})


def _suffix(settings: StackSettings, rung: Privilege) -> str:
    """What the names of a rung's objects end with; those of the stack's own rung have none."""
    return "" if rung is settings.reservation.privilege else f"-{rung.value}"


def _name(rung: Privilege, folders: Sequence[str]) -> str:
    """What a variant is called in the admission server's document."""
    return ":".join((rung.value, *folders))


def _by_node(settings: StackSettings, rung: Privilege) -> str:
    """What is merged on the nodes of a rung, by their folders.

    The object is written out whole for each: the policy pack judges what an expression says, not what it computes.
    """
    *others, (_, last) = [(nodes, key) for key, nodes in variants(settings).items() if key[0] is rung]
    choices = [
        f"object.spec.nodeName in {literal(nodes)} ? {_apply_configuration(tegra_fragment(settings, *variant))} : "
        for nodes, variant in others
    ]
    return "".join(choices) + _apply_configuration(tegra_fragment(settings, *last))


def _apply_configuration(fragment: Fragment) -> str:
    container: Manifest = {"name": fragment.container, "env": fragment.env}
    spec: Manifest = {"runtimeClassName": fragment.runtime_class_name}
    if fragment.volumes:
        spec["volumes"] = fragment.volumes
        container["volumeMounts"] = fragment.volume_mounts
    if fragment.security_context:
        container["securityContext"] = fragment.security_context
    return constructor({"spec": spec | {"containers": [container]}})
