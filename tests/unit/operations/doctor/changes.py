"""What is changed of a cluster that is well, so that one check of `doctor` fires, or almost does."""

import base64
import copy
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from manifests import every_object
from manifests.gvirtus import backends
from manifests.ownership import key
from testbed.stacks import Json, changed, parse
from tests.support.api_server import node
from tests.support.doctor import (
    OLD,
    RESERVATION,
    World,
    available,
    daemon_set,
    deployment,
    endpoints,
    fraction,
    named,
    pod,
    pod_group,
    revision,
)

Break = Callable[[World], None]
NOT_SYNCED = "node is not a gpu node or the gpu memory count on the node was not synced yet, task: <default/waits>"
_LOG = f"/api/v1/namespaces/{RESERVATION}/pods/gpu-reservation-1/log"


def nothing(world: World) -> None:
    """Nothing was installed yet, or the stack is of another cluster."""
    world.gone = {key(manifest) for manifest in every_object.objects(parse(world.settings or {})).values()}
    world.lists = {"nodes": world.lists["nodes"]}


def uninstalled(world: World) -> None:
    world.lists["deployments"] = [
        deployment
        for deployment in world.lists["deployments"]
        if deployment["metadata"]["namespace"] != "kai-scheduler"
    ]
    for of in ("configs", "shards", "queues", "mutating", "validating"):
        world.lists[of] = []


def config(world: World) -> dict[str, Any]:
    spec: dict[str, Any] = world.one("configs", "kai-config")["spec"]
    return spec


def policy(world: World) -> dict[str, Any]:
    return world.one("clusterpolicies", "cluster-policy")


def jetson_node(world: World) -> dict[str, Any]:
    return world.one("nodes", "jetson-1")


def node_condition(kind: str, status: str, message: str) -> Break:
    return lambda world: jetson_node(world)["status"].update(
        conditions=[{"type": "Ready", "status": "True"}] * (kind != "Ready")
        + [{"type": kind, "status": status, "message": message}]
    )


def label(label: str, value: str | None, of: str = "jetson-1") -> Break:
    return lambda world: world.label(of, label, value)


def gpus(count: str) -> Break:
    return lambda world: jetson_node(world)["status"]["allocatable"].update({"nvidia.com/gpu": count})


def discovered(name: str, memory: str) -> Break:
    """A node that the stack does not name, with a GPU that somebody labelled."""

    def add(world: World) -> None:
        labels = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.count": "1"}
        other = node(name, labels=labels | ({"nvidia.com/gpu.memory": memory} if memory else {}))
        world.lists["nodes"].append(other)
        plugin = {"app": "nvidia-device-plugin-daemonset"}
        world.lists["pods"].append(pod(f"plugin-{name}", "gpu-operator", node=name, labels=plugin))

    return add


def queue(name: str, parent: str = "", **gpu: float) -> Break:
    plenty = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    return queue_of(name, parent, gpu={"quota": 0, "limit": -1, "overQuotaWeight": 1} | gpu, cpu=plenty, memory=plenty)


def queue_of(name: str, parent: str = "", **resources: Mapping[str, float]) -> Break:
    """A queue that says so much and no more."""
    spec = {"resources": resources} | ({"parentQueue": parent} if parent else {})
    return lambda world: world.lists["queues"].append(named(name) | {"spec": spec})


def both(*breaks: Break) -> Break:
    def every(world: World) -> None:
        for change in breaks:
            change(world)

    return every


def remote(world: World) -> None:
    """Well, for a stack with remote GPUs."""
    for name in ("gpu-a", "gpu-b"):
        world.lists["deployments"].append(deployment(name, "gvirtus-system"))
    world.lists["daemonsets"].append(daemon_set("gvirtus-device-plugin", "gvirtus-frontends"))
    discovered("x86-1", "40000")(world)
    world.one("nodes", "cpu-1")["status"]["allocatable"] = {"nvidia.com/gpu": "2"}
    world.label("cpu-1", "gvirtus.io/frontend.allowed", "true")


def scale(name: str) -> Break:
    return lambda world: world.scale(name)


def remove(of: str, name: str) -> Break:
    return lambda world: world.remove(of, name)


def gone(*keys: str) -> Break:
    def take(world: World) -> None:
        world.gone |= set(keys)

    return take


def clear(of: str) -> Break:
    return lambda world: world.lists.update({of: []})


def release(status: str, number: int = 2) -> Break:
    """A newer revision of KAI's Helm release."""
    newer = revision("kai-scheduler", "kai-scheduler", number, status)
    return lambda world: world.lists["kai revisions"].append(newer)


def terminating(name: str) -> Break:
    """A namespace that is being deleted; one more where there is none of this name."""

    def end(world: World) -> None:
        world.lists["namespaces"] = [
            namespace for namespace in world.lists["namespaces"] if namespace["metadata"]["name"] != name
        ]
        world.lists["namespaces"].append(named(name) | {"status": {"phase": "Terminating"}})

    return end


def kubernetes(minor: str) -> Break:
    """Another version of the API server."""

    def change(world: World) -> None:
        world.minor = minor

    return change


def starting(reason: str) -> Break:
    """A pod of KAI's binder whose container waits."""
    waiting = {"waiting": {"reason": reason, "message": "manifest unknown"}}
    return lambda world: world.lists["pods"].append(
        pod(
            "binder-1",
            "kai-scheduler",
            node="cpu-1",
            labels={"app": "binder"},
            phase="Pending",
            containerStatuses=[{"name": "binder", "state": waiting}],
        )
    )


def condition(kind: str) -> Break:
    """A condition of KAI's Config that is False."""
    said = {"type": kind, "status": "False", "reason": "missing", "message": "no GpuSharingConfig"}
    return lambda world: world.one("configs", "kai-config")["status"].update(conditions=[said])


def kai(tag: str) -> Break:
    """Another version of KAI's operator."""
    image = f"registry/kai-scheduler/operator:{tag}"
    return both(
        remove("deployments", "kai-operator"),
        lambda world: world.lists["deployments"].append(deployment("kai-operator", "kai-scheduler", image)),
    )


def other_deployment(name: str, namespace: str = "other") -> Break:
    """One more Deployment."""
    return lambda world: world.lists["deployments"].append(deployment(name, namespace))


def half(name: str) -> Break:
    """One of a Deployment's two pods is available."""

    def change(world: World) -> None:
        there = world.one("deployments", name)
        there["spec"]["replicas"], there["status"] = 2, available(1, of=2)

    return change


def without_kind(plural: str) -> Break:
    """The API server does not know a kind of KAI's."""
    return lambda world: world.kinds.discard(plural)


def sharing(mode: str | None) -> Break:
    """Another mode of sharing in KAI's Config, or none."""

    def change(world: World) -> None:
        config(world)["global"].pop("gpuSharingMode")
        config(world)["global"] |= {"gpuSharingMode": mode} if mode else {}

    return change


def daemon_set_status(name: str, desired: int, ready: int) -> Break:
    """On how many nodes a DaemonSet should be and is."""
    status = {"desiredNumberScheduled": desired, "numberReady": ready}
    return lambda world: world.one("daemonsets", name).update(status=status)


def allocatable(name: str, **resources: str) -> Break:
    """What a node has for pods."""
    return lambda world: world.one("nodes", name)["status"].update(allocatable=resources)


def owner(label: str) -> Break:
    """Node Feature Discovery writes a label of the Jetson."""
    fields: dict[str, Any] = {"f:metadata": {"f:labels": {f"f:{label}": {}}}}

    def write(world: World) -> None:
        metadata = jetson_node(world)["metadata"]
        metadata["labels"].setdefault(label, "1")
        metadata["managedFields"] = [{"manager": "nfd-master", "fieldsV1": fields}]

    return write


def system_memory(amount: str) -> Break:
    """A pod of the Jetson that asks for so much of the system's memory."""
    asks = pod("hungry", node="jetson-1", scheduler="default-scheduler")
    asks["spec"]["containers"][0]["resources"] = {"requests": {"memory": amount}}
    return lambda world: world.lists["pods"].append(asks)


def silent(log: str, **metadata: Any) -> Break:  # noqa: ANN401 - JSON
    """The reservation pod does not say its GPU, and its log says why."""

    def silence(world: World) -> None:
        world.one("pods", "gpu-reservation-1")["metadata"].update({"annotations": {}} | metadata)
        world.texts[_LOG] = f"Looking for GPU device id for pod\n{log}\n"

    return silence


def reservation_status(**status: Any) -> Break:  # noqa: ANN401 - JSON
    """The reservation pod's status."""
    return lambda world: world.one("pods", "gpu-reservation-1")["status"].update(status)


def pulls(reason: str) -> Break:
    """The reservation pod's container waits."""
    waiting = {"waiting": {"reason": reason, "message": "not found"}}
    return reservation_status(containerStatuses=[{"name": "main", "state": waiting}])


def reservation(group: str, **metadata: Any) -> Break:  # noqa: ANN401 - JSON
    """One more reservation pod."""
    more = pod(
        "gpu-reservation-2",
        RESERVATION,
        node="jetson-1",
        labels={"app": RESERVATION, "runai-gpu-group": group},
        annotations={"run.ai/reserve_for_gpu_index": "GPU-1"},
        scheduler="default-scheduler",
    )
    more["metadata"].update(metadata)
    return lambda world: world.lists["pods"].append(more)


def bind(reason: str, phase: str = "Failed", group: str = "g2", *, name: str = "waits") -> Break:
    """A bind request of a pod that waits."""
    request = named(name, "default") | {
        "spec": {"podName": name, "selectedNode": "jetson-1", "selectedGPUGroups": [group]},
        "status": {"phase": phase, "reason": reason, "failedAttempts": 3},
    }
    return lambda world: world.lists["bindrequests"].append(request)


def unbound(reason: str, phase: str = "Failed") -> Break:
    """A pod that waits, with its bind request."""
    return both(waits(""), bind(reason, phase))


def waits(message: str, queue: str = "default-queue", created: str = OLD, **group: Any) -> Break:  # noqa: ANN401 - JSON
    """A pod that is on no node, with what the scheduler says of it."""
    said = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]

    def wait(world: World) -> None:
        world.lists["pods"].append(fraction("waits", conditions=said if message else [], created=created))
        world.lists["podgroups"].append(pod_group("pg-waits", queue, **group))

    return wait


def starts(message: str) -> Break:
    """A pod whose container does not start."""
    waiting = {"waiting": {"reason": "RunContainerError", "message": message}}
    status = [{"name": "main", "state": waiting}]
    return lambda world: world.lists["pods"].append(
        fraction("fails", node="jetson-1", phase="Pending", containerStatuses=status)
    )


def event(message: str) -> Break:
    """A warning about the reservation pod."""
    return lambda world: world.event(RESERVATION, "gpu-reservation-1", "FailedMount", message)


def one_more(made: dict[str, Any], **status: Any) -> Break:  # noqa: ANN401 - JSON
    """One more pod."""
    return lambda world: world.lists["pods"].append(made | {"status": made["status"] | status})


def remote_pod(labelled: str = "true", scheduler: str = "default", **annotations: str) -> Break:
    """A pod that is to use a remote GPU."""
    labels = {"gvirtus.io/enabled": labelled}
    return one_more(pod("app", node="cpu-1", labels=labels, annotations=annotations, scheduler=scheduler))


def backend_pod(reason: str, code: int) -> Break:
    """The pod of a remote GPU's backend, whose container ended once and was restarted."""
    ended = {"terminated": {"reason": reason, "exitCode": code, "finishedAt": "2026-11-20T08:15:00Z"}}
    status = {"name": "backend", "ready": True, "restartCount": 2, "state": {"running": {}}, "lastState": ended}

    def change(world: World) -> None:
        settings = parse(world.settings or {})
        assert settings.gvirtus is not None
        template = backends.deployment(settings, settings.gvirtus, "gpu-a")["spec"]["template"]
        made = pod("gpu-a-1", "gvirtus-system", node="x86-1", containerStatuses=[status], **template["metadata"])
        # Its namespace takes no pod with less than the backend's own restrictions.
        made["spec"] = template["spec"] | {"nodeName": "x86-1"}
        world.lists["pods"].append(made)

    return change


def answers(**conditions: bool) -> Break:
    """The address behind KAI's admission webhooks, by what it says of itself."""
    there = [endpoints("admission", **conditions), endpoints("queue-controller", ready=True)]
    return lambda world: world.lists.update(slices=there)


def api(*, extension: bool) -> Break:
    """A version of an API group: an extension whose server is gone, or the API server's own."""
    unavailable = {"status": "False", "reason": "ServiceNotFound", "message": "service/metrics-server is not present"}
    theirs = {"service": {"namespace": "kube-system", "name": "metrics-server"}, "insecureSkipTLSVerify": True}
    made = named("v1beta1.metrics.k8s.io") | {
        "spec": {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100},
        "status": {"conditions": [{"type": "Available", "status": "True"} | (unavailable if extension else {})]},
    }
    made["spec"] |= theirs if extension else {}
    return lambda world: world.lists.update(apiservices=[made])


def webhook_of_others(rules: Json, **more: Json) -> Break:
    """A webhook of somebody else's, in a namespace of his own, whose Service has no address."""

    def change(world: World) -> None:
        made = copy.deepcopy(world.one("validating", "validating-kai-admission"))
        made["metadata"] = {"name": "judge"}
        [hook] = made["webhooks"]
        hook["clientConfig"]["service"] = {"name": "judge", "namespace": "judging"}
        hook["rules"] = [{"apiVersions": ["*"], "operations": ["*"], **rules}]
        hook.update(more)
        world.lists["validating"].append(made)

    return change


def no_policies(world: World) -> None:
    """MutatingAdmissionPolicy is not served."""
    world.policies = False


def trusts(*, also_valid: bool) -> Break:
    """A webhook whose authority has ended; beside it, perhaps, the one that is valid."""

    def change(world: World) -> None:
        webhook = world.one("mutating", "mutating-kai-admission")["webhooks"][0]["clientConfig"]
        valid = base64.b64decode(webhook["caBundle"]) if also_valid else b""
        webhook["caBundle"] = base64.b64encode(_expired() + valid).decode()

    return change


def _expired() -> bytes:
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
    return certificate.public_bytes(serialization.Encoding.PEM)


def no_operator(world: World) -> None:
    """A cluster whose device plugin was installed without the GPU Operator, and a stack that leaves it so."""
    world.remove("deployments", "gpu-operator")
    world.remove("deployments", "gpu-operator-node-feature-discovery-master")
    world.settings = changed(world.settings or {}, "gpu_operator.install", False)


def shard(pool: str) -> Break:
    """One more SchedulingShard, with its scheduler."""
    return both(
        lambda world: world.lists["shards"].append(named(pool) | {"spec": {"partitionLabelValue": pool}}),
        other_deployment(f"kai-scheduler-{pool}", "kai-scheduler"),
    )


def orphan(phase: str) -> Break:
    """A pod in a GPU group that has no reservation pod."""
    return one_more(fraction("orphan", node="jetson-1", labels={"runai-gpu-group": "nobody"}, phase=phase))


def fraction_of_other_scheduler() -> dict[str, Any]:
    """A pod with KAI's annotation that another scheduler has placed."""
    made = fraction("elsewhere", node="cpu-1", scheduler="default-scheduler")
    made["metadata"]["labels"].pop("runai-gpu-group")
    return made


def plain_pod(message: str) -> dict[str, Any]:
    """A pod of no concern, whose container does not start."""
    waiting = [{"name": "main", "state": {"waiting": {"reason": "RunContainerError", "message": message}}}]
    return pod("plain", node="cpu-1", scheduler="default-scheduler", phase="Pending", containerStatuses=waiting)


def claiming(node: str) -> dict[str, Any]:
    """A pod of another scheduler with devices of DRA."""
    made = pod("claims", node=node, scheduler="default-scheduler")
    made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    return made
