"""What others do to a host between `configure` and `restore`, with the real nvidia-ctk and containerd."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from agents.host.look.effective import CRI_V2
from config.cluster import Distribution
from tests.hosts.conftest import equip
from tests.support.hosts.roots import (
    MAIN_V2,
    Board,
    HostRoot,
    Serve,
    desired,
    install_docker,
    install_toolkit,
    prepare,
)
from tests.support.programs import CONTAINERD, NVIDIA_CTK
from toolchain import Program

pytestmark = pytest.mark.engine

_MAIN = "/etc/containerd/config.toml"
_NVIDIA = "/etc/containerd/conf.d/99-nvidia.toml"
_RUNC = "/etc/containerd/conf.d/00-kai-anywhere-runc.toml"
_TOOLKIT = "/etc/nvidia-container-runtime/config.toml"
_DOCKER = "/etc/docker/daemon.json"
_BY_HOST = desired(Board.JETPACK_6, toolkit={"owner": "host", "mode": "csv"})
_BY_OPERATOR = desired(Board.JETPACK_6, toolkit={"owner": "operator", "mode": "auto"})
_WITH_DOCKER = _BY_HOST | {"docker": {"configure": True, "default_runtime": False}}
_OPERATORS_FILE = """\
version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
    BinaryName = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
    SystemdCgroup = true
"""


@pytest.fixture
def host(programs: Mapping[Program, Path], serve: Serve, tmp_path: Path) -> HostRoot:
    """A kubeadm host with containerd 2 and Docker."""
    return _host(tmp_path, programs, serve, programs[CONTAINERD])


def _host(
    folder: Path,
    programs: Mapping[Program, Path],
    serve: Serve,
    containerd: Path,
    distribution: Distribution = Distribution.KUBEADM,
) -> HostRoot:
    host = prepare(folder / "host", Board.JETPACK_6, distribution)
    install_toolkit(host)
    equip(host, distribution, programs[NVIDIA_CTK], containerd, serve(host, distribution))
    install_docker(host)
    serve.at(host, "/run/docker.sock")
    return host


def test_the_gpu_operators_file_outlives_every_later_run(host: HostRoot) -> None:
    assert _untouched(host)
    assert host.run("configure", desired=_BY_HOST).code == 0
    assert host.run("configure", desired=_BY_OPERATOR).answer["restarted"] == ["containerd"]
    assert not host.path(_NVIDIA).exists()
    host.write(_NVIDIA, _OPERATORS_FILE)
    for _ in range(2):
        run = host.run("configure", desired=_BY_OPERATOR)
        assert (run.code, run.answer["changed"], run.answer["restarted"]) == (0, False, []), run.errors
        assert host.run("check", desired=_BY_OPERATOR).code == 0
    assert not _untouched(host)
    assert host.run("restore").code == 0
    assert host.read(_NVIDIA) == _OPERATORS_FILE
    assert "conf.d/*.toml" in host.read(_MAIN), "the operator's file is imported through it"
    assert not host.path("/var/lib/kai-anywhere").exists()
    assert _untouched(host)


def _untouched(host: HostRoot) -> bool:
    """Whether the agent says that it has nothing to take back."""
    run = host.run("untouched")
    assert run.code == (0 if run.answer["untouched"] else 3)
    return bool(run.answer["untouched"])


def test_the_gpu_operators_file_in_place_of_the_agents_is_left_alone_on_the_way_to_the_operator(
    host: HostRoot,
) -> None:
    assert host.run("configure", desired=_BY_HOST).code == 0
    host.write(_NVIDIA, _OPERATORS_FILE)
    handed = host.run("configure", desired=_BY_OPERATOR)
    assert handed.code == 0, handed.errors
    assert host.read(_NVIDIA) == _OPERATORS_FILE
    assert "changed by somebody else: left as it is" in json.dumps(handed.answer)
    assert host.run("restore").code == 0
    assert host.read(_NVIDIA) == _OPERATORS_FILE


def test_runtime_and_docker_that_are_no_longer_asked_for_in_one_run_are_both_restarted(
    programs: Mapping[Program, Path], serve: Serve, tmp_path: Path
) -> None:
    host = _host(tmp_path, programs, serve, programs[CONTAINERD], Distribution.MICROK8S)
    host.write(_DOCKER, '{"debug": true}\n')
    before = host.snapshot()
    assert host.run("configure", desired=_WITH_DOCKER).code == 0
    calls = host.folder.parent / "calls"
    calls.unlink()
    handed = host.run("configure", desired=_BY_OPERATOR)
    assert handed.code == 0, handed.errors
    restarts = ["snap restart microk8s.daemon-containerd", "systemctl restart docker"]
    assert calls.read_text().splitlines() == restarts
    changed = {name for name, state in host.snapshot().items() if state != before.get(name)}
    assert {name for name in changed if not name.startswith("var/lib/kai-anywhere")} == set()
    again = host.run("configure", desired=_BY_OPERATOR)
    assert (again.code, again.answer["changed"]) == (0, False)
    assert host.run("restore").answer["restarted"] == []
    assert calls.read_text().splitlines() == restarts, "each once"
    assert host.snapshot() == before


def test_a_runtime_that_others_need_is_taken_back_once_they_do_not(host: HostRoot) -> None:
    before = host.snapshot()
    assert host.run("configure", desired=_BY_HOST).code == 0
    site = "/etc/containerd/conf.d/50-site.toml"
    host.write(site, f"version = 2\n[plugins.'{CRI_V2}'.containerd]\n  default_runtime_name = 'nvidia'\n")
    ours = host.read(_NVIDIA)
    for changed in (True, False):
        kept = host.run("configure", desired=_BY_OPERATOR)
        # The toolkit's mode alone is taken back, which needs no restart.
        assert (kept.code, kept.answer["changed"], kept.answer["restarted"]) == (0, changed, []), kept.errors
        assert f"{_NVIDIA} stays: somebody else made nvidia the default runtime" in json.dumps(kept.answer)
        assert host.read(_NVIDIA) == ours
    assert host.run("check", desired=_BY_OPERATOR).code == 0
    host.path(site).unlink()
    back = host.run("configure", desired=_BY_OPERATOR)
    assert (back.code, back.answer["restarted"]) == (0, ["containerd"]), back.errors
    assert not host.path(_NVIDIA).exists()
    assert host.run("restore").code == 0
    assert host.snapshot() == before


def test_a_docker_runtime_that_others_made_the_default_is_taken_back_once_it_is_not(host: HostRoot) -> None:
    host.write(_DOCKER, '{"debug": true}\n')
    before = host.snapshot()
    assert host.run("configure", desired=_WITH_DOCKER).code == 0
    ours = host.read(_DOCKER)
    host.write(_DOCKER, json.dumps(json.loads(ours) | {"default-runtime": "nvidia"}))
    for _ in range(2):
        kept = host.run("configure", desired=_BY_HOST)
        assert (kept.code, kept.answer["changed"], kept.answer["restarted"]) == (0, False, []), kept.errors
        assert f"{_DOCKER} stays: somebody else made nvidia the default runtime" in json.dumps(kept.answer)
    assert json.loads(host.read(_DOCKER))["runtimes"].keys() == {"nvidia"}
    host.write(_DOCKER, ours)
    assert host.run("configure", desired=_BY_HOST).answer["restarted"] == ["docker"]
    assert host.read(_DOCKER) == '{"debug": true}\n'
    assert host.run("restore").code == 0
    assert host.snapshot() == before


def test_a_broken_docker_configuration_restarts_nothing_and_is_taken_back_once_it_is_repaired(host: HostRoot) -> None:
    host.write(_DOCKER, '{"debug": true}\n')
    before = host.snapshot()
    assert host.run("configure", desired=_WITH_DOCKER).code == 0
    ours = host.read(_DOCKER)
    host.write(_DOCKER, ours[:-4])
    # Docker does not start with it.
    host.program("systemctl", "exit 1")
    for _ in range(2):
        left = host.run("configure", desired=_BY_HOST)
        assert (left.code, left.answer["changed"], left.answer["restarted"]) == (0, False, []), left.errors
        assert "is not JSON" in json.dumps(left.answer)
    assert host.read(_DOCKER) == ours[:-4]
    host.program("systemctl", "exit 0")
    host.write(_DOCKER, ours)
    assert host.run("configure", desired=_BY_HOST).answer["restarted"] == ["docker"]
    assert host.read(_DOCKER) == '{"debug": true}\n'
    assert host.run("restore").code == 0
    assert host.snapshot() == before, "not even a copy lies beside it"


def test_restore_keeps_the_original_beside_a_broken_docker_configuration_and_restarts_nothing(host: HostRoot) -> None:
    host.write(_DOCKER, '{"debug": true}\n')
    assert host.run("configure", desired=_WITH_DOCKER).code == 0
    broken = host.read(_DOCKER)[:-4]
    host.write(_DOCKER, broken)
    host.program("systemctl", 'case "$*" in *docker) exit 1;; esac')
    done = host.run("restore")
    assert (done.code, done.answer["restarted"]) == (0, ["containerd"]), done.errors
    assert host.read(_DOCKER) == broken
    (kept,) = host.path("/etc/docker").glob("*.kept-*")
    assert kept.read_text(encoding="utf-8") == '{"debug": true}\n'
    assert not host.path("/var/lib/kai-anywhere").exists()


def test_a_toolkit_that_comes_back_from_an_operator_that_is_gone_serves_again(host: HostRoot) -> None:
    for document in (_BY_HOST, _BY_OPERATOR):
        assert host.run("configure", desired=document).code == 0
    host.write(_NVIDIA, _OPERATORS_FILE)
    back = host.run("configure", desired=_BY_HOST)
    assert (back.code, back.answer["restarted"]) == (0, ["containerd"]), back.errors
    assert '"/usr/bin/nvidia-container-runtime"' in host.read(_NVIDIA)
    assert host.run("check", desired=_BY_HOST).code == 0
    assert host.run("restore").code == 0
    assert host.read(_NVIDIA) == _OPERATORS_FILE, "it was there before"


def test_what_an_administrator_and_another_tool_added_stays(host: HostRoot) -> None:
    host.write(_DOCKER, '{"debug": true}\n')
    document = _BY_HOST | {"docker": {"configure": True, "default_runtime": True}}
    assert host.run("configure", desired=document).code == 0
    daemon = json.loads(host.read(_DOCKER)) | {"data-root": "/mnt/big"}
    host.write(_DOCKER, json.dumps(daemon))
    host.write(_MAIN, host.read(_MAIN) + "[metrics]\n  address = '127.0.0.1:1338'\n")
    host.write(_TOOLKIT, host.read(_TOOLKIT).replace('log-level = "info"', 'log-level = "debug"'))
    # Another setting is written over what they made of it.
    assert host.run("configure", desired=_WITH_DOCKER).code == 0
    done = host.run("restore")
    assert (done.code, sorted(done.answer["restarted"])) == (0, ["containerd", "docker"])
    assert json.loads(host.read(_DOCKER)) == {"debug": True, "data-root": "/mnt/big"}
    assert host.read(_MAIN) == MAIN_V2 + "[metrics]\n  address = '127.0.0.1:1338'\n"
    assert 'log-level = "debug"' in host.read(_TOOLKIT)
    assert 'mode = "auto"' in host.read(_TOOLKIT)
    assert not host.path(_NVIDIA).exists()
    assert not host.path(_RUNC).exists()


def test_a_value_that_was_written_again_goes_back_to_what_was_there_first(host: HostRoot) -> None:
    host.write(_DOCKER, '{"debug": true, "default-runtime": "runc"}\n')
    before = host.snapshot()
    document = _BY_HOST | {"docker": {"configure": True, "default_runtime": True}}
    assert host.run("configure", desired=document).code == 0
    host.write(_DOCKER, host.read(_DOCKER).replace('"default-runtime": "nvidia"', '"default-runtime": "kata"'))
    host.write(_TOOLKIT, host.read(_TOOLKIT).replace('mode = "csv"', 'mode = "legacy"'))
    repaired = host.run("configure", desired=document)
    assert [step["name"] for step in repaired.answer["steps"] if step["changed"]] == ["toolkit", "docker"]
    assert host.run("restore").code == 0
    assert host.snapshot() == before


def test_a_run_that_fails_after_somebodys_edit_leaves_restore_able_to_take_the_mode_back(host: HostRoot) -> None:
    assert host.run("configure", desired=_BY_HOST).code == 0
    host.write(_TOOLKIT, host.read(_TOOLKIT).replace('log-level = "info"', 'log-level = "debug"'))
    edited = host.read(_TOOLKIT)
    host.program("systemctl", 'case "$*" in "restart docker") exit 1;; esac')
    failed = host.run("configure", desired=_WITH_DOCKER | {"toolkit": {"owner": "host", "mode": "cdi"}})
    assert failed.code == 1
    assert host.read(_TOOLKIT) == edited
    host.program("systemctl", "exit 0")
    assert host.run("restore").code == 0
    left = host.read(_TOOLKIT)
    assert 'mode = "auto"' in left
    assert 'mode = "csv"' not in left
    assert 'log-level = "debug"' in left


def test_an_edited_drop_in_is_written_again_and_the_edit_is_kept_beside_it(host: HostRoot) -> None:
    before = host.snapshot()
    assert host.run("configure", desired=_BY_HOST).code == 0
    edited = host.read(_NVIDIA) + "# mine\n"
    host.write(_NVIDIA, edited)
    assert host.run("check", desired=_BY_HOST).code == 3
    repaired = host.run("configure", desired=_BY_HOST)
    assert repaired.code == 0, repaired.errors
    assert not list(host.path("/etc/containerd/conf.d").glob("*.kept-*")), "an import may take in every file"
    (kept,) = host.path("/etc/containerd").glob("99-nvidia.toml.kept-*")
    assert kept.read_text(encoding="utf-8") == edited
    assert kept.suffix != ".toml", "containerd would import it"
    assert host.run("restore").code == 0
    kept.unlink()
    assert host.snapshot() == before


def test_a_docker_default_that_an_administrator_chose_is_not_taken_back_by_the_next_run(host: HostRoot) -> None:
    assert host.run("configure", desired=_WITH_DOCKER).code == 0
    host.write(_DOCKER, json.dumps(json.loads(host.read(_DOCKER)) | {"default-runtime": "nvidia"}))
    run = host.run("configure", desired=_WITH_DOCKER)
    assert (run.code, run.answer["changed"]) == (0, False), run.errors
    assert json.loads(host.read(_DOCKER))["default-runtime"] == "nvidia"


def test_a_journal_of_the_version_before_is_gone_on_from(host: HostRoot) -> None:
    before = host.snapshot()
    assert host.run("configure", desired=_BY_HOST).code == 0
    journal = host.path("/var/lib/kai-anywhere/host/journal.json")
    data = json.loads(journal.read_text(encoding="utf-8"))
    for item in data["files"]:
        del item["written"], item["target"]
    journal.write_text(json.dumps(data | {"version": 1}), encoding="utf-8")
    assert host.run("check", desired=_BY_HOST).code == 0
    other = host.run("configure", desired=desired(Board.JETPACK_6, toolkit={"owner": "host", "mode": "cdi"}))
    assert other.code == 0, other.errors
    assert host.run("restore").code == 0
    assert host.snapshot() == before


def test_a_file_that_somebody_changes_while_the_agent_runs_is_not_written_over(
    host: HostRoot, programs: Mapping[Program, Path]
) -> None:
    # nvidia-ctk is asked last, right before the first write.
    (host.programs / "nvidia-ctk").unlink()
    host.program("nvidia-ctk", f'echo "# theirs" >> {host.path(_MAIN)}\nexec {programs[NVIDIA_CTK]} "$@"')
    run = host.run("configure", desired=_BY_HOST)
    assert run.code == 1
    assert f"{_MAIN} was changed by somebody else while this ran" in run.answer["error"]["message"]
    assert "# theirs" in host.read(_MAIN)
    assert "imports" not in host.read(_MAIN)


def test_containerd_1_says_that_its_kubernetes_section_is_frozen_and_reports_what_it_misses(
    containerd_1: Path, programs: Mapping[Program, Path], serve: Serve, tmp_path: Path
) -> None:
    host = _host(tmp_path, programs, serve, containerd_1)
    assert host.run("configure", desired=_BY_HOST).code == 0
    right = host.run("check", desired=_BY_HOST)
    assert right.code == 0
    assert "takes the whole Kubernetes section from 99-nvidia.toml" in right.answer["steps"][1]["detail"]
    host.write(_MAIN, host.read(_MAIN).replace("pause:3.10", "pause:3.11"))
    drift = host.run("check", desired=_BY_HOST)
    assert drift.code == 3
    assert [file["path"] for file in drift.answer["steps"][1]["files"]] == [_NVIDIA]
    assert host.run("configure", desired=_BY_HOST).code == 0
    assert "pause:3.11" in host.read(_NVIDIA)
    assert host.run("restore").code == 0
    assert host.read(_MAIN) == MAIN_V2.replace("pause:3.10", "pause:3.11")


def test_containerd_1_repeats_a_registrys_password_for_root_alone(
    containerd_1: Path, programs: Mapping[Program, Path], serve: Serve, tmp_path: Path
) -> None:
    host = _host(tmp_path, programs, serve, containerd_1)
    imported = 'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]'
    host.write(_MAIN, MAIN_V2.replace("version = 2", imported), 0o644)
    registry = '[plugins."io.containerd.grpc.v1.cri".registry.configs."r.example.com".auth]\n  password = "hunter2"\n'
    header = '[plugins."io.containerd.grpc.v1.cri".registry.headers]\n  X-JFrog-Art-Api = ["AKCp8hunter2"]\n'
    host.write("/etc/containerd/conf.d/50-site.toml", MAIN_V2 + registry + header, 0o600)
    run = host.run("configure", desired=_BY_HOST)
    assert run.code == 0, run.errors
    assert {'password = "hunter2"', 'X-JFrog-Art-Api = ["AKCp8hunter2"]'} <= set(
        map(str.strip, host.read(_NVIDIA).splitlines())
    )
    assert host.path(_NVIDIA).stat().st_mode & 0o777 == 0o600
    assert "hunter2" not in run.errors + json.dumps(run.answer)
    # As an earlier version of the agent left it.
    host.path(_NVIDIA).chmod(0o644)
    drift = host.run("check", desired=_BY_HOST)
    (file,) = drift.answer["steps"][1]["files"]
    assert (drift.code, file["path"]) == (3, _NVIDIA)
    assert "mode 0600" in file["diff"]
    again = host.run("configure", desired=_BY_HOST)
    assert (again.code, again.answer["restarted"]) == (0, []), again.errors
    assert host.path(_NVIDIA).stat().st_mode & 0o777 == 0o600
    assert host.run("check", desired=_BY_HOST).code == 0
    restored = host.run("restore")
    assert (restored.code, host.path(_NVIDIA).exists()) == (0, False)
    assert "hunter2" not in restored.errors + json.dumps(restored.answer)


@pytest.mark.parametrize("password", ["771771771", '["771771771"]', '{ a = "771771771" }'])
def test_a_password_of_the_wrong_type_is_not_told_by_containerds_refusal(
    containerd: Path, programs: Mapping[Program, Path], serve: Serve, tmp_path: Path, password: str
) -> None:
    host = _host(tmp_path, programs, serve, containerd)
    registry = f'[plugins."{CRI_V2}".registry.configs."r.example.com".auth]\n  password = {password}\n'
    host.write(_MAIN, MAIN_V2 + registry)
    for run in (host.run("check", desired=_BY_HOST), host.run("examine")):
        assert "exited with 1" in json.dumps(run.answer)
        assert "771771771" not in run.errors + json.dumps(run.answer)


def test_containerd_1_gives_back_somebodys_drop_in_with_its_mode(
    containerd_1: Path, programs: Mapping[Program, Path], serve: Serve, tmp_path: Path
) -> None:
    host = _host(tmp_path, programs, serve, containerd_1)
    imported = 'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]'
    host.write(_MAIN, MAIN_V2.replace("version = 2", imported))
    host.write(_NVIDIA, "version = 2\n# theirs\n", 0o644)
    tried = tmp_path / "tried"
    host.program("systemctl", f"[ -e {tried} ] || {{ : > {tried}; exit 1; }}")
    failed = host.run("configure", desired=_BY_HOST)
    assert failed.answer["rolled_back"] is True, failed.errors
    assert (host.read(_NVIDIA), host.path(_NVIDIA).stat().st_mode & 0o777) == ("version = 2\n# theirs\n", 0o644)
    assert host.run("configure", desired=_BY_HOST).code == 0
    assert host.path(_NVIDIA).stat().st_mode & 0o777 == 0o600
    assert host.run("restore").code == 0
    assert (host.read(_NVIDIA), host.path(_NVIDIA).stat().st_mode & 0o777) == ("version = 2\n# theirs\n", 0o644)


def test_a_comment_in_another_encoding_stays_byte_for_byte(
    containerd_1: Path, programs: Mapping[Program, Path], serve: Serve, tmp_path: Path
) -> None:
    host = _host(tmp_path, programs, serve, containerd_1)
    comment = "# f\xfcr uns\n".encode("latin-1")
    host.write(_MAIN, comment + MAIN_V2.encode())
    before = host.snapshot()
    assert host.run("configure", desired=_BY_HOST).code == 0
    written = host.path(_MAIN).read_bytes()
    assert written.startswith(comment)
    host.write(_MAIN, written + b"# theirs\n")
    assert host.run("restore").code == 0
    assert host.path(_MAIN).read_bytes() == comment + MAIN_V2.encode() + b"# theirs\n"
    # A value, however, can't be repeated, for what containerd prints of it is not what stands there.
    host.write(_MAIN, MAIN_V2.encode().replace(b"pause:3.10", b"pause:\xfc"))
    refused = host.run("configure", desired=_BY_HOST)
    assert refused.code == 1
    assert "is not in UTF-8, so these settings can't be repeated: sandbox_image" in refused.answer["error"]["message"]
    host.write(_MAIN, comment + MAIN_V2.encode())
    assert host.snapshot() == before


def test_containerd_2_says_nothing_of_that(host: HostRoot) -> None:
    assert host.run("configure", desired=_BY_HOST).code == 0
    assert "Kubernetes section" not in host.run("check", desired=_BY_HOST).answer["steps"][1]["detail"]
