"""For each check, by its code: what makes it fire, and what almost does.

Both are changes of the same cluster, which is well before. What almost makes a check fire leaves that check silent, and
every other one but those that it is a case for.
"""

from collections.abc import Callable, Mapping
from typing import Final

from testbed.stacks import Json, gvirtus, hami_core, jetson, webhook
from tests.support.doctor import GROUP, LATER, RESERVATION, fraction, named, pod, unschedulable
from tests.unit.operations.doctor import changes as do
from tests.unit.operations.doctor.case import Case
from tests.unit.operations.doctor.changes import Break, both
from tests.unit.operations.doctor.host_cases import HOST_CASES
from tests.unit.operations.doctor.monitoring_cases import MONITORING_CASES

_OVERRIDES: Final = do.gone("MutatingAdmissionPolicy/kai-anywhere-reservation-overrides")
_GUARD: Final = do.gone("ValidatingAdmissionPolicyBinding/kai-anywhere-reservation-guard")
_NO_ROOM: Final = do.waits("1 node has 8120 MiB left on a GPU")
_NOT_SYNCED: Final = do.waits(do.NOT_SYNCED)
_OVER_QUOTA: Final = do.waits("", status=None, **unschedulable("Reason: NonPreemptibleOverQuota, Details: quota 0"))
_OVER_LIMIT: Final = do.waits("", **unschedulable("Reason: OverLimit, Details: limit 1"))
_NO_LIBRARY: Final = "unable to initialize NVML: ERROR_LIBRARY_NOT_FOUND"
_NO_DRIVER: Final = "unable to initialize NVML: Driver Not Loaded"
_OTHER_DRIVER: Final = "unable to initialize NVML: Driver/library version mismatch"
_SAID: Final = {"annotations": {"run.ai/reserve_for_gpu_index": "GPU-1"}}
_NOW: Final = "2026-02-01T00:00:00Z"
_REFUSED_POD: Final = 'pods "gpu-reservation-x" is forbidden: denied request: not here'
_BACKEND: Final = {"gvirtus.io/backend": "x86"}
_TOO_LATE: Final = "failed waiting for GPU reservation pod to allocate: kai-resource-reservation/x"


def _part(name: str, section: str) -> Case:
    """A part of KAI's: scaled to 0, or with its Deployment removed because KAI's Config switches it off."""
    switched_off = {"service": {"enabled": False}}
    off = both(do.remove("deployments", name), lambda world: do.config(world).update({section: switched_off}))
    return Case(do.scale(name), off)


def _deployment(name: str, stack: Callable[[], Json] = jetson) -> Case:
    """A Deployment without a pod that is available, or with one of two."""
    return Case(do.scale(name), do.half(name), stack=stack)


def _start(message: str, other: str) -> Case:
    """A container that does not start for a reason that a check knows, or for one that none does."""
    return Case(do.starts(message), do.starts(other), others="KA0712")


def _fraction_and_gpu(**status: str) -> Break:
    made = fraction("refused")
    made["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    return do.one_more(made, **status)


def _kernel(version: str) -> Break:
    return lambda world: world.one("nodes", "cpu-1")["status"]["nodeInfo"].update(kernelVersion=version)


def _security(**labels: str) -> Break:
    return lambda world: world.one("namespaces", RESERVATION)["metadata"].update(labels=labels)


def _cdi(**said: bool) -> Break:
    return lambda world: do.policy(world)["spec"].update(cdi=said)


def _binder(**said: object) -> Break:
    return lambda world: do.config(world)["binder"].update(said)


CASES: Final[Mapping[str, Case]] = {
    "KA0101": Case(do.release("pending-upgrade"), do.release("superseded")),
    "KA0102": Case(do.release("failed"), both(do.release("failed"), do.release("deployed", 3))),
    "KA0103": Case(do.terminating(RESERVATION), do.terminating("somebody-elses")),
    "KA0104": Case(
        do.nothing,
        both(do.nothing, lambda world: world.gone.remove("Namespace/kai-scheduler")),
        "KA0105 KA0201 KA0301 KA0302 KA0303 KA0501 KA0502",
    ),
    "KA0105": Case(do.gone("Queue/robots"), do.gone("Queue/of-no-stack")),
    "KA0106": Case(do.kubernetes("29"), do.kubernetes("30")),
    "KA0107": Case(do.starting("ImagePullBackOff"), do.starting("ContainerCreating")),
    "KA0108": Case(do.api(extension=True), do.api(extension=False)),
    "KA0201": Case(
        do.uninstalled,
        both(do.uninstalled, do.other_deployment("kai-operator", "kai-scheduler")),
        "KA0105 KA0203 KA0601",
    ),
    "KA0202": _deployment("kai-operator"),
    "KA0203": Case(do.clear("configs"), lambda world: do.config(world).pop("admission")),
    "KA0204": _deployment("kai-scheduler-default"),
    "KA0205": _part("binder", "binder"),
    "KA0206": _part("pod-grouper", "podGrouper"),
    "KA0207": _part("podgroup-controller", "podGroupController"),
    "KA0208": _deployment("queue-controller"),
    "KA0209": _deployment("admission"),
    "KA0210": Case(do.condition("DependenciesFulfilled"), do.condition("Reconciling")),
    "KA0211": Case(do.clear("shards"), lambda world: world.one("shards", "default").pop("spec")),
    "KA0212": Case(do.without_kind("queues"), do.without_kind("configs"), "KA0203"),
    "KA0213": Case(
        do.sharing("Disabled"),
        both(do.sharing(None), lambda world: do.config(world)["admission"].update(gpuSharing=True)),
    ),
    "KA0214": Case(do.other_deployment("kai-operator"), do.other_deployment("kai-operator-webhook")),
    "KA0215": Case(do.kai("v0.17.1"), do.kai("v0.18.0")),
    "KA0301": _deployment("gpu-operator"),
    "KA0302": Case(do.clear("clusterpolicies"), both(do.clear("clusterpolicies"), do.no_operator)),
    "KA0303": Case(
        do.clear("runtimeclasses"),
        both(
            do.clear("runtimeclasses"),
            lambda world: do.config(world)["admission"].update(gpuFractionRuntimeClassName=""),
        ),
    ),
    "KA0304": Case(
        _cdi(enabled=True, nriPluginEnabled=True),
        both(
            _cdi(enabled=True, nriPluginEnabled=True),
            lambda world: do.config(world)["admission"].update(gpuFractionRuntimeClassName=""),
        ),
    ),
    "KA0305": Case(
        both(do.remove("daemonsets", "nvidia-device-plugin-daemonset"), do.gpus("0")),
        both(
            lambda world: world.one("daemonsets", "nvidia-device-plugin-daemonset")["metadata"].update(
                name="my-nvidia-device-plugin"
            ),
            do.gpus("0"),
        ),
        "KA0403",
    ),
    "KA0306": Case(
        do.remove("pods", "plugin-1"), lambda world: world.one("pods", "plugin-1")["metadata"].update(name="plugin-2")
    ),
    "KA0307": _deployment("gpu-operator-node-feature-discovery-master"),
    "KA0308": Case(lambda world: world.lists.update(gpuclusters=[named("gpu-cluster")]), do.clear("gpuclusters")),
    "KA0309": Case(
        do.daemon_set_status("nvidia-operator-validator", 1, 0), do.daemon_set_status("nvidia-operator-validator", 0, 0)
    ),
    "KA0310": Case(
        do.label("nvidia.com/device-plugin.config", "unknown"), do.label("nvidia.com/device-plugin.config", "sliced")
    ),
    "KA0311": Case(
        lambda world: do.policy(world)["metadata"].update(labels={}),
        both(lambda world: do.policy(world)["metadata"].update(labels={}), _binder(cdiEnabled=True)),
    ),
    "KA0312": Case(
        lambda world: do.policy(world).update(status={"state": "notReady"}),
        lambda world: do.policy(world).update(status={}),
    ),
    "KA0401": Case(
        do.node_condition("Ready", "False", "container runtime is down"),
        do.node_condition("Ready", "True", "container runtime was down"),
    ),
    "KA0402": Case(
        do.node_condition("MemoryPressure", "True", "low"), do.node_condition("MemoryPressure", "False", "low")
    ),
    "KA0403": Case(do.allocatable("jetson-1"), do.allocatable("cpu-1")),
    "KA0404": Case(do.label("nvidia.com/gpu.memory", None), do.label("nvidia.com/gpu.memory", None, "cpu-1")),
    "KA0405": Case(
        both(do.label("nvidia.com/gpu.memory", "4095"), do.owner("nvidia.com/gpu.memory")),
        do.label("nvidia.com/gpu.memory", "4096"),
        "KA0411 KA0520",
    ),
    "KA0406": Case(do.label("nvidia.com/gpu.count", None), do.label("nvidia.com/gpu.count", None, "cpu-1")),
    "KA0407": Case(do.gpus("4"), both(do.gpus("4"), do.label("nvidia.com/gpu.count", "4")), "KA0411"),
    "KA0408": Case(
        do.label("kai.scheduler/node-pool", "by-hand"),
        both(do.label("kai.scheduler/node-pool", "by-hand"), do.shard("by-hand")),
    ),
    "KA0409": Case(do.label("run.ai/fake.gpu", "true", "cpu-1"), do.label("run.ai/fake.gpu", "false", "cpu-1")),
    "KA0410": Case(do.owner("nvidia.com/gpu.count"), do.owner("nvidia.com/gpu.product")),
    "KA0411": Case(do.label("kai-anywhere.io/platform", None), do.label("example.com/platform", "tegra")),
    "KA0412": Case(do.remove("nodes", "jetson-1"), do.remove("nodes", "cpu-1")),
    "KA0413": Case(_kernel("6.8.12-tegra"), _kernel("6.8.12-generic")),
    "KA0414": Case(
        do.label("nvidia.com/gpu.product", "NVIDIA-GB10"),
        do.label("nvidia.com/gpu.product", "NVIDIA-A100"),
        stack=hami_core,
    ),
    "KA0415": Case(
        do.label("nvidia.com/gpu.memory", None), do.label("nvidia.com/gpu.memory", "40960"), stack=hami_core
    ),
    "KA0416": Case(do.system_memory("64Gi"), do.system_memory("1Gi")),
    "KA0417": Case(
        do.label("nvidia.com/gpu.count", "2"),
        both(do.label("nvidia.com/gpu.count", "2"), do.gpus("2")),
        "KA0411",
    ),
    "KA0501": Case(_OVERRIDES, _GUARD, "KA0502 KA0105"),
    "KA0502": Case(_GUARD, _OVERRIDES, "KA0501 KA0105"),
    "KA0503": Case(_security(**{"pod-security.kubernetes.io/enforce": "baseline"}), _security()),
    "KA0504": Case(do.silent(_NO_LIBRARY), do.silent(_NO_LIBRARY, **_SAID)),
    "KA0505": Case(do.silent(_NO_DRIVER), do.silent(_NO_DRIVER, **_SAID)),
    "KA0506": Case(do.silent("found 2 devices, 1 was expected"), do.silent("found 1 device"), "KA0508"),
    "KA0507": Case(do.silent(_OTHER_DRIVER), do.silent(_OTHER_DRIVER, deletionTimestamp=_NOW)),
    "KA0508": Case(do.silent("panic: something else"), do.silent(_NO_LIBRARY), "KA0504"),
    "KA0509": Case(
        do.reservation_status(phase="Failed", reason="UnexpectedAdmissionError", message="Allocate failed"),
        do.reservation_status(phase="Failed", reason="Evicted", message="memory is low"),
        "KA0519",
    ),
    "KA0510": Case(do.reservation("left"), both(do.reservation("left"), do.bind("", phase="Pending", group="left"))),
    "KA0511": Case(do.reservation(GROUP), do.reservation(GROUP, deletionTimestamp=_NOW)),
    "KA0512": Case(do.unbound(_REFUSED_POD), do.unbound(_TOO_LATE), "KA0513"),
    "KA0513": Case(do.unbound(_TOO_LATE), do.unbound("volume is gone"), "KA0514"),
    "KA0514": Case(do.unbound("volume is gone"), do.unbound("volume is gone", "Pending"), "KA0706"),
    "KA0515": Case(do.orphan("Running"), do.orphan("Succeeded")),
    "KA0516": Case(
        both(do.discovered("x86-1", "40000"), _binder(resourceReservation={"namespace": RESERVATION})),
        _binder(resourceReservation={"namespace": RESERVATION}),
    ),
    "KA0517": Case(do.pulls("ErrImagePull"), do.pulls("ContainerCreating")),
    "KA0518": Case(
        do.event("hostPath type check failed: /x is not a directory"), do.event("timed out waiting for the condition")
    ),
    "KA0519": Case(
        do.reservation_status(phase="Failed", reason="Evicted", message="memory is low"),
        both(do.reservation_status(phase="Failed", reason="Evicted"), do.reservation(GROUP)),
    ),
    "KA0520": Case(do.label("nvidia.com/gpu.memory", "30700"), do.label("nvidia.com/gpu.memory", "30800"), "KA0411"),
    "KA0601": Case(do.clear("queues"), both(do.clear("queues"), do.queue("only")), "KA0105"),
    "KA0602": Case(do.queue("child", "gone", quota=1), do.queue("child", "default-parent-queue", quota=1)),
    "KA0603": Case(do.waits("", queue="gone"), do.waits("", queue="robots"), "KA0706"),
    "KA0604": Case(do.waits("", queue="default-parent-queue"), do.waits("", queue="default-queue"), "KA0706"),
    "KA0605": Case(_OVER_QUOTA, _OVER_LIMIT, "KA0606 KA0705"),
    "KA0606": Case(_OVER_LIMIT, _OVER_QUOTA, "KA0605 KA0705"),
    "KA0607": Case(do.queue("closed", limit=0), do.queue("closed", limit=0.5)),
    "KA0608": Case(
        both(do.queue("top", quota=1), do.queue("below", "top", quota=2)),
        both(do.queue("top", quota=2), do.queue("below", "top", quota=2)),
    ),
    "KA0609": Case(both(do.queue("a", "b"), do.queue("b", "a")), both(do.queue("a"), do.queue("b", "a"))),
    "KA0701": Case(
        do.one_more(do.fraction_of_other_scheduler()), do.one_more(do.fraction_of_other_scheduler(), phase="Succeeded")
    ),
    "KA0702": Case(_fraction_and_gpu(), _fraction_and_gpu(phase="Failed")),
    "KA0703": Case(
        do.one_more(
            pod("refused", node="jetson-1", phase="Failed", message="Allocate failed"),
            reason="UnexpectedAdmissionError",
        ),
        do.one_more(pod("refused", node="jetson-1", phase="Failed", message="Allocate failed"), reason="Evicted"),
    ),
    "KA0704": Case(_NOT_SYNCED, _NO_ROOM, "KA0705"),
    "KA0705": Case(_NO_ROOM, _NOT_SYNCED, "KA0704"),
    "KA0706": Case(do.waits(""), do.waits("", created=LATER)),
    "KA0707": _start(
        "unresolvable CDI devices k8s.device-plugin.nvidia.com/gpu=GPU-1", "CDI specification is not readable"
    ),
    "KA0708": _start("unsupported device id: GPU-1", "unsupported device: fuse"),
    "KA0709": _start('no runtime for "nvidia" is configured', 'no runtime for "kata" is configured'),
    "KA0710": _start('expected cgroupsPath to be of format "slice:prefix:name"', "cgroup is gone"),
    "KA0711": _start("nvml error: Driver/library version mismatch", "nvml error: insufficient permissions"),
    "KA0712": Case(do.starts("configmap not found"), do.one_more(do.plain_pod("configmap not found"))),
    "KA0713": Case(do.one_more(do.claiming("jetson-1")), do.one_more(do.claiming("cpu-1"))),
    "KA0801": _deployment("gpu-a", gvirtus),
    "KA0802": Case(do.allocatable("cpu-1"), do.allocatable("cpu-1", **{"nvidia.com/gpu": "1"}), stack=gvirtus),
    "KA0803": Case(
        do.daemon_set_status("gvirtus-device-plugin", 1, 0),
        do.daemon_set_status("gvirtus-device-plugin", 0, 0),
        stack=gvirtus,
    ),
    "KA0804": Case(do.remote_pod(), do.remote_pod(**_BACKEND), stack=gvirtus),
    "KA0805": Case(
        do.gone("MutatingAdmissionPolicy/kai-anywhere-gvirtus-injection"), _OVERRIDES, "KA0501 KA0105", stack=gvirtus
    ),
    "KA0806": Case(
        do.remote_pod(scheduler="kai-scheduler", **_BACKEND, **{"gpu-fraction": "0.5"}),
        do.remote_pod("false", scheduler="kai-scheduler", **{"gpu-fraction": "0.5"}),
        stack=gvirtus,
    ),
    "KA0807": Case(do.backend_pod("OOMKilled", 137), do.backend_pod("Error", 139), stack=gvirtus),
    "KA0901": Case(do.answers(ready=False), do.answers()),
    "KA0902": _deployment("kai-anywhere-admission", webhook),
    "KA0903": Case(do.no_policies, do.no_policies, almost_on=webhook),
    "KA0904": Case(do.trusts(also_valid=False), do.trusts(also_valid=True)),
    "KA0905": Case(
        do.remove("mutating", "mutating-kai-admission"),
        both(
            do.remove("mutating", "mutating-kai-admission"),
            lambda world: do.config(world)["admission"].update(service={"enabled": False}),
        ),
    ),
    **HOST_CASES,
    **MONITORING_CASES,
}
