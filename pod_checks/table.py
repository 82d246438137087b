"""What is asked of pods, as data: the policy pack and the cluster's guard give the same verdict, as both read it here.

Allowed values are those of Pod Security's baseline (k8s.io/pod-security-admission v0.37.2, policy/check_*.go) where it
has the check.
"""

from pod_checks import language
from pod_checks.language import Check, Place, Unless

_CAPABILITIES = """
    AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE SETFCAP SETGID SETPCAP SETUID SYS_CHROOT
"""
CAPABILITY_NAMES = frozenset(_CAPABILITIES.split())
_SYSCTLS = """
    kernel.shm_rmid_forced net.ipv4.ip_local_port_range net.ipv4.ip_local_reserved_ports
    net.ipv4.ip_unprivileged_port_start net.ipv4.ping_group_range net.ipv4.tcp_fin_timeout
    net.ipv4.tcp_keepalive_intvl net.ipv4.tcp_keepalive_probes net.ipv4.tcp_keepalive_time net.ipv4.tcp_notsent_lowat
    net.ipv4.tcp_rmem net.ipv4.tcp_slow_start_after_idle net.ipv4.tcp_syncookies net.ipv4.tcp_wmem
"""
SYSCTL_NAMES = frozenset(_SYSCTLS.split())
PROC_MOUNT_TYPES = frozenset({"Default"})
PROFILE_TYPES = frozenset({"RuntimeDefault", "Localhost"})
SELINUX_DOMAINS = frozenset({"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"})
CONFINED = ("runtime/default", "docker/default", "localhost/")
"""What profile annotations may begin with."""
NO_DEVICES = frozenset({"", "none", "void"})

APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
SECCOMP_ANNOTATIONS = (
    "seccomp.security.alpha.kubernetes.io/pod",
    "container.seccomp.security.alpha.kubernetes.io/",
)
CDI_ANNOTATIONS = ("cdi.k8s.io/", "nvidia.cdi.k8s.io/")
"""Pod annotations with these prefixes inject CDI devices: by the runtime, and by NVIDIA's NRI plugin (toolkit 1.18)."""
GIVEN_DEVICES = "nvidia.com/container.*.gpus.devices"
"""Pod annotations by which NvFractions' daemon sets NVIDIA_VISIBLE_DEVICES of the container `*`, whatever scheduler the
pod has and whatever the container says (kai-gpu-fractioning, fractiond/internal/plugin.go). KAI's webhook lets its
binder alone write them, and sees no pod of another scheduler."""
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
VOLUME_DEVICES = "/var/run/nvidia-container-devices"
"""Mounts here name devices to the NVIDIA container runtime (`accept-nvidia-visible-devices-as-volume-mounts`)."""
NVIDIA_CLASSES = "nvidia"
"""Prefix of the names of NVIDIA's runtime classes: nvidia, nvidia-cdi, nvidia-legacy."""
KAI_SCHEDULER = "kai-scheduler"
"""Under every other scheduler the annotations are text."""
FRACTIONS = frozenset({"gpu-fraction", "gpu-memory"})
"""KAI's own requests, as annotations of the pod (KAI v0.17.0, pkg/common/resources/gpu_sharing.go)."""
FRACTION_CONTAINER = "gpu-fraction-container-name"
"""Annotation that names the container which gets the fraction; without it, the first one of `containers`. KAI v0.18
then takes the one that an annotation of `OF_CONTAINER` names (api/utilities/resources/gpu_sharing_container_ref.go):
where that is another, it depends on KAI's version whose variable is set anew."""
OF_CONTAINER = "nvidia.com/container."
"""What stands before a container's name in annotations of NvFractions, which KAI v0.18 reads in every mode."""
CONTAINER_MEMORY = (OF_CONTAINER, (".gpu-memory.request", ".gpu-memory.limit"))
"""What stands before and after a container's name in the annotations by which NvFractions is asked (KAI v0.18,
docs/gpu-sharing). They count under `NV_FRACTIONS` alone: nothing says what another mode makes of them."""
NV_FRACTIONS = "nv_fractions"
"""The stack's `kai.gpu_sharing_mode` under which the driver holds pods to their memory. KAI's webhook then has another
plugin, which leaves a container's variables as they are (KAI v0.18, cmd/admission/main.go): no request lifts a check of
them."""
GPU_RESOURCES = "nvidia[.]com/(gpu([.]shared)?|mig-[a-z0-9.-]+)"
"""The whole names of resources that are GPUs or parts of them; nobody has to have a resource of another name."""
POSITIVE = "[+]?[0.]*[1-9].*"
"""A whole quantity above zero. The syntax of both is Python's and RE2's alike."""
HANDLERS = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop")
"""Where a container has a handler that may name a host."""

DIGEST = "@sha256:"
TAGGED = "([^/]*/)*[^/:]*:[^/]+"
LATEST = "([^/]*/)*[^/:]*:latest"
"""Whole image references with a tag, and with that one; the syntax is Python's and RE2's alike."""

_SAFE_DEFAULT = "remove it: the default is the safe value"
_SHARES_THE_NODE = "the pod shares the node's own processes, memory or network"
_CONFINED = "the container runs without the runtime's confinement"
_OUT_OF_DOMAIN = "the container leaves the SELinux domain of containers"
_PIN_WHY = "what runs tomorrow would not be what was reviewed today"
_PIN_REMEDY = "add a tag, or better a digest (@sha256:...)"
REQUEST_GPU = "request the GPU: nvidia.com/gpu under resources.limits, or KAI's annotation gpu-fraction"
_TAKES_GPUS = "with the NVIDIA runtime it gets GPUs that the scheduler gave to others"

CHECKS: tuple[Check, ...] = (
    Check(
        name="privileged",
        rule="privileged",
        place=Place.CONTAINERS,
        fields=("securityContext.privileged",),
        allowed=language.NotTrue(),
        why="a privileged container is root on its node, with every device",
        remedy="remove it; ask for GPUs through nvidia.com/gpu or a KAI fraction, which need no privilege",
    ),
    Check(
        name="host_paths",
        rule="host-paths",
        place=Place.VOLUMES,
        fields=("hostPath",),
        allowed=language.Absent(shown="path"),
        why="who reads or writes the node's files can become root on it",
        remedy="use a ConfigMap, an emptyDir or a PersistentVolume of a storage driver",
    ),
    Check(
        name="program_volumes",
        rule="host-paths",
        place=Place.VOLUMES,
        fields=("gitRepo", "flexVolume"),
        allowed=language.Absent(shown="driver"),
        why="the kubelet runs a program of the node for it, as root (CVE-2024-10220)",
        remedy="use a CSI driver, or an emptyDir that an init container fills",
    ),
    Check(
        name="host_namespaces",
        rule="host-access",
        place=Place.POD,
        fields=("hostPID", "hostIPC", "hostNetwork"),
        allowed=language.NotTrue(),
        why=_SHARES_THE_NODE,
        remedy=_SAFE_DEFAULT,
    ),
    Check(
        name="host_processes",
        rule="host-access",
        place=Place.CONTEXTS,
        fields=("windowsOptions.hostProcess",),
        allowed=language.NotTrue(),
        why=_SHARES_THE_NODE,
        remedy=_SAFE_DEFAULT,
    ),
    Check(
        name="host_ports",
        rule="host-access",
        place=Place.CONTAINERS,
        fields=("ports[].hostPort",),
        allowed=language.Zero(),
        why="the port opens on the node, past NetworkPolicies",
        remedy="use a Service of type NodePort or LoadBalancer",
    ),
    Check(
        name="handler_hosts",
        rule="host-access",
        place=Place.HANDLERS,
        fields=("httpGet.host", "tcpSocket.host"),
        allowed=language.OneOf(frozenset({""})),
        why="the kubelet calls that host from the node's own network",
        remedy="remove it: a probe asks the pod's own address",
    ),
    Check(
        name="capabilities",
        rule="host-access",
        place=Place.CONTAINERS,
        fields=("securityContext.capabilities.add[]",),
        allowed=language.OneOf(CAPABILITY_NAMES),
        why="the kernel gives the container a right that it has over the whole node",
        remedy="remove it; the runtime's default capabilities need not be added",
    ),
    Check(
        name="proc_mounts",
        rule="host-access",
        place=Place.CONTAINERS,
        fields=("securityContext.procMount",),
        allowed=language.OneOf(PROC_MOUNT_TYPES),
        why="the container sees what the runtime hides of the node's /proc",
        remedy=_SAFE_DEFAULT,
        unless=Unless.OWN_USERS,
    ),
    Check(
        name="profiles",
        rule="host-access",
        place=Place.CONTEXTS,
        fields=("seccompProfile.type", "appArmorProfile.type"),
        allowed=language.OneOf(PROFILE_TYPES),
        why=_CONFINED,
        remedy=_SAFE_DEFAULT,
    ),
    Check(
        name="profile_annotations",
        rule="host-access",
        place=Place.ANNOTATIONS,
        fields=(APPARMOR_ANNOTATION, *SECCOMP_ANNOTATIONS),
        allowed=language.Begins(CONFINED),
        why=_CONFINED,
        remedy=_SAFE_DEFAULT,
    ),
    Check(
        name="selinux_types",
        rule="host-access",
        place=Place.CONTEXTS,
        fields=("seLinuxOptions.type",),
        allowed=language.OneOf(SELINUX_DOMAINS),
        why=_OUT_OF_DOMAIN,
        remedy=_SAFE_DEFAULT,
    ),
    Check(
        name="selinux_users",
        rule="host-access",
        place=Place.CONTEXTS,
        fields=("seLinuxOptions.user", "seLinuxOptions.role"),
        allowed=language.OneOf(frozenset({""})),
        why=_OUT_OF_DOMAIN,
        remedy=_SAFE_DEFAULT,
    ),
    Check(
        name="sysctls",
        rule="host-access",
        place=Place.POD,
        fields=("securityContext.sysctls[].name",),
        allowed=language.OneOf(SYSCTL_NAMES),
        why="this kernel setting reaches beyond the pod",
        remedy=_SAFE_DEFAULT,
    ),
    Check(
        name="unrequested_gpus",
        rule="devices",
        place=Place.ENVIRONMENT,
        fields=(VISIBLE_DEVICES,),
        allowed=language.OneOf(NO_DEVICES),
        why=_TAKES_GPUS,
        remedy=f"remove it, or set it to void: whoever gives the container its GPUs sets it; {REQUEST_GPU}",
        unless=Unless.GIVEN_BY_KAI,
    ),
    Check(
        name="variable_prefixes",
        rule="devices",
        place=Place.CONTAINERS,
        fields=("envFrom[].prefix",),
        allowed=language.NoStartOf(VISIBLE_DEVICES),
        why=f"it makes {VISIBLE_DEVICES} of a key that nobody looks at: {_TAKES_GPUS}",
        remedy=f"use another prefix; {REQUEST_GPU}",
    ),
    Check(
        name="runtime_classes",
        rule="devices",
        place=Place.POD,
        fields=("runtimeClassName",),
        allowed=language.BeginsNot(NVIDIA_CLASSES),
        why=f"an image may ask for every GPU by itself ({VISIBLE_DEVICES}, or only CUDA_VERSION): {_TAKES_GPUS}",
        remedy=f"remove it; or {REQUEST_GPU}",
        unless=Unless.GPU_REQUESTED,
    ),
    Check(
        name="device_mounts",
        rule="devices",
        place=Place.CONTAINERS,
        fields=("volumeMounts[].mountPath",),
        allowed=language.BeginsNot(VOLUME_DEVICES),
        why=_TAKES_GPUS,
        remedy=REQUEST_GPU,
    ),
    Check(
        name="raw_devices",
        rule="devices",
        place=Place.CONTAINERS,
        fields=("volumeDevices[]",),
        allowed=language.Absent(shown="devicePath"),
        why="a raw block device is read and written past every file permission",
        remedy="mount the volume as a file system (volumeMounts)",
    ),
    Check(
        name="injected_devices",
        rule="devices",
        place=Place.ANNOTATIONS,
        fields=(*CDI_ANNOTATIONS, GIVEN_DEVICES),
        allowed=language.Absent(),
        why="the runtime injects devices that nobody requested",
        remedy=REQUEST_GPU,
        unless=Unless.WRITTEN_BY_KAI,
    ),
    Check(
        name="node_names",
        rule="scheduling",
        place=Place.POD,
        fields=("nodeName",),
        allowed=language.OneOf(frozenset({""})),
        why="a pod with a node name passes scheduler, quotas and taints by",
        remedy="use a nodeSelector or affinity and let the scheduler choose",
    ),
    Check(
        name="images",
        rule="images",
        place=Place.CONTAINERS,
        fields=("image",),
        allowed=language.Pinned(),
        why=_PIN_WHY,
        remedy=_PIN_REMEDY,
    ),
    Check(
        name="volume_images",
        rule="images",
        place=Place.VOLUMES,
        fields=("image.reference",),
        allowed=language.Pinned(),
        why=_PIN_WHY,
        remedy=_PIN_REMEDY,
    ),
)
"""The table. A new check is one entry: the rule that it names finds it, and the guard refuses it."""

BY_NAME = {check.name: check for check in CHECKS}
