"""No namespaces, ports, kernel settings or weakened confinement of the node: Pod Security's baseline.

Allowed values are those of k8s.io/pod-security-admission v0.36.3, policy/check_*.go.
"""

from collections.abc import Iterator

from policy.findings import Violation
from policy.reading import Hole, dict_of, list_of, one_of, parent, text_of
from policy.rule import Rule
from policy.rules.privileged import is_true
from policy.stack_platform import StackFacts
from policy.workloads import Document, Field

_CAPABILITIES = frozenset(
    {
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    }
)
_SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    }
)
_SELINUX_TYPES = frozenset({"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"})
_PROFILES = frozenset({"RuntimeDefault", "Localhost"})
_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP = ("seccomp.security.alpha.kubernetes.io/pod", "container.seccomp.security.alpha.kubernetes.io/")
_PROBES = frozenset({"httpget", "tcpsocket"})


def _check(document: Document, _: StackFacts) -> Iterator[Violation]:
    yield from _namespaces_and_ports(document)
    yield from _capabilities(document)
    yield from _confinement(document)
    yield from _annotations(document)


def _namespaces_and_ports(document: Document) -> Iterator[Violation]:
    for field in document.fields("hostPID", "hostIPC", "hostNetwork", "hostProcess"):
        if is_true(field.value):
            yield Violation(field.path, field.value, "the pod shares the node's own processes, memory or network")
    for field in document.fields("hostPort"):
        if field.value and isinstance(field.value, int | float | str) and text_of(field.value) != "0":
            yield Violation(
                field.path,
                field.value,
                "the port opens on the node, past NetworkPolicies",
                "use a Service of type NodePort or LoadBalancer",
            )
    for field in document.fields("host"):
        if field.value and isinstance(field.value, str) and parent(field.path) in _PROBES:
            yield Violation(
                field.path,
                field.value,
                "the kubelet calls that host from the node's own network",
                "remove it: a probe asks the pod's own address",
            )


def _capabilities(document: Document) -> Iterator[Violation]:
    for field in document.fields("add"):
        if parent(field.path) == "capabilities":
            added = field.value if isinstance(field.value, list) else [field.value]
            for index, capability in enumerate(added):
                if (
                    not one_of(capability, _CAPABILITIES)
                    and capability is not None
                    and not isinstance(capability, Hole)
                ):
                    yield Violation(
                        (*field.path, index),
                        capability,
                        "the kernel gives the container a right that it has over the whole node",
                        "remove it; the runtime's default capabilities need not be added",
                    )


def _confinement(document: Document) -> Iterator[Violation]:
    in_user_namespace = {pod.path for pod in document.pods if pod.spec.get("hostUsers") is False}
    for field in document.fields("procMount"):
        inside = any(field.path[: len(path)] == path for path in in_user_namespace)
        if field.value not in (None, "Default") and field.value is not Hole.UNKNOWN and not inside:
            yield Violation(field.path, field.value, "the container sees what the runtime hides of the node's /proc")
    for field in document.fields("seccompProfile", "appArmorProfile"):
        kind = dict_of(field.value).get("type")
        if kind is not None and not one_of(kind, _PROFILES) and not isinstance(kind, Hole):
            yield Violation((*field.path, "type"), kind, "the container runs without the runtime's confinement")
    for field in document.fields("seLinuxOptions"):
        yield from _selinux(field)
    for field in document.fields("sysctls"):
        for index, sysctl in enumerate(list_of(field.value)):
            name = dict_of(sysctl).get("name")
            if name is not None and not one_of(name, _SYSCTLS) and not isinstance(name, Hole):
                yield Violation((*field.path, index, "name"), name, "this kernel setting reaches beyond the pod")


def _selinux(field: Field) -> Iterator[Violation]:
    options = dict_of(field.value)
    why = "the container leaves the SELinux domain of containers"
    kind = options.get("type")
    if kind is not None and not one_of(kind, _SELINUX_TYPES) and not isinstance(kind, Hole):
        yield Violation((*field.path, "type"), kind, why)
    for key in ("user", "role"):
        if options.get(key) and not isinstance(options[key], Hole):
            yield Violation((*field.path, key), options[key], why)


def _annotations(document: Document) -> Iterator[Violation]:
    for key, fields in document.keys.items():
        if key.startswith((_APPARMOR, *_SECCOMP)):
            for field in fields:
                value = text_of(field.value)
                if value and not value.startswith(("runtime/default", "docker/default", "localhost/")):
                    yield Violation(field.path, value, "the container runs without the runtime's confinement")


RULE = Rule(
    name="host-access",
    title="No pod shares the node's namespaces, ports or kernel settings, or leaves its confinement.",
    why="it reaches the node or its neighbours past the container's walls",
    remedy="remove it: the default is the safe value",
    reads=frozenset(
        {
            "hostPID",
            "hostIPC",
            "hostNetwork",
            "hostProcess",
            "hostPort",
            "httpGet.host",
            "tcpSocket.host",
            "capabilities",
            "capabilities.add",
            "procMount",
            "seccompProfile",
            "seccompProfile.type",
            "appArmorProfile",
            "appArmorProfile.type",
            "seLinuxOptions",
            "seLinuxOptions.type",
            "seLinuxOptions.user",
            "seLinuxOptions.role",
            "sysctls",
            "sysctls.name",
            "windowsOptions",
        }
    ),
    check=_check,
)
