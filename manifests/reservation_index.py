"""What KAI tells workloads of a Jetson's one GPU: its index, not its UUID.

A reservation pod writes the UUID of its GPU into its own annotation, and KAI's binder hands workloads whatever stands
there: as `NVIDIA_VISIBLE_DEVICES`, or as the name `k8s.device-plugin.nvidia.com/gpu=GPU-<uuid>` (KAI v0.17.0,
pkg/binder/binding/resourcereservation, pkg/binder/plugins/gpusharing).

Symptom without this: workloads on Tegra fail at their start with `unsupported device id`, or with `unresolvable CDI
devices`. With one GPU the container toolkit knows `all` and `0` there from 1.19 on (1.18 ignores the value), and the
device plugin's specification has no name by UUID. No upstream change up to KAI v0.17.0 and toolkit 1.20.1. A node with
more than one GPU keeps what KAI wrote.
"""

from config.admission import Webhook
from config.platform import TegraPlatform
from config.stack import StackSettings
from manifests import reservation
from manifests.admission_objects import apply_configuration, mutating_binding, mutating_policy, requests
from manifests.cel import literal
from manifests.mutations import Rewrite
from manifests.objects import Manifest, StackObject

INDEX_POLICY = "kai-anywhere-reservation-index"
WRITTEN_BY_KAI = "run.ai/reserve_for_gpu_index"
"""The reservation pod's own annotation (KAI v0.17.0, pkg/common/constants)."""
UUID = "kai-anywhere.io/gpu-uuid"
"""Ours: what stood there."""
ONLY_GPU = "0"
POD_UPDATE = requests(["UPDATE"], ["pods"])


def objects(settings: StackSettings) -> dict[str, StackObject]:
    """The policy and its binding, where a policy carries changes of reservation pods and some node has one GPU."""
    platform = settings.overridden_platform
    if platform is None or Webhook.RESERVATION in settings.webhooks or (change := rewrite(platform)) is None:
        return {}
    return {
        "index-policy": StackObject(policy(settings, change)),
        "index-binding": StackObject(mutating_binding(settings, INDEX_POLICY), ("index-policy",)),
    }


def rewrite(platform: TegraPlatform) -> Rewrite | None:
    """The change, for both carriers; None where every Tegra node has more than one GPU.

    The nodes are named: a kubelet may label its own node.
    """
    nodes = sorted(node for node, tegra in platform.tegra_nodes.items() if tegra.gpu_count == 1)
    return Rewrite(annotation=WRITTEN_BY_KAI, value=ONLY_GPU, kept=UUID, nodes=nodes) if nodes else None


def applies(change: Rewrite) -> str:
    """Whether the pod of an update says something else than it should, in CEL; a second round is none."""
    annotation = f"object.metadata.?annotations[?{literal(change.annotation)}].orValue('')"
    on_node = f"object.spec.?nodeName.orValue('') in {literal(change.nodes)}"
    return f"{on_node} && !({annotation} in {literal(['', change.value])})"


def policy(settings: StackSettings, change: Rewrite) -> Manifest:
    """The carrier `policy`."""
    # Without string() the value is of no type that the merge takes.
    before = f"string(object.metadata.annotations[{literal(change.annotation)}])"
    annotations = f"{{{literal(change.annotation)}: {literal(change.value)}, {literal(change.kept)}: {before}}}"
    constraints = {
        "namespaceSelector": reservation.IN_NAMESPACE,
        "objectSelector": {"matchLabels": {"app": reservation.APP_LABEL}},
        "resourceRules": [POD_UPDATE],
    }
    return mutating_policy(
        settings,
        INDEX_POLICY,
        constraints,
        [apply_configuration(f"Object{{metadata: Object.metadata{{annotations: {annotations}}}}}")],
        conditions={"says-another-gpu": applies(change)},
    )
