"""The order of the sources, and the environment made of them."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from tests.unit.toolchain.conftest import Lay, Site
from toolchain import ToolchainError, environment, install
from toolchain.build import built
from toolchain.install import Located, Origin, _install_plugin, _obtain, survey
from toolchain.official import Asset, Download, PinnedChecksum
from toolchain.path_lookup import plugin_folder
from toolchain.programs import ETCD, KUBE_SERVERS, KUBERNETES_PROVIDER, KUBERNETES_PROVIDER_VERSION, KWOK

_LINK = 'while [ $# -gt 0 ]; do if [ "$1" = -o ]; then OUT="$2"; fi; shift; done'
_GO = f"""
case "$1" in
env) echo '{{"GOVERSION": "go1.99.0", "GOCACHE": "/"}}';;
list) echo "package example.com/tool false";;
build)
  echo "$@" >> "$LOG"
  {_LINK}
  case "$OUT" in
  */) for name in {" ".join(map(str, KUBE_SERVERS))}; do cp "$0" "$OUT$name"; done;;
  *) cp "$0" "$OUT";;
  esac;;
esac
"""


@pytest.fixture
def builds(on_path: Lay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Offline, with a `go` that copies itself instead of compiling; gives its log of builds."""
    log = tmp_path / "builds"
    monkeypatch.setenv("LOG", str(log))
    monkeypatch.setenv("KAI_ANYWHERE_OFFLINE", "1")
    on_path("go", script=_GO)
    on_path("cp", script='exec /bin/cp "$@"')
    return log


def test_a_program_on_path_is_neither_downloaded_nor_built(on_path: Lay) -> None:
    etcd = on_path("etcd", "etcd Version: 3.6.7")
    assert install([ETCD]) == {ETCD: etcd}


def test_what_is_missing_is_built_once_and_then_reused(builds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = install([ETCD])
    assert os.access(first[ETCD], os.X_OK)
    assert "to build" in capsys.readouterr().err
    assert install([ETCD]) == first
    assert len(builds.read_text().splitlines()) == 1
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("plain", [(), ("example.com/generated/...",)])
def test_nothing_is_compiled_for_debuggers_and_plain_packages_as_they_stand(
    builds: Path, plain: tuple[str, ...]
) -> None:
    built(replace(ETCD.recipe, plain=plain))
    flags = re.findall(r"-gcflags=(\S+)=-dwarf=false( -l)?(?= )", builds.read_text())
    assert flags == [("all", ""), *((pattern, " -l") for pattern in plain)]


def test_only_what_is_asked_for_is_built(builds: Path) -> None:
    install([KWOK])
    assert "sigs.k8s.io/kwok/cmd/kwok" in builds.read_text()
    assert "etcd" not in builds.read_text()


def test_the_servers_are_built_together_in_one_go(builds: Path) -> None:
    paths = install(KUBE_SERVERS)
    assert len(builds.read_text().splitlines()) == 1
    assert [path.name for path in paths.values()] == [server.name for server in KUBE_SERVERS]
    assert len({path.parent for path in paths.values()}) == 1


def test_a_passed_over_program_is_replaced_and_the_note_is_told_once(
    builds: Path, on_path: Lay, capsys: pytest.CaptureFixture[str]
) -> None:
    on_path("etcd", "etcd Version: 3.4.1")
    path = install([ETCD])[ETCD]
    assert path.parent.name == ETCD.recipe.entry
    assert "is 3.4.1, accepted is 3.6.0 or newer" in capsys.readouterr().err
    install([ETCD])
    assert capsys.readouterr().err == ""
    assert builds.exists()


def test_a_survey_changes_nothing(builds: Path, cache_root: Path) -> None:
    assert survey([ETCD]).located == {}
    assert not builds.exists()
    assert not cache_root.exists()
    install([ETCD])
    assert survey([ETCD]).located[ETCD].origin is Origin.BUILT


def test_the_environment_yields_exactly_the_installed_programs(builds: Path, on_path: Lay, tmp_path: Path) -> None:
    on_path("etcd", "etcd Version: 3.4.1")
    on_path("kwok", "kwok version v0.8.0")
    folders = environment([ETCD, KWOK])["PATH"].split(":")
    entry = install([ETCD])[ETCD].parent
    assert folders == [str(tmp_path / "interpreter"), str(entry), str(tmp_path / "bin")]
    assert builds.exists()


def test_an_environment_within_an_environment_is_the_same(builds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outer = environment([ETCD])
    monkeypatch.setenv("PATH", outer["PATH"])
    assert environment([ETCD])["PATH"] == outer["PATH"]
    assert len(builds.read_text().splitlines()) == 1


@pytest.mark.parametrize("variable", ["http_proxy", "https_proxy"])
def test_no_proxy_is_asked_for_the_way_to_pulumis_engine(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine of a company, where nothing said that 127.0.0.1 is reached without the proxy."""
    for name in ("no_grpc_proxy", "no_proxy", "grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    engine = grpc.server(ThreadPoolExecutor(1))
    address = f"127.0.0.1:{engine.add_insecure_port('127.0.0.1:0')}"
    engine.start()
    program = f"import grpc; grpc.channel_ready_future(grpc.insecure_channel('{address}')).result(timeout=20)"
    try:
        subprocess.run([sys.executable, "-c", program], env=environment([]), timeout=60, check=True)
    finally:
        engine.stop(None).wait()


def test_who_says_what_grpc_reaches_without_a_proxy_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_grpc_proxy", "localhost,127.0.0.0/8")
    assert environment([])["no_grpc_proxy"] == "localhost,127.0.0.0/8"


def test_without_a_network_and_without_go_the_error_says_what_to_install(
    on_path: Lay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAI_ANYWHERE_OFFLINE", "1")
    on_path("unrelated")
    with pytest.raises(ToolchainError, match=r"etcd 3\.6\.5 can't be built(.|\n)*install Go"):
        install([ETCD])


def test_a_download_that_is_not_there_becomes_a_build_and_says_so(
    builds: Path, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    asset = Asset(f"{site.address}/kwok", PinnedChecksum("0" * 64), (KWOK.name,))
    located = _obtain(KWOK, Download("kwok", "0.8.0", (asset,)))
    assert located.origin is Origin.BUILT
    assert len(builds.read_text().splitlines()) == 1
    said = capsys.readouterr().err
    assert "404" in said
    assert "building from Go modules instead" in said


def test_without_go_a_download_that_breaks_off_is_told_and_not_go(on_path: Lay, site: Site) -> None:
    on_path("unrelated")
    site.bodies, site.cut = {"/kwok": b"whole program"}, {"/kwok"}
    asset = Asset(f"{site.address}/kwok", PinnedChecksum("0" * 64), (KWOK.name,))
    with pytest.raises(ToolchainError, match=r"kwok can't be downloaded(.|\n)*without sending complete") as caught:
        _obtain(KWOK, Download("kwok", "0.8.0", (asset,)))
    assert "run the same command again" in str(caught.value)


def test_a_download_that_was_tampered_with_is_not_papered_over_by_a_build(builds: Path, site: Site) -> None:
    site.bodies = {"/kwok": b"tampered"}
    asset = Asset(f"{site.address}/kwok", PinnedChecksum("0" * 64), (KWOK.name,))
    with pytest.raises(ToolchainError, match="not the published file"):
        _obtain(KWOK, Download("kwok", "0.8.0", (asset,)))
    assert not builds.exists()


def test_pulumi_installs_the_provider_plugin(on_path: Lay) -> None:
    plugin = plugin_folder() / KUBERNETES_PROVIDER.name
    on_path("mkdir", script='exec /bin/mkdir "$@"')
    on_path("cp", script='exec /bin/cp "$@"')
    install_it = f'mkdir -p "{plugin.parent}" && cp "$0" "{plugin}"'
    on_path(
        "pulumi", script=f'case "$1" in version) echo v3.260.0;; plugin) test "$4" = kubernetes && {install_it};; esac'
    )
    assert _install_plugin() == Located(plugin, KUBERNETES_PROVIDER_VERSION, Origin.DOWNLOADED)
    assert survey([KUBERNETES_PROVIDER]).located[KUBERNETES_PROVIDER].path == plugin


def test_a_plugin_that_pulumi_can_not_install_is_told(on_path: Lay, capsys: pytest.CaptureFixture[str]) -> None:
    on_path("pulumi", script='case "$1" in version) echo v3.260.0;; *) exit 255;; esac')
    assert _install_plugin() is None
    assert "exited with 255: building the provider from Go modules instead" in capsys.readouterr().err
