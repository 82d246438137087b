"""What the kernel lacks, from made-up configurations: nothing is known by its release."""

import gzip
import json
from pathlib import Path

import pytest

from agents.host.look import kernel
from agents.host.look.kernel import Kernel
from agents.host.root import Root
from components.hosts.answer import read_probe
from tests.support.hosts.roots import Board, HostRoot, prepare

_RELEASE = "6.8.12-1021-tegra"
_WANTED = {option: module for options in kernel._FEATURES.values() for option, module in options.items()}
_SERVER = {option: "m" if module else "y" for option, module in _WANTED.items()}
_R39_LACKS = (
    *("NFT_CT", "NFT_FIB_IPV4", "NFT_FIB_IPV6", "NFT_FIB_INET", "IP_VS_PROTO_TCP", "IP_VS_PROTO_UDP", "IP_VS_RR"),
    *("DEBUG_INFO_BTF", "NETFILTER_XT_TARGET_TPROXY", "NETFILTER_XT_TARGET_CT", "NETFILTER_XT_MATCH_SOCKET"),
    *("NETFILTER_NETLINK_LOG", "IP6_NF_MATCH_RPFILTER", "WIREGUARD", "XFRM_USER", "ISCSI_TCP", "BLK_DEV_RBD"),
    *("CEPH_FS", "PSI"),
)
"""What somebody read in the configuration of L4T R39.2.1's kernel."""


def _text(options: dict[str, str]) -> str:
    off = [f"# CONFIG_{option} is not set" for option in _WANTED if option not in options]
    return "\n".join(
        ["#", "# Automatically generated file", *(f"CONFIG_{k}={v}" for k, v in options.items()), *off, ""]
    )


def _host(folder: Path, options: dict[str, str] | None, *, without_modules: tuple[str, ...] = ()) -> HostRoot:
    host = prepare(folder, Board.JETPACK_7)
    host.write("/proc/sys/kernel/osrelease", f"{_RELEASE}\n")
    if options is not None:
        host.write("/proc/config.gz", gzip.compress(_text(options).encode()))
    there = [module for module in _WANTED.values() if module and module not in without_modules]
    lines = (f"kernel/net/{name}.ko.zst: kernel/lib/any.ko.zst" for name in there)
    host.write(f"/lib/modules/{_RELEASE}/modules.dep", "\n".join(lines) + "\n")
    return host


def _reviewed(host: HostRoot) -> Kernel:
    return kernel.review(Root(str(host.folder)))


def _gaps(kernel_config: Kernel) -> dict[str, tuple[str, ...]]:
    return {gap.feature: gap.options for gap in kernel_config.gaps}


def test_a_kernel_that_has_everything_as_modules_lacks_nothing(tmp_path: Path) -> None:
    review = _reviewed(_host(tmp_path / "host", _SERVER))
    assert review == Kernel(_RELEASE, "/proc/config.gz", (), ("the options are from /proc/config.gz",))


def test_what_one_jetson_kernel_lacks_is_named_by_feature_and_flannel_is_not(tmp_path: Path) -> None:
    options = {option: value for option, value in _SERVER.items() if option not in _R39_LACKS}
    gaps = _gaps(_reviewed(_host(tmp_path / "host", options)))
    assert gaps["kube-proxy in the mode nftables"] == (
        "CONFIG_NFT_CT",
        "CONFIG_NFT_FIB_IPV4",
        "CONFIG_NFT_FIB_IPV6",
        "CONFIG_NFT_FIB_INET",
    )
    assert gaps["Calico"] == ("CONFIG_NETFILTER_XT_TARGET_CT", "CONFIG_IP6_NF_MATCH_RPFILTER")
    assert gaps["Longhorn's v1 volumes (iSCSI)"] == ("CONFIG_ISCSI_TCP",)
    assert gaps["the kubelet's pressure metrics (PSI)"] == ("CONFIG_PSI",)
    assert set(kernel._FEATURES) - gaps.keys() == {"flannel with VXLAN, and kube-proxy in the mode iptables"}


@pytest.mark.parametrize("option", sorted(_WANTED))
def test_each_option_alone_is_missed_where_it_is_needed(option: str, tmp_path: Path) -> None:
    options = {name: value for name, value in _SERVER.items() if name != option}
    gaps = _gaps(_reviewed(_host(tmp_path / "host", options)))
    assert set(gaps) == {feature for feature, options in kernel._FEATURES.items() if option in options}
    assert set(gaps.values()) == {(f"CONFIG_{option}",)}


def test_a_module_that_is_not_installed_does_not_count_and_one_that_is_built_in_needs_none(tmp_path: Path) -> None:
    host = _host(tmp_path / "one", _SERVER, without_modules=("wireguard",))
    [gap] = _reviewed(host).gaps
    assert gap.options == ("CONFIG_WIREGUARD (the module wireguard is not installed)",)
    built_in = _host(tmp_path / "two", _SERVER | {"WIREGUARD": "y"}, without_modules=("wireguard",))
    assert _reviewed(built_in).gaps == ()


def test_without_a_list_of_modules_each_counts_and_that_is_said(tmp_path: Path) -> None:
    host = _host(tmp_path / "host", _SERVER)
    host.path(f"/lib/modules/{_RELEASE}/modules.dep").unlink()
    review = _reviewed(host)
    assert review.gaps == ()
    assert "which modules are installed is not known, so each counts" in review.reasons


def test_the_configuration_in_boot_is_read_where_the_kernel_shows_none(tmp_path: Path) -> None:
    host = _host(tmp_path / "host", None)
    host.write(f"/boot/config-{_RELEASE}", _text({k: v for k, v in _SERVER.items() if k != "PSI"}))
    host.write("/boot/config-9.9.9-other", _text({}))
    review = _reviewed(host)
    assert review.config == f"/boot/config-{_RELEASE}"
    assert [gap.options for gap in review.gaps] == [("CONFIG_PSI",)]


@pytest.mark.parametrize("release", ["", "../../etc/passwd", _RELEASE])
def test_a_kernel_that_tells_nothing_has_no_gaps_but_a_reason(release: str, tmp_path: Path) -> None:
    host = _host(tmp_path / "host", None)
    host.write("/proc/sys/kernel/osrelease", release)
    review = _reviewed(host)
    assert (review.config, review.gaps) == (None, ())
    assert review.reasons[0].startswith("the kernel does not tell its options")


_PACKED = gzip.compress(_text(_SERVER).encode())


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(b"no options"), _PACKED[:-20], gzip.compress(b"CONFIG_PSI=y\n" * 10**6)],
    ids=["empty", "no-gzip", "no-options", "cut", "too-large"],
)
def test_of_a_configuration_that_can_not_be_read_whole_nothing_is_said(content: bytes, tmp_path: Path) -> None:
    host = _host(tmp_path / "host", None)
    host.write("/proc/config.gz", content)
    run = host.run("probe")
    assert run.code == 0
    assert (run.answer["kernel"]["release"], run.answer["kernel"]["config"]) == (_RELEASE, None)
    assert run.answer["kernel"]["gaps"] == []


def test_the_probe_says_it_as_the_program_reads_it(tmp_path: Path) -> None:
    options = {option: value for option, value in _SERVER.items() if option != "WIREGUARD"}
    read = read_probe("jetson-1", json.dumps(_host(tmp_path / "host", options).run("probe").answer)).kernel
    assert read is not None
    assert [gap.options for gap in read.gaps] == [["CONFIG_WIREGUARD"]]
