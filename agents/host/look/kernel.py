"""What Kubernetes' networks and storage miss in the kernel that runs, from the configuration it was built with.

Jetson's kernels leave out what servers' kernels have, each release something else (L4T R39.2.1 lacks most of the table
below). So nothing is known by release: the kernel itself is read.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents.host.errors import HostError

if TYPE_CHECKING:
    from agents.host.root import Root

_CONFIG = "/proc/config.gz"
_MOST_BYTES = 8 * 1024 * 1024
_LINE = re.compile(r"^CONFIG_(\w+)=([ym])$", re.MULTILINE)
_RELEASE = re.compile(r"[\w.+~-]+")
_GZIP = 16 + zlib.MAX_WBITS

_FEATURES: dict[str, dict[str, str | None]] = {
    "flannel with VXLAN, and kube-proxy in the mode iptables": {
        "VXLAN": "vxlan",
        "BRIDGE_NETFILTER": "br_netfilter",
        "OVERLAY_FS": "overlay",
        "NF_NAT": "nf_nat",
        "NETFILTER_XT_TARGET_MASQUERADE": "xt_MASQUERADE",
        "NETFILTER_XT_MATCH_COMMENT": "xt_comment",
        "NETFILTER_XT_MATCH_STATISTIC": "xt_statistic",
    },
    "kube-proxy in the mode nftables": {
        "NF_TABLES": "nf_tables",
        "NFT_CT": "nft_ct",
        "NFT_NAT": "nft_nat",
        "NFT_MASQ": "nft_masq",
        "NFT_NUMGEN": "nft_numgen",
        "NFT_REJECT": "nft_reject",
        "NFT_FIB_IPV4": "nft_fib_ipv4",
        "NFT_FIB_IPV6": "nft_fib_ipv6",
        "NFT_FIB_INET": "nft_fib_inet",
    },
    "kube-proxy in the mode ipvs": {
        "IP_VS": "ip_vs",
        "IP_VS_PROTO_TCP": None,
        "IP_VS_PROTO_UDP": None,
        "IP_VS_RR": "ip_vs_rr",
        "IP_VS_WRR": "ip_vs_wrr",
        "IP_VS_SH": "ip_vs_sh",
    },
    "Cilium": {
        "BPF_SYSCALL": None,
        "BPF_JIT": None,
        "CGROUP_BPF": None,
        "NET_CLS_BPF": "cls_bpf",
        "NET_SCH_INGRESS": "sch_ingress",
        "DEBUG_INFO_BTF": None,
        "NETFILTER_XT_TARGET_TPROXY": "xt_TPROXY",
        "NETFILTER_XT_TARGET_CT": "xt_CT",
        "NETFILTER_XT_MATCH_SOCKET": "xt_socket",
    },
    "Calico": {
        "IP_SET": "ip_set",
        "NETFILTER_XT_SET": "xt_set",
        "NETFILTER_XT_TARGET_CT": "xt_CT",
        "IP_NF_MATCH_RPFILTER": "ipt_rpfilter",
        "IP6_NF_MATCH_RPFILTER": "ip6t_rpfilter",
    },
    "logs of network policies (NFLOG)": {"NETFILTER_NETLINK_LOG": "nfnetlink_log"},
    "WireGuard (encryption in flannel, Calico and Cilium)": {"WIREGUARD": "wireguard"},
    "IPsec (encryption in Cilium)": {"XFRM_USER": "xfrm_user"},
    "Longhorn's v1 volumes (iSCSI)": {"ISCSI_TCP": "iscsi_tcp"},
    "Ceph's volumes": {"BLK_DEV_RBD": "rbd", "CEPH_FS": "ceph"},
    "the kubelet's pressure metrics (PSI)": {"PSI": None},
}
"""Options of the kernel by what needs them, each with the module that it may be; None where it is never one.

Sources: what kube-proxy writes in each mode (Kubernetes, pkg/proxy), the requirements that each of the others states,
and Linux 6.8 for the names of options and modules.
"""


@dataclass(frozen=True)
class Gap:
    """A feature that does not work with this kernel, and the options that it lacks."""

    feature: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class Kernel:
    """What the kernel lacks.

    Attributes:
        release: The kernel's, as `uname -r` prints it.
        config: The file that its options were read from; None where there is none.
        gaps: What does not work, by feature.
        reasons: How that was told.
    """

    release: str | None
    config: str | None
    gaps: tuple[Gap, ...]
    reasons: tuple[str, ...]


def review(root: Root) -> Kernel:
    """Read the running kernel's options: a module counts where it is installed; never fails."""
    release = (root.read_text("/proc/sys/kernel/osrelease") or "").strip() or None
    config, text = _config(root, release)
    if text is None:
        reason = "the kernel does not tell its options: neither /proc/config.gz nor a file config-RELEASE in /boot"
        return Kernel(release, None, (), (reason,))
    options = dict(_LINE.findall(text))
    modules = _modules(root, release)
    reasons = [f"the options are from {config}"]
    if modules is None:
        reasons.append("which modules are installed is not known, so each counts")
    gaps = []
    for feature, required in _FEATURES.items():
        missing = tuple(
            _missing(option, module, options)
            for option, module in required.items()
            if not _is_there(option, module, options, modules)
        )
        if missing:
            gaps.append(Gap(feature, missing))
    return Kernel(release, config, tuple(gaps), tuple(reasons))


def _config(root: Root, release: str | None) -> tuple[str | None, str | None]:
    try:
        packed = root.read_bytes(_CONFIG)
    except HostError:
        packed = None
    if packed is not None:
        unpacker = zlib.decompressobj(_GZIP)
        try:
            text = unpacker.decompress(packed, _MOST_BYTES).decode("utf-8", "replace")
        except zlib.error:
            text = ""
        # Half a configuration would lack the other half.
        if unpacker.eof and _LINE.search(text):
            return _CONFIG, text
    if release is not None and _RELEASE.fullmatch(release):
        path = f"/boot/config-{release}"
        text = root.read_text(path) or ""
        if _LINE.search(text):
            return path, text
    return None, None


def _modules(root: Root, release: str | None) -> frozenset[str] | None:
    """The names of the modules that are installed for the running kernel; None where nobody tells."""
    if release is None or not _RELEASE.fullmatch(release):
        return None
    text = root.read_text(f"/lib/modules/{release}/modules.dep")
    if text is None:
        return None
    files = (line.partition(":")[0].rpartition("/")[2] for line in text.splitlines())
    return frozenset(file.partition(".ko")[0] for file in files)


def _is_there(option: str, module: str | None, options: dict[str, str], modules: frozenset[str] | None) -> bool:
    if options.get(option) == "m" and module is not None and modules is not None:
        return module in modules
    return option in options


def _missing(option: str, module: str | None, options: dict[str, str]) -> str:
    return f"CONFIG_{option}" if option not in options else f"CONFIG_{option} (the module {module} is not installed)"
