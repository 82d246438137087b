"""The published files of each program."""

import re

import pytest

from tests.support import programs as tests_programs
from tests.support.programs import DOCKERD, KUBE_PROXY, KUBELET, NFD_MASTER, NFD_WORKER, NVIDIA_CTK, PROMTOOL
from toolchain.official import ChecksumFile, Download, PinnedChecksum, Platform
from toolchain.program import Program
from toolchain.programs import (
    ALL,
    ETCD,
    KUBE_APISERVER,
    KUBE_SCHEDULER,
    KUBE_SERVERS,
    KUBECTL,
    KUBERNETES_PROVIDER,
    KWOK,
    LANGUAGE_EXEC,
    LANGUAGE_PYTHON,
    LANGUAGES,
    PACKAGE_HOST,
    PULUMI,
)

_LINUX = Platform("linux", "amd64")
_JETSON = Platform("linux", "arm64")
_MAC = Platform("darwin", "arm64")


def _download(program: Program, platform: Platform) -> Download:
    download = program.download(platform)
    assert isinstance(download, Download)
    return download


def test_pulumi_and_its_language_hosts_come_out_of_one_archive() -> None:
    download = _download(PULUMI, _JETSON)
    assert download == _download(LANGUAGE_PYTHON, _JETSON)
    for host in LANGUAGES:
        assert download == _download(host, _JETSON)
    assert set(download.files) == {*map(str, (PULUMI, LANGUAGE_PYTHON, *LANGUAGES)), LANGUAGE_EXEC}
    assert download.assets[0].url.endswith("-linux-arm64.tar.gz")
    assert _download(PULUMI, _LINUX).assets[0].url.endswith("-linux-x64.tar.gz")


def test_the_kubernetes_servers_are_one_download_with_a_checksum_file_each() -> None:
    downloads = {_download(server, _LINUX).entry for server in KUBE_SERVERS}
    assert len(downloads) == 1
    for asset in _download(KUBE_APISERVER, _LINUX).assets:
        assert asset.checksum == ChecksumFile(f"{asset.url}.sha256")


def test_kubelet_and_kube_proxy_are_one_download_without_the_servers() -> None:
    download = _download(KUBELET, _LINUX)
    assert download == _download(KUBE_PROXY, _LINUX)
    assert set(download.files) == {"kubelet", "kube-proxy"}


def test_platforms_have_downloads_of_their_own() -> None:
    for program in (PULUMI, ETCD, KUBECTL):
        entries = {_download(program, platform).entry for platform in (_LINUX, _JETSON, _MAC)}
        assert len(entries) == 3, program


def test_promtool_comes_out_of_prometheus_archive_with_its_checksums() -> None:
    [asset] = _download(PROMTOOL, _JETSON).assets
    assert asset.url.endswith(".linux-arm64.tar.gz")
    assert asset.files == ("promtool",)
    assert asset.checksum == ChecksumFile(f"{asset.url.rpartition('/')[0]}/sha256sums.txt")


def test_etcd_for_a_mac_is_a_zip() -> None:
    assert _download(ETCD, _MAC).assets[0].url.endswith("-darwin-arm64.zip")
    assert _download(ETCD, _LINUX).assets[0].url.endswith("-linux-amd64.tar.gz")


@pytest.mark.parametrize(
    ("program", "platform", "reason"),
    [
        (KUBE_SCHEDULER, _MAC, "for linux only"),
        (KUBELET, _MAC, "for linux only"),
        (KWOK, _MAC, "no checksums"),
        (NFD_WORKER, _LINUX, "images only"),
        (PULUMI, Platform("linux", "riscv64"), "nothing is published for linux/riscv64"),
        (KUBERNETES_PROVIDER, _LINUX, "plugin install"),
    ],
)
def test_what_can_not_be_downloaded_says_why(program: Program, platform: Platform, reason: str) -> None:
    said = program.download(platform)
    assert isinstance(said, str)
    assert reason in said


def test_nothing_is_downloaded_without_encryption_and_a_checksum() -> None:
    for program in (*ALL, *tests_programs.ALL):
        download = program.download(_LINUX)
        if isinstance(download, str):
            assert program in {
                KUBERNETES_PROVIDER,
                NVIDIA_CTK,
                DOCKERD,
                NFD_MASTER,
                NFD_WORKER,
                PACKAGE_HOST,
            }
            continue
        for asset in download.assets:
            assert asset.url.startswith("https://")
            match asset.checksum:
                case PinnedChecksum(sha256):
                    assert re.fullmatch("[0-9a-f]{64}", sha256)
                case ChecksumFile(url):
                    assert url.startswith("https://")
