"""What is taken from the user's PATH and what is passed over."""

import time
from pathlib import Path

import pytest

from tests.support import programs as tests_programs
from tests.unit.toolchain.conftest import Lay, next_process
from toolchain.path_lookup import PassedOver, Present, look_up, plugin_folder, search_path
from toolchain.program import Program
from toolchain.programs import (
    ALL,
    ETCD,
    KUBE_APISERVER,
    KUBE_SCHEDULER,
    KUBE_SERVERS,
    KUBECTL,
    KUBERNETES_PROVIDER,
    KUBERNETES_PROVIDER_VERSION,
    KWOK,
    LANGUAGE_EXEC,
    LANGUAGE_PYTHON,
    LANGUAGES,
    PULUMI,
)

EVERY = (*ALL, *tests_programs.ALL)


def _note(location: Present | PassedOver | None) -> str:
    assert isinstance(location, PassedOver)
    return location.note


def test_nothing_on_path_is_found_as_nothing(on_path: Lay) -> None:
    on_path("unrelated")
    assert [look_up(program) for program in EVERY] == [None] * len(EVERY)


def test_a_program_in_range_is_taken(on_path: Lay) -> None:
    etcd = on_path("etcd", "etcd Version: 3.6.9\nGo Version: go1.26.8")
    assert look_up(ETCD) == Present(etcd, "3.6.9")


def test_a_version_told_on_stderr_counts(on_path: Lay) -> None:
    kwok = on_path("kwok", script="echo 'kwok version v0.8.1' >&2; exit 1")
    assert look_up(KWOK) == Present(kwok, "0.8.1")


def test_an_update_notice_on_stderr_does_not_count(on_path: Lay) -> None:
    pulumi = on_path("pulumi", script="echo 'warning: 9.0.0 is out' >&2; echo v3.270.0")
    assert look_up(PULUMI) == Present(pulumi, "3.270.0")


def test_a_program_out_of_range_is_passed_over_with_both_versions_in_one_line(on_path: Lay) -> None:
    kubectl = on_path("kubectl", "Client Version: v1.32.4-dispatcher\nKustomize Version: v5.5.0")
    note = _note(look_up(KUBECTL))
    assert str(kubectl) in note
    assert "1.32.4" in note
    assert "1.35.0 or newer, below 1.38.0" in note
    assert "\n" not in note


@pytest.mark.parametrize("script", ["echo dev", "exit 3", "exec sleep 60", r"printf '\377\n'"])
def test_a_program_that_does_not_tell_its_version_is_passed_over_soon(on_path: Lay, script: str) -> None:
    on_path("sleep", script="exec /bin/sleep $1")
    on_path("etcd", script=script)
    started = time.monotonic()
    assert "does not tell its version" in _note(look_up(ETCD))
    assert time.monotonic() - started < 8


def test_a_program_is_asked_once_in_a_process(on_path: Lay, tmp_path: Path) -> None:
    log = tmp_path / "log"
    on_path("etcd", script=f"echo asked >> {log}; echo 3.6.5")
    assert [look_up(ETCD) for _ in range(3)].count(None) == 0
    assert log.read_text() == "asked\n"


def test_a_wrapper_that_starts_another_version_later_is_asked_again_by_the_next_process(
    on_path: Lay, tmp_path: Path
) -> None:
    version = tmp_path / "version"
    etcd = on_path("etcd", script=f'read told < {version}; echo "$told"')
    lines = []
    for text in ("3.5.1\n", "busy\n", "3.6.5\n"):
        version.write_text(text)
        next_process()
        lines.append(look_up(ETCD))
    assert "is 3.5.1" in _note(lines[0])
    assert "does not tell its version" in _note(lines[1])
    assert lines[2] == Present(etcd, "3.6.5")


def test_a_cache_that_can_not_be_written_does_not_hide_what_is_on_path(
    on_path: Lay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KAI_ANYWHERE_CACHE", str(tmp_path / "file" / "below"))
    etcd = on_path("etcd", "3.6.5")
    assert look_up(ETCD) == Present(etcd, "3.6.5")


def test_the_servers_are_taken_from_path_only_together(on_path: Lay) -> None:
    on_path("kube-apiserver", "Kubernetes v1.36.1")
    on_path("kube-controller-manager", "Kubernetes v1.36.1")
    assert "kube-scheduler none" in _note(look_up(KUBE_APISERVER))
    assert look_up(KUBE_SCHEDULER) is None
    on_path("kube-scheduler", "Kubernetes v1.36.2")
    assert "kube-scheduler 1.36.2" in _note(look_up(KUBE_APISERVER))
    assert isinstance(look_up(KUBE_SCHEDULER), PassedOver)
    on_path("kube-scheduler", "Kubernetes v1.36.1 ")
    assert all(isinstance(look_up(server), Present) for server in KUBE_SERVERS)


def test_the_language_host_of_a_refused_pulumi_is_left_alone(on_path: Lay) -> None:
    on_path("pulumi", "v3.100.0")
    on_path(LANGUAGE_PYTHON.name)
    on_path(LANGUAGE_EXEC)
    assert look_up(LANGUAGE_PYTHON) is None


def test_the_language_host_beside_the_target_of_a_link_is_found(on_path: Lay, tmp_path: Path) -> None:
    home = tmp_path / "opt" / "pulumi"
    target = on_path("pulumi", "v3.260.0", into=home)
    host = on_path(LANGUAGE_PYTHON.name, into=home)
    (tmp_path / "bin" / "pulumi").symlink_to(target)
    assert "has no pulumi-language-python-exec" in _note(look_up(LANGUAGE_PYTHON))
    on_path(LANGUAGE_EXEC, into=home)
    assert look_up(LANGUAGE_PYTHON) == Present(host, None)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_language_host_comes_with_the_pulumi_on_path_or_not_at_all(language: Program, on_path: Lay) -> None:
    host = on_path(language.name)
    assert look_up(language) is None
    on_path("pulumi", "v3.260.0")
    assert look_up(language) == Present(host, None)


def test_the_provider_is_found_in_pulumis_own_folder_unless_its_installation_was_cut_off(on_path: Lay) -> None:
    plugin = on_path(KUBERNETES_PROVIDER.name, into=plugin_folder())
    assert look_up(KUBERNETES_PROVIDER) == Present(plugin, KUBERNETES_PROVIDER_VERSION)
    mark = plugin_folder().with_name(f"{plugin_folder().name}.partial")
    mark.touch()
    assert look_up(KUBERNETES_PROVIDER) is None


def test_the_toolchains_own_folders_on_path_are_not_the_users(
    on_path: Lay, cache_root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on_path("etcd", "3.6.5", into=cache_root / "etcd-3.6.5-0123456789ab")
    monkeypatch.setenv("PATH", f"{cache_root / 'etcd-3.6.5-0123456789ab'}:{tmp_path / 'bin'}")
    assert look_up(ETCD) is None
    assert str(cache_root) not in search_path()
