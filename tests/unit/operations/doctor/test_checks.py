"""Each check fires on what it is for, alone or under a cause, and is silent on a cluster that is well."""

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from manifests import every_object
from manifests.ownership import key
from operations.doctor.checks import CHECKS
from testbed.stacks import gvirtus, hami_core, jetson, parse, webhook
from tests.support.api_server import ApiServer, node
from tests.support.doctor import (
    GROUP,
    OLD,
    RESERVATION,
    World,
    daemon_set,
    deployment,
    endpoints,
    fraction,
    named,
    pod,
    pod_group,
    unschedulable,
    well,
)

Break = Callable[[World], None]
NOT_SYNCED = "node is not a gpu node or the gpu memory count on the node was not synced yet, task: <default/waits>"
_LOG = f"/api/v1/namespaces/{RESERVATION}/pods/gpu-reservation-1/log"


def _release(world: World, status: str) -> None:
    world.lists["kai revisions"].append(
        named(
            "sh.helm.release.v1.kai-scheduler.v2", labels={"status": status}, creationTimestamp="2026-02-01T00:00:00Z"
        )
    )


def _phase(name: str) -> Break:
    return lambda world: world.one("namespaces", name).update(status={"phase": "Terminating"})


def _nothing(world: World) -> None:
    world.gone = {key(manifest) for manifest in every_object.objects(parse(world.settings or {})).values()}


def _crash(world: World) -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "manifest unknown"}}
    world.lists["pods"].append(
        pod(
            "binder-1",
            "kai-scheduler",
            node="cpu-1",
            labels={"app": "binder"},
            phase="Pending",
            containerStatuses=[{"name": "binder", "state": waiting}],
        )
    )
    world.one("deployments", "binder")["status"] = {}


def _uninstalled(world: World) -> None:
    world.lists["deployments"] = [
        each for each in world.lists["deployments"] if each["metadata"]["namespace"] != "kai-scheduler"
    ]
    for of in ("configs", "shards", "queues", "mutating", "validating"):
        world.lists[of] = []


def _config(world: World) -> dict[str, Any]:
    spec: dict[str, Any] = world.one("configs", "kai-config")["spec"]
    return spec


def _condition(world: World) -> None:
    world.one("configs", "kai-config")["status"]["conditions"] = [
        {"type": "DependenciesFulfilled", "status": "False", "reason": "missing", "message": "no GpuSharingConfig"}
    ]


def _second(world: World) -> None:
    world.lists["deployments"].append(deployment("kai-operator", "other"))


def _old_kai(world: World) -> None:
    world.remove("deployments", "kai-operator")
    world.lists["deployments"].append(
        deployment("kai-operator", "kai-scheduler", "registry/kai-scheduler/operator:v0.17.1")
    )


def _policy(world: World) -> dict[str, Any]:
    return world.one("clusterpolicies", "cluster-policy")


def _operand(world: World) -> None:
    validator = world.one("daemonsets", "nvidia-operator-validator")
    validator["status"] = {"desiredNumberScheduled": 1, "numberReady": 0}


def _jetson(world: World) -> dict[str, Any]:
    return world.one("nodes", "jetson-1")


def _node_condition(kind: str, status: str, message: str) -> Break:
    return lambda world: _jetson(world)["status"].update(
        conditions=[{"type": "Ready", "status": "True"}] * (kind != "Ready")
        + [{"type": kind, "status": status, "message": message}]
    )


def _label(label: str, value: str | None, of: str = "jetson-1") -> Break:
    return lambda world: world.label(of, label, value)


def _gpus(count: str) -> Break:
    return lambda world: _jetson(world)["status"]["allocatable"].update({"nvidia.com/gpu": count})


def _no_gpus(world: World) -> None:
    _jetson(world)["status"]["allocatable"] = {}


def _owner(world: World) -> None:
    _jetson(world)["metadata"]["managedFields"] = [
        {"manager": "nfd-master", "fieldsV1": {"f:metadata": {"f:labels": {"f:nvidia.com/gpu.count": {}}}}}
    ]


def _discovered(name: str, memory: str) -> Break:
    """A node that the stack does not name, with a GPU that somebody labelled."""

    def add(world: World) -> None:
        labels = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.count": "1"}
        other = node(name, labels=labels | ({"nvidia.com/gpu.memory": memory} if memory else {}))
        world.lists["nodes"].append(other)
        plugin = {"app": "nvidia-device-plugin-daemonset"}
        world.lists["pods"].append(pod(f"plugin-{name}", "gpu-operator", node=name, labels=plugin))

    return add


def _silent(log: str, **status: Any) -> Break:  # noqa: ANN401 - JSON
    """The reservation pod does not say its GPU, and its log says why."""

    def silence(world: World) -> None:
        reservation = world.one("pods", "gpu-reservation-1")
        reservation["metadata"]["annotations"] = {}
        reservation["status"].update(status)
        world.texts[_LOG] = f"Looking for GPU device id for pod\n{log}\n"

    return silence


def _reservation(name: str, group: str) -> Break:
    def add(world: World) -> None:
        world.lists["pods"].append(
            pod(
                name,
                RESERVATION,
                node="jetson-1",
                labels={"app": RESERVATION, "runai-gpu-group": group},
                annotations={"run.ai/reserve_for_gpu_index": "GPU-1"},
                scheduler="default-scheduler",
            )
        )

    return add


def _bind(reason: str) -> Break:
    def fail(world: World) -> None:
        world.lists["pods"].append(fraction("waits"))
        world.lists["podgroups"].append(pod_group("pg-waits"))
        world.lists["bindrequests"].append(
            named("waits", "default")
            | {
                "spec": {"podName": "waits", "selectedNode": "jetson-1", "selectedGPUGroups": ["g2"]},
                "status": {"phase": "Failed", "reason": reason, "failedAttempts": 3},
            }
        )

    return fail


def _waits(message: str, queue: str = "default-queue", **group: Any) -> Break:  # noqa: ANN401 - JSON
    def wait(world: World) -> None:
        said = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]
        world.lists["pods"].append(fraction("waits", conditions=said if message else []))
        world.lists["podgroups"].append(pod_group("pg-waits", queue, **group))

    return wait


def _starts(message: str, **more: Any) -> Break:  # noqa: ANN401 - a pod's arguments
    def fail(world: World) -> None:
        waiting = {"waiting": {"reason": "RunContainerError", "message": message}}
        there = fraction("fails", node="jetson-1", phase="Pending", **more)
        there["status"]["containerStatuses"] = [{"name": "main", "state": waiting}]
        world.lists["pods"].append(there)

    return fail


def _host_path(world: World) -> None:
    world.event(RESERVATION, "gpu-reservation-1", "FailedMount", "hostPath type check failed: /x is not a directory")


def _queue(name: str, parent: str = "", **gpu: float) -> Break:
    spec = {"resources": {"gpu": gpu}} | ({"parentQueue": parent} if parent else {})
    return lambda world: world.lists["queues"].append(named(name) | {"spec": spec})


def _both(*breaks: Break) -> Break:
    def every(world: World) -> None:
        for each in breaks:
            each(world)

    return every


def _refused(reason: str) -> Break:
    return lambda world: world.lists["pods"].append(
        pod("refused", node="jetson-1", phase="Failed", reason="UnexpectedAdmissionError", message=reason)
    )


def _remote(world: World) -> None:
    """Well, for a stack with remote GPUs."""
    for name in ("gpu-a", "gpu-b"):
        world.lists["deployments"].append(deployment(name, "gvirtus-system"))
    world.lists["daemonsets"].append(daemon_set("gvirtus-device-plugin", "gvirtus-frontends"))
    _discovered("x86-1", "40000")(world)
    world.one("nodes", "cpu-1")["status"]["allocatable"] = {"nvidia.com/gpu": "2"}
    world.label("cpu-1", "gvirtus.io/frontend.allowed", "true")


def _frontend(world: World) -> None:
    world.one("nodes", "cpu-1")["status"]["allocatable"] = {}


def _carrier_gone(world: World) -> None:
    world.gone = {"MutatingAdmissionPolicy/kai-anywhere-gvirtus-injection"}


def _remote_pod(world: World, **annotations: str) -> None:
    world.lists["pods"].append(
        pod("app", node="cpu-1", labels={"gvirtus.io/enabled": "true"}, annotations=annotations, scheduler="default")
    )


def _both_gpus(world: World) -> None:
    _remote_pod(world, **{"gvirtus.io/backend": "x86", "gpu-fraction": "0.5"})
    world.lists["pods"][-1]["spec"]["schedulerName"] = "kai-scheduler"


def _no_answer(world: World) -> None:
    world.lists["slices"] = [endpoints("admission", ready=False), endpoints("queue-controller")]


def _expired(world: World) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2021, 1, 1, tzinfo=UTC))
        .sign(private, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    configuration = world.one("mutating", "mutating-kai-admission")
    configuration["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(pem).decode()


def _fraction_of_other_scheduler(world: World) -> None:
    world.lists["pods"].append(fraction("elsewhere", node="cpu-1", scheduler="default-scheduler", labels={}))
    world.lists["pods"][-1]["metadata"]["labels"].pop("runai-gpu-group")


def _fraction_and_gpu(world: World) -> None:
    refused = fraction("refused")
    refused["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    world.lists["pods"].append(refused)


def _unseen(world: World) -> None:
    world.lists["pods"].append(pod("unseen", annotations={"gpu-memory": "1"}))


def _set(what: Callable[[World], dict[str, Any]], **values: Any) -> Break:  # noqa: ANN401 - JSON
    return lambda world: what(world).update(values)


def _scale(name: str) -> Break:
    return lambda world: world.scale(name)


def _remove(of: str, name: str) -> Break:
    return lambda world: world.remove(of, name)


def _gone(*keys: str) -> Break:
    def take(world: World) -> None:
        world.gone |= set(keys)

    return take


def _clear(of: str) -> Break:
    return lambda world: world.lists.update({of: []})


def _nri(world: World) -> None:
    _policy(world)["spec"]["cdi"] = {"enabled": True, "nriPluginEnabled": True}
    world.lists["runtimeclasses"] = []


def _old_kubernetes(world: World) -> None:
    world.minor = "29"


def _no_policies(world: World) -> None:
    world.policies = False


def _without_kind(world: World) -> None:
    world.kinds.discard("queues")
    world.lists["queues"] = []


def _no_class_of_reservation(world: World) -> None:
    _config(world)["binder"] = {"resourceReservation": {"namespace": RESERVATION}}
    _discovered("x86-1", "40000")(world)


def _duplicate(world: World) -> None:
    _reservation("gpu-reservation-2", GROUP)(world)


def _orphan(world: World) -> None:
    world.lists["pods"].append(fraction("orphan", node="jetson-1"))
    world.lists["pods"][-1]["metadata"]["labels"]["runai-gpu-group"] = "nobody"


def _given_twice(world: World) -> None:
    asks = pod("hungry", node="jetson-1", scheduler="default-scheduler")
    asks["spec"]["containers"][0]["resources"] = {"requests": {"memory": "64Gi"}}
    world.lists["pods"].append(asks)


def _unexpected_reservation(world: World) -> None:
    world.one("pods", "gpu-reservation-1")["status"].update(
        phase="Failed", reason="UnexpectedAdmissionError", message="Allocate failed"
    )


def _pull(world: World) -> None:
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    world.one("pods", "gpu-reservation-1")["status"]["containerStatuses"] = [{"name": "main", "state": waiting}]


_OVERRIDES = "MutatingAdmissionPolicy/kai-anywhere-reservation-overrides"
CASES: dict[str, tuple[Break, Any]] = {
    "KA0101": (lambda world: _release(world, "pending-upgrade"), jetson),
    "KA0102": (lambda world: _release(world, "failed"), jetson),
    "KA0103": (_phase(RESERVATION), jetson),
    "KA0104": (_nothing, jetson),
    "KA0105": (_gone("Queue/robots"), jetson),
    "KA0106": (_old_kubernetes, jetson),
    "KA0107": (_crash, jetson),
    "KA0201": (_uninstalled, jetson),
    "KA0202": (_scale("kai-operator"), jetson),
    "KA0203": (_clear("configs"), jetson),
    "KA0204": (_scale("kai-scheduler-default"), jetson),
    "KA0205": (_scale("binder"), jetson),
    "KA0206": (_remove("deployments", "pod-grouper"), jetson),
    "KA0207": (_scale("podgroup-controller"), jetson),
    "KA0208": (_scale("queue-controller"), jetson),
    "KA0209": (_scale("admission"), jetson),
    "KA0210": (_condition, jetson),
    "KA0211": (_clear("shards"), jetson),
    "KA0212": (_without_kind, jetson),
    "KA0213": (lambda world: _config(world)["global"].update(gpuSharingMode="Disabled"), jetson),
    "KA0214": (_second, jetson),
    "KA0215": (_old_kai, jetson),
    "KA0301": (_scale("gpu-operator"), jetson),
    "KA0302": (_clear("clusterpolicies"), jetson),
    "KA0303": (_clear("runtimeclasses"), jetson),
    "KA0304": (_nri, jetson),
    "KA0305": (_remove("daemonsets", "nvidia-device-plugin-daemonset"), jetson),
    "KA0306": (_remove("pods", "plugin-1"), jetson),
    "KA0307": (_scale("gpu-operator-node-feature-discovery-master"), jetson),
    "KA0308": (lambda world: world.lists.update(gpuclusters=[named("gpu-cluster")]), jetson),
    "KA0309": (_operand, jetson),
    "KA0310": (_label("nvidia.com/device-plugin.config", "unknown"), jetson),
    "KA0311": (lambda world: _policy(world)["metadata"].update(labels={}), jetson),
    "KA0312": (lambda world: _policy(world).update(status={"state": "notReady"}), jetson),
    "KA0401": (_node_condition("Ready", "False", "container runtime is down"), jetson),
    "KA0402": (_node_condition("MemoryPressure", "True", "low"), jetson),
    "KA0403": (_no_gpus, jetson),
    "KA0404": (_label("nvidia.com/gpu.memory", None), jetson),
    "KA0405": (_label("nvidia.com/gpu.memory", "4095"), jetson),
    "KA0406": (_label("nvidia.com/gpu.count", None), jetson),
    "KA0407": (_gpus("4"), jetson),
    "KA0408": (_label("kai.scheduler/node-pool", "by-hand"), jetson),
    "KA0409": (_label("run.ai/fake.gpu", "true", "cpu-1"), jetson),
    "KA0410": (_owner, jetson),
    "KA0411": (_label("kai-anywhere.io/platform", None), jetson),
    "KA0412": (_remove("nodes", "jetson-1"), jetson),
    "KA0413": (
        lambda world: world.one("nodes", "cpu-1")["status"]["nodeInfo"].update(kernelVersion="6.8.12-tegra"),
        jetson,
    ),
    "KA0414": (_label("nvidia.com/gpu.product", "NVIDIA-GB10"), hami_core),
    "KA0415": (_label("nvidia.com/gpu.memory", None), hami_core),
    "KA0416": (_given_twice, jetson),
    "KA0501": (_gone(_OVERRIDES), jetson),
    "KA0502": (_gone("ValidatingAdmissionPolicyBinding/kai-anywhere-reservation-guard"), jetson),
    "KA0503": (
        lambda world: world.one("namespaces", RESERVATION)["metadata"].update(
            labels={"pod-security.kubernetes.io/enforce": "baseline"}
        ),
        jetson,
    ),
    "KA0504": (_silent("unable to initialize NVML: ERROR_LIBRARY_NOT_FOUND"), jetson),
    "KA0505": (_silent("unable to initialize NVML: Driver Not Loaded"), jetson),
    "KA0506": (_silent("found 2 devices, 1 was expected"), jetson),
    "KA0507": (_silent("unable to initialize NVML: Driver/library version mismatch"), jetson),
    "KA0508": (_silent("panic: something else"), jetson),
    "KA0509": (_unexpected_reservation, jetson),
    "KA0510": (_reservation("gpu-reservation-2", "left"), jetson),
    "KA0511": (_duplicate, jetson),
    "KA0512": (_bind('pods "gpu-reservation-x" is forbidden: denied request: not here'), jetson),
    "KA0513": (_bind("failed waiting for GPU reservation pod to allocate: kai-resource-reservation/x"), jetson),
    "KA0514": (_bind("volume is gone"), jetson),
    "KA0515": (_orphan, jetson),
    "KA0516": (_no_class_of_reservation, jetson),
    "KA0517": (_pull, jetson),
    "KA0518": (_host_path, jetson),
    "KA0601": (_clear("queues"), jetson),
    "KA0602": (_queue("child", "gone", quota=1), jetson),
    "KA0603": (_waits("", queue="gone"), jetson),
    "KA0604": (_waits("", queue="default-parent-queue"), jetson),
    "KA0605": (_waits("", status=None, **unschedulable("Reason: NonPreemptibleOverQuota, Details: quota 0")), jetson),
    "KA0606": (_waits("", **unschedulable("Reason: OverLimit, Details: limit 1")), jetson),
    "KA0607": (_queue("closed", limit=0), jetson),
    "KA0608": (_both(_queue("top", quota=1), _queue("below", "top", quota=2)), jetson),
    "KA0701": (_fraction_of_other_scheduler, jetson),
    "KA0702": (_fraction_and_gpu, jetson),
    "KA0703": (_refused("Allocate failed"), jetson),
    "KA0704": (_waits(NOT_SYNCED), jetson),
    "KA0705": (_waits("1 node has 8120 MiB left on a GPU"), jetson),
    "KA0706": (_unseen, jetson),
    "KA0707": (_starts("unresolvable CDI devices k8s.device-plugin.nvidia.com/gpu=GPU-1"), jetson),
    "KA0708": (_starts("unsupported device id: GPU-1"), jetson),
    "KA0709": (_starts('no runtime for "nvidia" is configured'), jetson),
    "KA0710": (_starts('expected cgroupsPath to be of format "slice:prefix:name"'), jetson),
    "KA0711": (_starts("nvml error: Driver/library version mismatch"), jetson),
    "KA0712": (_starts("configmap not found"), jetson),
    "KA0801": (lambda world: world.scale("gpu-a"), gvirtus),
    "KA0802": (_frontend, gvirtus),
    "KA0803": (
        lambda world: world.one("daemonsets", "gvirtus-device-plugin").update(
            status={"desiredNumberScheduled": 1, "numberReady": 0}
        ),
        gvirtus,
    ),
    "KA0804": (_remote_pod, gvirtus),
    "KA0805": (_carrier_gone, gvirtus),
    "KA0806": (_both_gpus, gvirtus),
    "KA0901": (_no_answer, jetson),
    "KA0902": (_scale("kai-anywhere-admission"), webhook),
    "KA0903": (_no_policies, jetson),
    "KA0904": (_expired, jetson),
    "KA0905": (_remove("mutating", "mutating-kai-admission"), jetson),
}
"""By code: what breaks a cluster that is well, and the stack that it runs."""


def _world(stack: Any) -> World:  # noqa: ANN401 - a stack's maker
    world = well(stack() if stack in {jetson, gvirtus, webhook} else None)
    if stack is hami_core:
        world.settings = stack()
        world.one("nodes", "jetson-1")["status"]["nodeInfo"]["kernelVersion"] = "6.8.0"
        world.lists["mutating"].append(named("kai-resource-isolator-mutating"))
    if stack is gvirtus:
        _remote(world)
    if stack is webhook:
        world.lists["deployments"].append(deployment("kai-anywhere-admission", "kai-anywhere"))
    return world


def test_every_check_has_a_case() -> None:
    assert sorted(CASES) == sorted(check.code for check in CHECKS)


@pytest.mark.parametrize("stack", [jetson, gvirtus, webhook], ids=lambda stack: stack.__name__)
def test_no_check_fires_on_a_cluster_that_is_well(stack: Any, api: ApiServer, tmp_path: Path) -> None:  # noqa: ANN401
    diagnosis = _world(stack).diagnosis(api, tmp_path)
    assert [each.cause.finding.what for each in diagnosis.problems] == []
    assert diagnosis.not_checked == ()
    assert diagnosis.checked == len(CHECKS)


@pytest.mark.parametrize("code", sorted(CASES))
def test_a_check_fires_on_what_it_is_for(code: str, api: ApiServer, tmp_path: Path) -> None:
    breaks, stack = CASES[code]
    world = _world(stack)
    breaks(world)
    diagnosis = world.diagnosis(api, tmp_path)
    fired = {each.check.code: each for problem in diagnosis.problems for each in problem.all}
    assert code in fired
    judged = fired[code]
    assert judged.finding.what.endswith((".", "?"))
    assert "{" not in judged.check.remedy_of(judged.finding).replace("{.status.conditions}", "")
    assert OLD not in judged.finding.what
