"""Pods for whoever judges pods: a compliant one, changes of it with their verdicts, and every kind that carries one."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

from pod_checks import table
from pod_checks.language import Absent, Allowed, Begins, BeginsNot, Check, NotTrue, OneOf, Place
from testbed.stacks import Json
from tests.policy.objects import changed

IMAGE = "registry.example.com/app:1.2.3"


def plain(name: str = "web") -> Json:
    """A pod that both welcome; every list that a change needs is there."""
    container = {
        "name": "app",
        "image": IMAGE,
        "ports": [{"containerPort": 8080}],
        "env": [{"name": "MODE", "value": "fast"}],
        "resources": {"limits": {"cpu": "1"}},
        "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
        "securityContext": {"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}, "annotations": {"note": "text"}},
        "spec": {
            "volumes": [
                {"name": "cache", "emptyDir": {}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            ],
            "securityContext": {},
            "initContainers": [copy.deepcopy(container) | {"name": "prepare"}],
            "containers": [container],
        },
    }


def _template(pod: Json) -> Json:
    metadata = {key: value for key, value in pod["metadata"].items() if key in {"labels", "annotations"}}
    return {"metadata": metadata, "spec": pod["spec"]}


def _kind(api_version: str, kind: str, spec: Callable[[Json], Json]) -> Callable[[Json], Json]:
    def wrap(pod: Json) -> Json:
        name = {"name": pod["metadata"]["name"]}
        return {"apiVersion": api_version, "kind": kind, "metadata": name, **spec(copy.deepcopy(pod))}

    return wrap


_SELECTOR = {"matchLabels": {"app": "web"}}


def _never(pod: Json) -> Json:
    return _template(changed(pod, "spec.restartPolicy", "Never"))


def _controller(pod: Json) -> Json:
    return {"spec": {"selector": _SELECTOR, "template": _template(pod)}}


KINDS: dict[str, Callable[[Json], Json]] = {
    "Pod": copy.deepcopy,
    "PodTemplate": _kind("v1", "PodTemplate", lambda pod: {"template": _template(pod)}),
    "ReplicationController": _kind(
        "v1", "ReplicationController", lambda pod: {"spec": {"selector": {"app": "web"}, "template": _template(pod)}}
    ),
    "ReplicaSet": _kind("apps/v1", "ReplicaSet", _controller),
    "Deployment": _kind("apps/v1", "Deployment", _controller),
    "DaemonSet": _kind("apps/v1", "DaemonSet", _controller),
    "StatefulSet": _kind(
        "apps/v1", "StatefulSet", lambda pod: {"spec": {"serviceName": "web", **_controller(pod)["spec"]}}
    ),
    "Job": _kind("batch/v1", "Job", lambda pod: {"spec": {"template": _never(pod)}}),
    "CronJob": _kind(
        "batch/v1",
        "CronJob",
        lambda pod: {"spec": {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": _never(pod)}}}},
    ),
}


@dataclass(frozen=True)
class Change:
    """One change of the compliant pod.

    Attributes:
        check: name of the check of the table that it is about.
        path: what is set; `@` stands for a container of any list.
        value: the new value.
        allowed: whether it still is compliant.
    """

    check: str
    path: str
    value: object
    allowed: bool = False

    @property
    def everywhere(self) -> bool:
        """Whether it belongs into a container."""
        return self.path.startswith("@.")

    def apply(self, pod: Json, container: str = "spec.containers.0") -> Json:
        """The pod with the change."""
        path = self.path.replace("@", container) if self.everywhere else self.path
        return changed(pod, path, copy.deepcopy(self.value))


_CONTEXT = "@.securityContext"
_NOWHERE = "spec.securityContext"
_ALL_GPUS = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
_FROM_ELSEWHERE = {"configMapKeyRef": {"name": "gpus", "key": "all"}}
_PROFILE = "metadata.annotations.container~apparmor~security~beta~kubernetes~io/app"
_POD_SECCOMP = "metadata.annotations.seccomp~security~alpha~kubernetes~io/pod"
_SECCOMP = "metadata.annotations.container~seccomp~security~alpha~kubernetes~io/app"
_PATH = {"port": 8080, "path": "/admin"}
_NFS = {"server": "nfs.example.com", "path": "/a"}
_HOST = {"port": 8080, "host": "10.0.0.1"}

CHANGES: list[Change] = [
    Change("privileged", f"{_CONTEXT}.privileged", True),
    Change("privileged", f"{_CONTEXT}.privileged", False, allowed=True),
    Change("host_paths", "spec.volumes.0", {"name": "cache", "hostPath": {"path": "/var/run"}}),
    Change("host_paths", "spec.volumes.0", {"name": "cache", "hostPath": {"path": "/a", "type": "File"}}),
    Change("host_paths", "spec.volumes.0", {"name": "cache", "configMap": {"name": "m"}}, allowed=True),
    Change("program_volumes", "spec.volumes.0", {"name": "cache", "gitRepo": {"repository": "https://example.com/a"}}),
    Change("program_volumes", "spec.volumes.0", {"name": "cache", "csi": {"driver": "a.example.com"}}, allowed=True),
    Change("program_volumes", "spec.volumes.0", {"name": "cache", "flexVolume": {"driver": "example.com/a"}}),
    *[Change("host_namespaces", f"spec.{key}", True) for key in ("hostPID", "hostIPC", "hostNetwork")],
    *[Change("host_namespaces", f"spec.{key}", False, allowed=True) for key in ("hostPID", "hostIPC", "hostNetwork")],
    Change("host_processes", f"{_CONTEXT}.windowsOptions.hostProcess", False, allowed=True),
    Change("host_ports", "@.ports.0.hostPort", 8080),
    Change("host_ports", "@.ports.0.hostPort", 0, allowed=True),
    *[
        Change("handler_hosts", f"@.{probe}.{handler}", _HOST)
        for probe in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop")
        for handler in ("httpGet", "tcpSocket")
    ],
    Change("handler_hosts", "@.livenessProbe.httpGet", {"port": 8080}, allowed=True),
    Change("handler_hosts", "@.livenessProbe.tcpSocket", {"port": 8080, "host": ""}, allowed=True),
    *[
        Change("capabilities", f"{_CONTEXT}.capabilities.add", ["NET_BIND_SERVICE", name])
        for name in ("SYS_ADMIN", "sys_admin", "CAP_SYS_ADMIN", "ALL", "NET_RAW", "chown", "CAP_CHOWN")
    ],
    Change("capabilities", f"{_CONTEXT}.capabilities.add", sorted(table.CAPABILITY_NAMES), allowed=True),
    Change("proc_mounts", f"{_CONTEXT}.procMount", "Default", allowed=True),
    *[
        Change("profiles", f"{context}.{profile}.type", value, allowed=value != "Unconfined")
        for context in (_CONTEXT, _NOWHERE)
        for profile in ("seccompProfile", "appArmorProfile")
        for value in ("Unconfined", "RuntimeDefault")
    ],
    Change("profiles", f"{_CONTEXT}.seccompProfile", {"type": "Localhost", "localhostProfile": "a"}, allowed=True),
    Change("profile_annotations", _PROFILE, "unconfined"),
    Change("profile_annotations", _PROFILE, "runtime/default", allowed=True),
    Change("profile_annotations", _POD_SECCOMP, "unconfined"),
    Change("profile_annotations", _SECCOMP, "unconfined"),
    Change("profile_annotations", _SECCOMP, "localhost/a.json", allowed=True),
    *[
        Change(check, f"{context}.seLinuxOptions.{key}", value, allowed=value.startswith("container_"))
        for context in (_CONTEXT, _NOWHERE)
        for check, key, value in (
            ("selinux_types", "type", "spc_t"),
            ("selinux_types", "type", "container_init_t"),
            ("selinux_users", "user", "system_u"),
            ("selinux_users", "role", "sysadm_r"),
        )
    ],
    Change("selinux_users", f"{_CONTEXT}.seLinuxOptions", {"type": "container_t", "user": ""}, allowed=True),
    Change("selinux_types", f"{_CONTEXT}.seLinuxOptions.level", "s0:c1,c2", allowed=True),
    Change("sysctls", "spec.securityContext.sysctls", [{"name": "kernel.msgmax", "value": "1"}]),
    Change(
        "sysctls",
        "spec.securityContext.sysctls",
        [{"name": name, "value": "1"} for name in sorted(table.SYSCTL_NAMES)],
        allowed=True,
    ),
    Change("unrequested_gpus", "@.env.0", _ALL_GPUS),
    Change("unrequested_gpus", "@.env.0", {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": _FROM_ELSEWHERE}),
    Change(
        "unrequested_gpus", "@.env.0", {"name": "NVIDIA_VISIBLE_DEVICES", "value": "", "valueFrom": _FROM_ELSEWHERE}
    ),
    *[
        Change("unrequested_gpus", "@.env.0", {"name": "NVIDIA_VISIBLE_DEVICES", "value": value}, allowed=True)
        for value in ("", "none", "void")
    ],
    Change("unrequested_gpus", "@.env.0", {"name": "NVIDIA_VISIBLE_DEVICES"}, allowed=True),
    *[
        Change("variable_prefixes", "@.envFrom", [{"prefix": prefix, "configMapRef": {"name": "m"}}])
        for prefix in ("NVIDIA_", "N", "NVIDIA_VISIBLE_DEVICES")
    ],
    Change(
        "variable_prefixes", "@.envFrom", [{"secretRef": {"name": "m"}}, {"prefix": "NV", "secretRef": {"name": "n"}}]
    ),
    *[
        Change("variable_prefixes", "@.envFrom", [{"prefix": prefix, "configMapRef": {"name": "m"}}], allowed=True)
        for prefix in ("", "nvidia_", "NVIDIA_VISIBLE_DEVICES_", "VISIBLE")
    ],
    *[Change("runtime_classes", "spec.runtimeClassName", name) for name in ("nvidia", "nvidia-cdi")],
    Change("runtime_classes", "spec.runtimeClassName", "kata", allowed=True),
    Change("device_mounts", "@.volumeMounts.0.mountPath", "/var/run/nvidia-container-devices/all"),
    Change("device_mounts", "@.volumeMounts.0.mountPath", "/srv/nvidia-container-devices", allowed=True),
    Change("raw_devices", "@.volumeDevices", [{"name": "data", "devicePath": "/dev/xvda"}]),
    Change("raw_devices", "@.volumeDevices", [], allowed=True),
    Change("injected_devices", "metadata.annotations.cdi~k8s~io/x", "nvidia.com/gpu=all"),
    Change("injected_devices", "metadata.annotations.nvidia~cdi~k8s~io/container~app", "management.nvidia.com/gpu=all"),
    Change("injected_devices", "metadata.annotations.nvidia~com/container~app~gpus~devices", "all"),
    Change("injected_devices", "metadata.annotations.example~com/cdi", "x", allowed=True),
    Change("injected_devices", "metadata.annotations.nvidia~com/container~app~gpu-compute~mode", "x", allowed=True),
    Change("node_names", "spec.nodeName", "x86-1"),
    Change("node_names", "spec.nodeSelector", {"kubernetes.io/hostname": "x86-1"}, allowed=True),
    *[
        Change("images", "@.image", image)
        for image in ("app", "app:latest", "a.example:5000/app", "a/b/app:latest", "app@sha512:latest")
    ],
    *[
        Change("images", "@.image", image, allowed=True)
        for image in ("app:1", "a.example:5000/app:1", "app@sha256:" + "0" * 64, "app:latest@sha256:" + "0" * 64)
    ],
    Change("volume_images", "spec.volumes.0", {"name": "cache", "image": {"reference": "data:latest"}}),
    Change("volume_images", "spec.volumes.0", {"name": "cache", "image": {"reference": "data:1"}}, allowed=True),
]
FORBIDDEN = [change for change in CHANGES if not change.allowed]


def _new(place: Place, field: str, allowed: Allowed) -> Check:
    name = "new_in_" + place.name.lower()
    return Check(name, "host-access", place, (field,), allowed, why="nobody asked for it before", remedy="remove it")


NEW: list[tuple[Check, Change]] = [
    (_new(place, field, allowed), Change(f"new_in_{place.name.lower()}", path, value))
    for place, field, allowed, path, value in (
        (Place.POD, "setHostnameAsFQDN", NotTrue(), "spec.setHostnameAsFQDN", True),
        (Place.CONTAINERS, "workingDir", BeginsNot("/srv"), "spec.containers.0.workingDir", "/srv/a"),
        (Place.CONTEXTS, "seLinuxOptions.level", Absent(), "spec.securityContext.seLinuxOptions", {"level": "s0:c1"}),
        (Place.HANDLERS, "httpGet.path", Begins(("/health",)), "spec.containers.0.livenessProbe.httpGet", _PATH),
        (Place.VOLUMES, "nfs", Absent(shown="server"), "spec.volumes.0", {"name": "cache", "nfs": _NFS}),
        (Place.ANNOTATIONS, "example.com/new", Absent(), "metadata.annotations.example~com/new", "x"),
        (Place.ENVIRONMENT, "NEW", OneOf(frozenset({"a"})), "spec.containers.0.env.0", {"name": "NEW", "value": "b"}),
    )
]
"""Checks that no table has, one for each place, with what each forbids."""
IN_EPHEMERAL = frozenset(
    {
        "privileged",
        "capabilities",
        "profiles",
        "selinux_types",
        "selinux_users",
        "unrequested_gpus",
        "variable_prefixes",
        "device_mounts",
        "raw_devices",
        "images",
    }
)
"""Checks of what the API server lets an ephemeral container have at all."""


def both(*changes: Change | tuple[str, object]) -> Callable[[Json], Json]:
    """Several changes at once."""

    def apply(pod: Json) -> Json:
        for change in changes:
            pod = change.apply(pod) if isinstance(change, Change) else changed(pod, *change)
        return pod

    return apply


CONTAINER = "spec.containers.0"
_CLAIMS = (("spec.resourceClaims", [{"name": "gpu", "resourceClaimName": "gpu"}]),)
_CLAIM = both(*_CLAIMS, (f"{CONTAINER}.resources.claims", [{"name": "gpu"}]))
_RUNTIME = ("spec.runtimeClassName", "nvidia")
_KAI = ("spec.schedulerName", "kai-scheduler")
_HALF = ("metadata.annotations.gpu-fraction", "0.5")
_VISIBLE = (f"{CONTAINER}.env.0", _ALL_GPUS)
_GIVEN = (f"{CONTAINER}.env.0", {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": _FROM_ELSEWHERE})
"""What KAI's webhook writes into the container that gets the fraction."""


def _request(name: str, amount: str = "1", container: str = CONTAINER) -> Callable[[Json], Json]:
    return both((f"{container}.resources", {"limits": {name: amount}}), _RUNTIME)


def _named(container: str) -> tuple[str, object]:
    return "metadata.annotations.gpu-fraction-container-name", container


def _compute_mode(container: str) -> tuple[str, object]:
    return f"metadata.annotations.nvidia~com/container~{container}~gpu-compute~mode", "time-slicing"


COMBINATIONS: dict[str, Callable[[Json], Json]] = {
    "host-process": both(
        ("spec.hostNetwork", True), ("spec.securityContext.windowsOptions", {"hostProcess": True, "runAsUserName": "a"})
    ),
    "requested": _request("nvidia.com/gpu"),
    "requested-slice": _request("nvidia.com/gpu.shared", "2"),
    "requested-instance": _request("nvidia.com/mig-1g.5gb.me"),
    "requested-by-an-init-container": _request("nvidia.com/gpu", container="spec.initContainers.0"),
    "requested-none": _request("nvidia.com/gpu", "0"),
    "requested-another-name": _request("nvidia.com/gpux"),
    "requested-another-resource": _request("nvidia.com.example.com/gpu"),
    "more-than-requested": lambda pod: both(_VISIBLE)(_request("nvidia.com/gpu")(pod)),
    "nothing-requested-explicitly": both(
        _RUNTIME, (f"{CONTAINER}.env.0", {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"})
    ),
    "fraction": both(_GIVEN, _KAI, _HALF, _RUNTIME),
    "gpu-memory": both(_GIVEN, _KAI, ("metadata.annotations.gpu-memory", "1024"), _RUNTIME),
    "fraction-of-a-named-container": both(
        ("spec.initContainers.0.env.0", _GIVEN[1]), _KAI, _HALF, _named("prepare"), _RUNTIME
    ),
    "fraction-of-the-first-by-both-names": both(_GIVEN, _KAI, _HALF, _compute_mode("app"), _RUNTIME),
    "fraction-of-a-container-by-both-names": both(
        ("spec.initContainers.0.env.0", _GIVEN[1]), _KAI, _HALF, _named("prepare"), _compute_mode("prepare"), _RUNTIME
    ),
    "fraction-of-another-to-some": both(_VISIBLE, _KAI, _HALF, _compute_mode("prepare")),
    "fraction-of-another-to-others": both(
        ("spec.initContainers.0.env.0", _ALL_GPUS), _KAI, _HALF, _compute_mode("prepare")
    ),
    "fraction-of-another-with-a-runtime": both(_KAI, _HALF, _compute_mode("prepare"), _RUNTIME),
    "fraction-of-another": both(_GIVEN, _KAI, _HALF, _named("prepare")),
    "fraction-beside-it": both(("spec.initContainers.0.env.0", _GIVEN[1]), _KAI, _HALF),
    "fraction-of-nothing": both(_GIVEN, _KAI, ("metadata.annotations.gpu-fraction", "0"), _RUNTIME),
    "fraction-of-devices-alone": both(_GIVEN, _KAI, ("metadata.annotations.gpu-fraction-num-devices", "2")),
    "fraction-under-another-scheduler": both(_GIVEN, _HALF, _RUNTIME),
    "fraction-with-a-runtime-under-another-scheduler": both(_HALF, _RUNTIME),
    "claim": _CLAIM,
    "claim-with-a-runtime": lambda pod: both(_RUNTIME)(_CLAIM(pod)),
    "claim-with-a-variable": lambda pod: both(_VISIBLE)(_CLAIM(pod)),
    "unmasked-in-its-own-user-namespace": both(
        ("spec.hostUsers", False), (f"{CONTAINER}.securityContext.procMount", "Unmasked")
    ),
    "two-in-one-list": both((f"{CONTAINER}.securityContext.capabilities.add", ["SYS_ADMIN", "NET_ADMIN"])),
}
"""What one change can't say."""
FORBIDDEN_TOGETHER = {
    "host-process": "host-access",
    "requested-none": "devices",
    "requested-another-name": "devices",
    "requested-another-resource": "devices",
    "more-than-requested": "devices",
    "nothing-requested-explicitly": "devices",
    "fraction-of-another-to-some": "devices",
    "fraction-of-another-to-others": "devices",
    "fraction-of-another": "devices",
    "fraction-beside-it": "devices",
    "fraction-of-nothing": "devices",
    "fraction-of-devices-alone": "devices",
    "fraction-under-another-scheduler": "devices",
    "fraction-with-a-runtime-under-another-scheduler": "devices",
    "claim-with-a-runtime": "devices",
    "claim-with-a-variable": "devices",
    "two-in-one-list": "host-access",
}
"""Those that both refuse, with the rule that says so."""


def _given_memory(container: str, amount: str = "8Gi", key: str = "request") -> tuple[str, object]:
    return f"metadata.annotations.nvidia~com/container~{container}~gpu-memory~{key}", amount


NV_FRACTIONS: dict[str, Callable[[Json], Json]] = {
    "request": both(_given_memory("app"), _KAI, _RUNTIME),
    "limit": both(_given_memory("app", key="limit"), _KAI, _RUNTIME),
    "init-container": both(_given_memory("prepare"), _KAI, _RUNTIME),
    "zero": both(_given_memory("app", "0"), _KAI, _RUNTIME),
    "no-container-of-the-pod": both(_given_memory("apps"), _KAI, _RUNTIME),
    "compute-mode-alone": both(_compute_mode("app"), _KAI, _RUNTIME),
    "another-scheduler": both(_given_memory("app"), _RUNTIME),
    "with-a-variable": both(_given_memory("app"), _KAI, _RUNTIME, _VISIBLE),
}
"""Requests by the annotations of NvFractions, which count where the stack says that mode."""
REFUSED_UNDER_NV_FRACTIONS = NV_FRACTIONS.keys() - {"request", "limit", "init-container"}
"""Those that ask for nothing, and a variable that nobody sets anew."""
GIVEN_ALONE = ("fraction", "gpu-memory", "fraction-of-a-named-container")
"""Combinations with a variable in the container that gets a fraction: for NvFractions KAI's webhook leaves it there."""

REFUSED_BY_KUBERNETES = {
    "unmasked": both((f"{CONTAINER}.securityContext.procMount", "Unmasked")),
    "sub-path": both((f"{CONTAINER}.volumeMounts.0.subPath", "../etc")),
    "sub-path-expression": both((f"{CONTAINER}.volumeMounts.0.subPathExpr", "a/../../etc")),
    "absolute": both((f"{CONTAINER}.volumeMounts.0.subPath", "/etc")),
}
"""What the pack finds and Kubernetes 1.36 refuses by itself, before any policy."""
