"""Reservation pods on a Tegra node in every form that carriers must treat alike."""

from collections.abc import Callable

import yaml

from testbed.stacks import ROOT, Json

NODE = "jetson-1"
_EXEC = {"exec": {"command": ["sh", "-c", "id"]}}
_CONTAINER = "spec.containers.0"

NEAR: list[tuple[str, object]] = [
    ("metadata.labels.app", "other"),
    ("spec.nodeName", "x86-1"),
    ("spec.nodeName", "cpu-1"),
    ("spec.serviceAccountName", "default"),
    ("spec.runtimeClassName", "other"),
    ("spec.initContainers", [{"name": "a", "image": "a:1"}]),
    (f"{_CONTAINER}.name", "other"),
    *(
        (f"{_CONTAINER}.image", image)
        for image in (
            "evil:1.0",
            "resourcereservation:v0.18.6",
            "registry.example.com/resourcereservation:v0.18.6",
            "registry.example.com/resourcereservation@sha256:" + "0" * 64,
            "registry.example.com/ghcr.io/kai-scheduler/kai-scheduler/resourcereservation:v0.18.6",
            "ghcr.io/kai-scheduler/kai-scheduler/binder:v0.18.6",
            "ghcr.io/kai-scheduler/kai-scheduler/evil/resourcereservation:v0.18.6",
            "ghcr.io/kai-scheduler/kai-scheduler/resourcereservation/evil:v0.18.6",
            "ghcr-io/kai-scheduler/kai-scheduler/resourcereservation:v0.18.6",
            "ghcr.io/kai-scheduler/kai-scheduler/resourcereservation",
        )
    ),
    (f"{_CONTAINER}.command", ["sh"]),
    (f"{_CONTAINER}.args", ["-c"]),
    (f"{_CONTAINER}.envFrom", [{"configMapRef": {"name": "m"}}]),
    (f"{_CONTAINER}.lifecycle", {"postStart": _EXEC}),
    *((f"{_CONTAINER}.{probe}", _EXEC) for probe in ("livenessProbe", "readinessProbe", "startupProbe")),
    (f"{_CONTAINER}.env.0", {"name": "LD_PRELOAD", "value": "/dev/evil.so"}),
    (f"{_CONTAINER}.env.0", {"name": "POD_NAME", "value": "another"}),
    (f"{_CONTAINER}.env.0", {"name": "GODEBUG", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}),
    (f"{_CONTAINER}.securityContext.capabilities", {"add": ["SYS_ADMIN"]}),
    ("spec.hostPID", True),
]
"""What is not KAI's pod any more: changes of it, before or after the overrides."""
OVER_THE_ENTRYPOINT = [
    ("spec.volumes", [{"name": "program", "configMap": {"name": "program", "defaultMode": 511}}]),
    (f"{_CONTAINER}.volumeMounts", [{"name": "program", "mountPath": "/workspace/app", "subPath": "app"}]),
]
"""Changes of the pod as KAI makes it that put another program in the place of its own."""
ABOVE_BASELINE = [
    (f"{_CONTAINER}.securityContext.privileged", True),
    (f"{_CONTAINER}.securityContext.capabilities", {"add": ["NET_RAW"]}),
    (f"{_CONTAINER}.securityContext.seLinuxOptions", {"type": "spc_t"}),
    (f"{_CONTAINER}.securityContext.seccompProfile", {"type": "Unconfined"}),
    ("spec.securityContext", {"appArmorProfile": {"type": "Unconfined"}}),
    ("spec.securityContext", {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}),
    (f"{_CONTAINER}.ports", [{"containerPort": 22, "hostPort": 22}]),
    (f"{_CONTAINER}.livenessProbe", {"httpGet": {"port": 80, "host": "10.0.0.1"}}),
    ("spec.volumes", [{"name": "dev-nvidia", "hostPath": {"path": "/dev", "type": "Directory"}}]),
    ("spec.hostPID", True),
    ("spec.hostIPC", True),
    ("spec.hostNetwork", True),
]
"""What Pod Security's baseline refuses, of any pod."""


def as_binder_creates(node: str | None = NODE) -> Json:
    pod: Json = yaml.safe_load((ROOT / "examples/reservation-pod.yaml").read_text(encoding="utf-8"))
    if node is None:
        del pod["spec"]["nodeName"]
    else:
        pod["spec"]["nodeName"] = node
    return pod


def _container(pod: Json) -> Json:
    container: Json = pod["spec"]["containers"][0]
    return container


def _no_env(pod: Json) -> None:
    del _container(pod)["env"]


def _same_env(pod: Json) -> None:
    _container(pod)["env"].insert(0, {"name": "LD_LIBRARY_PATH", "value": "/elsewhere"})


def _same_env_in_another_order(pod: Json) -> None:
    names = ("A", "LD_LIBRARY_PATH", "B", "NVIDIA_DRIVER_CAPABILITIES", "C")
    _container(pod)["env"] = [{"name": name, "value": "x"} for name in names]


def _same_volume(pod: Json) -> None:
    pod["spec"]["volumes"] = [{"name": "dev-nvidia", "hostPath": {"path": "/dev/other"}}]


def _another_kind_of_volume(pod: Json) -> None:
    pod["spec"]["volumes"] = [{"name": "dev-nvidia", "emptyDir": {}}]


def _same_mount(pod: Json) -> None:
    pod["spec"]["volumes"] = [{"name": "mine", "emptyDir": {}}]
    _container(pod)["volumeMounts"] = [{"name": "mine", "mountPath": "/dev", "readOnly": True}]


def _init_container(pod: Json) -> None:
    pod["spec"]["initContainers"] = [{"name": "before", "image": "busybox:1"}]


def _sidecar(pod: Json) -> None:
    pod["spec"]["initContainers"] = [{"name": "beside", "image": "busybox:1", "restartPolicy": "Always"}]


def _second_container(pod: Json) -> None:
    pod["spec"]["containers"].insert(0, {"name": "other", "image": "busybox:1", "command": ["sh", "-c", "a && b"]})


def _read_only_root(pod: Json) -> None:
    _container(pod)["securityContext"]["readOnlyRootFilesystem"] = True


def _no_security_context(pod: Json) -> None:
    del _container(pod)["securityContext"]


def _generated_name(pod: Json) -> None:
    del pod["metadata"]["name"]
    pod["metadata"]["generateName"] = "gpu-reservation-"


def _arguments_only(pod: Json) -> None:
    _container(pod)["args"] = ["--verbose"]


def _another_container_only(pod: Json) -> None:
    _container(pod)["name"] = "other"


def _another_label(pod: Json) -> None:
    pod["metadata"]["labels"]["app"] = "other"


def _unlisted_node(pod: Json) -> None:
    pod["spec"]["nodeName"] = "x86-1"


def _no_node(pod: Json) -> None:
    del pod["spec"]["nodeName"]


def _as_kai_makes_it(_: Json) -> None:
    pass


CASES: list[Callable[[Json], None]] = [
    _as_kai_makes_it,
    _no_env,
    _same_env,
    _same_env_in_another_order,
    _same_volume,
    _another_kind_of_volume,
    _same_mount,
    _init_container,
    _sidecar,
    _second_container,
    _read_only_root,
    _no_security_context,
    _generated_name,
    _arguments_only,
    _another_container_only,
    _another_label,
    _unlisted_node,
    _no_node,
]
CHANGED = {case.__name__ for case in CASES[:14]} - {"_another_kind_of_volume"}
REFUSED = {"_another_kind_of_volume", "_another_container_only"}


def case_pod(case: Callable[[Json], None]) -> Json:
    pod = as_binder_creates()
    case(pod)
    return pod
