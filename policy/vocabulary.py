"""The words that a message may show: values of closed sets, which can't be anybody's secret."""

import re

_CAPABILITIES = """
    ALL AUDIT_CONTROL AUDIT_READ AUDIT_WRITE BLOCK_SUSPEND BPF CHECKPOINT_RESTORE CHOWN DAC_OVERRIDE DAC_READ_SEARCH
    FOWNER FSETID IPC_LOCK IPC_OWNER KILL LEASE LINUX_IMMUTABLE MAC_ADMIN MAC_OVERRIDE MKNOD NET_ADMIN NET_BIND_SERVICE
    NET_BROADCAST NET_RAW PERFMON SETFCAP SETGID SETPCAP SETUID SYS_ADMIN SYS_BOOT SYS_CHROOT SYS_MODULE SYS_NICE
    SYS_PACCT SYS_PTRACE SYS_RAWIO SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG SYSLOG WAKE_ALARM
"""
"""capabilities(7), Linux 6.1."""
_WORDS = """
    true false yes no on off all none void
    Unconfined RuntimeDefault Localhost Unmasked Default runtime/default docker/default unconfined
    privileged baseline restricted latest tegra x86
    spc_t container_t container_init_t container_kvm_t container_engine_t unconfined_t system_u system_r unconfined_u
    unconfined_r sysadm_u sysadm_r sysadm_t
    Fail Ignore Deny Warn Audit Never Always IfNotPresent Equivalent Exact
    escalate bind impersonate approve get list watch create update patch delete deletecollection *
    */* nodes/proxy nodes/* */proxy */token pods/* pods/exec pods/attach pods/ephemeralcontainers serviceaccounts/token
    serviceaccounts/* secrets
    cluster-admin system:masters system:anonymous system:unauthenticated
"""
_FIELDS = """
    path type name image containers initContainers ephemeralContainers securityContext privileged volumes volumeMounts
    hostPath matchLabels matchExpressions namespaceSelector objectSelector labels annotations spec metadata template
    add drop devicePath key operator values selector resources verbs apiGroups kind apiVersion
"""
_KNOWN = frozenset(
    word.casefold()
    for text in (_WORDS, _FIELDS, _CAPABILITIES, " CAP_".join(_CAPABILITIES.split()))
    for word in text.split()
)
_SYSCTL = re.compile(r"(?:kernel|net|fs|vm|user|abi|debug|dev)(?:[./][a-z0-9_]{1,40}){1,6}")
"""The top folders of /proc/sys."""


def is_known(text: str) -> bool:
    """Whether a text is a word of a closed set or the name of a kernel setting."""
    return text.casefold() in _KNOWN or _SYSCTL.fullmatch(text) is not None
