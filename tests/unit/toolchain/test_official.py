"""The published files of each program."""

import re

import pytest

from toolchain.official import ChecksumFile, Download, PinnedChecksum, Platform, official_download
from toolchain.programs import KUBE_SERVERS, LANGUAGE_EXEC, LANGUAGES, Program

_LINUX = Platform("linux", "amd64")
_JETSON = Platform("linux", "arm64")
_MAC = Platform("darwin", "arm64")


def _download(program: Program, platform: Platform) -> Download:
    download = official_download(program, platform)
    assert isinstance(download, Download)
    return download


def test_pulumi_and_its_language_hosts_come_out_of_one_archive() -> None:
    download = _download(Program.PULUMI, _JETSON)
    assert download == _download(Program.LANGUAGE_PYTHON, _JETSON)
    for host in LANGUAGES:
        assert download == _download(host, _JETSON)
    assert set(download.files) == {Program.PULUMI, Program.LANGUAGE_PYTHON, *LANGUAGES, LANGUAGE_EXEC}
    assert download.assets[0].url.endswith("-linux-arm64.tar.gz")
    assert _download(Program.PULUMI, _LINUX).assets[0].url.endswith("-linux-x64.tar.gz")


def test_the_kubernetes_servers_are_one_download_with_a_checksum_file_each() -> None:
    downloads = {_download(server, _LINUX).entry for server in KUBE_SERVERS}
    assert len(downloads) == 1
    for asset in _download(Program.KUBE_APISERVER, _LINUX).assets:
        assert asset.checksum == ChecksumFile(f"{asset.url}.sha256")


def test_kubelet_and_kube_proxy_are_one_download_without_the_servers() -> None:
    download = _download(Program.KUBELET, _LINUX)
    assert download == _download(Program.KUBE_PROXY, _LINUX)
    assert set(download.files) == {Program.KUBELET, Program.KUBE_PROXY}


def test_platforms_have_downloads_of_their_own() -> None:
    for program in (Program.PULUMI, Program.ETCD, Program.KUBECTL):
        entries = {_download(program, platform).entry for platform in (_LINUX, _JETSON, _MAC)}
        assert len(entries) == 3, program


def test_promtool_comes_out_of_prometheus_archive_with_its_checksums() -> None:
    [asset] = _download(Program.PROMTOOL, _JETSON).assets
    assert asset.url.endswith(".linux-arm64.tar.gz")
    assert asset.files == (Program.PROMTOOL,)
    assert asset.checksum == ChecksumFile(f"{asset.url.rpartition('/')[0]}/sha256sums.txt")


def test_etcd_for_a_mac_is_a_zip() -> None:
    assert _download(Program.ETCD, _MAC).assets[0].url.endswith("-darwin-arm64.zip")
    assert _download(Program.ETCD, _LINUX).assets[0].url.endswith("-linux-amd64.tar.gz")


@pytest.mark.parametrize(
    ("program", "platform", "reason"),
    [
        (Program.KUBE_SCHEDULER, _MAC, "for linux only"),
        (Program.KUBELET, _MAC, "for linux only"),
        (Program.KWOK, _MAC, "no checksums"),
        (Program.NFD_WORKER, _LINUX, "images only"),
        (Program.PULUMI, Platform("linux", "riscv64"), "nothing is published for linux/riscv64"),
        (Program.KUBERNETES_PROVIDER, _LINUX, "plugin install"),
    ],
)
def test_what_can_not_be_downloaded_says_why(program: Program, platform: Platform, reason: str) -> None:
    said = official_download(program, platform)
    assert isinstance(said, str)
    assert reason in said


def test_nothing_is_downloaded_without_encryption_and_a_checksum() -> None:
    for program in Program:
        download = official_download(program, _LINUX)
        if isinstance(download, str):
            assert program in {
                Program.KUBERNETES_PROVIDER,
                Program.NVIDIA_CTK,
                Program.DOCKERD,
                Program.NFD_MASTER,
                Program.NFD_WORKER,
                Program.PACKAGE_HOST,
            }
            continue
        for asset in download.assets:
            assert asset.url.startswith("https://")
            match asset.checksum:
                case PinnedChecksum(sha256):
                    assert re.fullmatch("[0-9a-f]{64}", sha256)
                case ChecksumFile(url):
                    assert url.startswith("https://")
