"""The KAI scheduler's release and queues."""

from typing import Any

from config.charts import release_line
from config.kai import DEFAULT_PARENT_QUEUE, DEFAULT_QUEUE, GpuSharingMode, QueueSettings, QueueShare
from config.stack import StackSettings
from manifests import reservation
from manifests.objects import HelmRelease, Manifest, StackObject, namespace, resolve_chart
from manifests.tolerations import tolerations
from manifests.versions import KAI_SCHEDULER

RELEASE = "kai-scheduler"
REGISTRY = "ghcr.io/kai-scheduler/kai-scheduler"
"""`global.registry` of the official chart (v0.17.0), where the images are unless a stack says otherwise."""
QUEUE_CONTROLLER = "queue-controller"
"""The Deployment behind the queues' validating webhook, made by KAI's operator (pkg/operator/operands, v0.17.0)."""
DEPLOYMENTS = (
    "kai-operator",
    "kai-scheduler-default",
    "binder",
    "pod-grouper",
    "podgroup-controller",
    QUEUE_CONTROLLER,
    "admission",
)
"""KAI's control plane: the chart's operator, and what it makes (v0.17.0)."""

PRIORITY_CLASSES = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
"""The PriorityClasses of KAI's chart and their values (v0.18.6, templates/priorityclasses)."""

_IMAGES = (
    "operator.image",
    "podgrouper.image",
    "podgroupcontroller.image",
    "binder.image",
    "binder.resourceReservationImage",
    "scheduler.image",
    "queuecontroller.image",
    "admission.image",
    "nodescaleadjuster.image",
    "nodescaleadjuster.scalingPodImage",
    "numaPlacementExporter.image",
    "crdupgrader.image",
    "kaiConfigDeployer.image",
    "topologyMigration.image",
    "postCleanup.image",
)
"""Every image of the chart, hooks included. `global.imagePullPolicy` does not reach the hooks, nor any image with a
policy of its own, which is each of them (KAI v0.17.0, templates/_helpers.tpl)."""


MODES = {
    GpuSharingMode.NON_MEMORY_ENFORCED: "NonMemoryEnforced",
    GpuSharingMode.HAMI_CORE: "HamiCore",
    GpuSharingMode.NV_FRACTIONS: "NvFractions",
    GpuSharingMode.DISABLED: "Disabled",
}
"""`global.gpuSharingMode` of KAI's chart (v0.18). Its default shares GPUs too, where 0.17 did not."""
_MODE_SINCE = (0, 18)


GPUS, READY = "gpus", "ready"
"""What the component waits for: RuntimeClass, GPUs and the overrides; KAI's pods and the webhook that validates queues.

KAI is not installed while the GPU Operator makes the GPUs ready, though that would save time: the operator's toolkit
restarts containerd, with k3s and rke2 the server too, and a release that is cut off is left half-done. KAI's operator
also watches the ClusterPolicy, which tells it of CDI, only if that kind is there when it starts (KAI v0.17.0
pkg/operator/controller/config_controller.go).
"""


def objects(settings: StackSettings) -> dict[str, StackObject]:
    """KAI and its queues."""
    stack_objects = {
        "namespace": StackObject(kai_namespace(settings)),
        "release": StackObject(release(settings), ("namespace", GPUS)),
        "shard": StackObject(default_shard(), ("release",)),
    }
    for name, queue in queues(settings).items():
        parent = [f"queue-{queue['spec']['parentQueue']}"] if "parentQueue" in queue["spec"] else []
        stack_objects[f"queue-{name}"] = StackObject(queue, ("release", READY, *parent))
    return stack_objects


def registry(settings: StackSettings) -> str:
    """Registry and path of KAI's images, its reservation pods' included."""
    return settings.kai.images.registry or REGISTRY


def image(settings: StackSettings, name: str) -> str | None:
    """The reference of one of KAI's images, such as `binder`; None where the settings do not tell its tag.

    They do not where the chart is a local one, or its version no single release.
    """
    tag = settings.kai.image_tag or resolve_chart(settings.kai.chart, KAI_SCHEDULER).version
    if tag is None or (settings.kai.image_tag is None and release_line(tag) is None):
        return None
    return f"{registry(settings)}/{name}:{tag}"


def kai_namespace(settings: StackSettings) -> Manifest:
    """The namespace of KAI's control plane.

    Where a cluster enforces `restricted` unless a namespace says otherwise, as RKE2 with its CIS profile does, KAI's
    pods are refused: they name no seccomp profile, and those of the chart's hooks no security context at all (KAI
    v0.18.6 deployments/kai-scheduler/templates/hooks).
    """
    return namespace(settings.kai.namespace, pod_security="baseline")


def release(settings: StackSettings) -> HelmRelease:
    """KAI's Helm release.

    A release, not rendered objects: a post-install hook creates KAI's Config.
    """
    kai = settings.kai
    values: dict[str, Any] = {}

    def put(path: str, value: object) -> None:
        *parents, leaf = path.split(".")
        node = values
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value

    source = resolve_chart(kai.chart, KAI_SCHEDULER)
    for path, value in _sharing(kai.gpu_sharing_mode, release_line(source.version)).items():
        put(path, value)
    # The namespace is ours, with its Pod Security label; the service account is the operator's: the chart's own copy
    # is rendered only while it does not exist, so that every other upgrade would delete it (v0.17.0).
    put("global.resourceReservation.createNamespace", False)
    put("global.resourceReservation.createServiceAccount", False)
    put("global.resourceReservation.namespace", reservation.NAMESPACE)
    put("global.resourceReservation.serviceAccount", reservation.SERVICE_ACCOUNT)
    put("global.resourceReservation.appLabel", reservation.APP_LABEL)
    # Empty by default since v0.16. The path that upstream's docs name, binder.resourceReservation.runtimeClassName, is
    # read by no template.
    put("binder.runtimeClassName", reservation.RUNTIME_CLASS)
    put("admission.gpuFractionRuntimeClassName", reservation.RUNTIME_CLASS)
    put("scheduler.placementStrategy", kai.scheduler.placement.value)
    # Ours, among the other queues: the chart's own are made at install only, and kept on uninstall.
    put("defaultQueue.createDefaultQueue", False)
    for image in _IMAGES:
        put(f"{image}.pullPolicy", kai.images.pull_policy.value)
    said = {
        "scheduler.args": dict(sorted(kai.scheduler.args.items())),
        "global.registry": kai.images.registry,
        "global.tag": kai.image_tag,
        "global.imagePullSecrets": [{"name": secret} for secret in kai.images.pull_secrets],
        "binder.cdiEnabled": kai.cdi_enabled,
        # Of the control plane and of the hooks' pods. A reservation pod has those of the pods that it stands for.
        "global.tolerations": tolerations(settings.cluster),
    }
    for path, value in said.items():
        if value is not None and value not in ({}, []):
            put(path, value)
    return HelmRelease(
        name=RELEASE,
        namespace=kai.namespace,
        source=source,
        values=values,
        timeout_seconds=kai.timeout_seconds,
    )


def _sharing(mode: GpuSharingMode, line: tuple[int, int] | None) -> dict[str, object]:
    """How GPUs are shared, as Helm values by path.

    Args:
        mode: what the stack says.
        line: the chart's release line, or None where it is not known: a local chart, a range. Then both spellings are
            passed: 0.18 reads the mode first, 0.17 does not know it.
    """
    new: dict[str, object] = {"global.gpuSharingMode": MODES[mode]}
    # A mode that 0.17 lacks shares nothing there: better than fractions that nobody enforces.
    old: dict[str, object] = {
        "global.gpuSharing": mode in {GpuSharingMode.NON_MEMORY_ENFORCED, GpuSharingMode.HAMI_CORE}
    }
    if mode is GpuSharingMode.HAMI_CORE:
        old["binder.plugins.hamicore.enabled"] = True
    if line is None:
        return new | old
    return new if line >= _MODE_SINCE else old


def default_shard() -> Manifest:
    """The chart's SchedulingShard, to be taken over after the release.

    Symptom without it: it stays behind on uninstall, since the chart marks it `helm.sh/resource-policy: keep`
    (KAI v0.17.0, templates/default-shard.yaml, by design upstream). Its spec remains the chart's.
    """
    return {
        "apiVersion": "kai.scheduler/v1",
        "kind": "SchedulingShard",
        "metadata": {"name": "default", "labels": {"app.kubernetes.io/part-of": "kai-anywhere"}},
    }


def queues(settings: StackSettings) -> dict[str, Manifest]:
    """The stack's queues by name, parents before children."""
    queue_settings = dict(settings.kai.queues)
    if settings.kai.default_queue:
        queue_settings |= {
            DEFAULT_PARENT_QUEUE: QueueSettings(),
            DEFAULT_QUEUE: QueueSettings(parent=DEFAULT_PARENT_QUEUE),
        }
    ordered: dict[str, Manifest] = {}

    def add(name: str) -> None:
        if name in ordered:
            return
        queue = queue_settings[name]
        if queue.parent is not None:
            add(queue.parent)
        spec: dict[str, Any] = {"displayName": name}
        if queue.parent is not None:
            spec["parentQueue"] = queue.parent
        if queue.priority is not None:
            spec["priority"] = queue.priority
        spec["resources"] = {"gpu": _share(queue.gpu), "cpu": _share(queue.cpu), "memory": _share(queue.memory)}
        ordered[name] = {
            "apiVersion": "scheduling.run.ai/v2",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": spec,
        }

    for name in sorted(queue_settings):
        add(name)
    return ordered


def _share(share: QueueShare) -> dict[str, float]:
    return {"quota": share.quota, "limit": share.limit, "overQuotaWeight": share.over_quota_weight}
