"""Docker's `daemon.json` and the CDI specification, through the real nvidia-ctk."""

import json
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from config.cluster import Distribution
from tests.support.hosts.roots import (
    Board,
    HostRoot,
    Serve,
    desired,
    install_docker,
    install_toolkit,
    prepare,
)
from tests.support.programs import DOCKERD, NVIDIA_CTK
from toolchain import Program

pytestmark = pytest.mark.engine

_DOCKER = "/etc/docker/daemon.json"
_UNIT = "/usr/lib/systemd/system/docker.service"
_CDI = "/etc/cdi/nvidia.yaml"
_OPERATOR = {"owner": "operator", "mode": "auto"}


@pytest.fixture
def host(programs: Mapping[Program, Path], serve: Serve, tmp_path: Path) -> HostRoot:
    """An Orin with Docker and with a k3s that has found the nvidia runtime."""
    root = prepare(tmp_path / "host", Board.JETPACK_6, Distribution.K3S)
    install_toolkit(root)
    config = root.path("/var/lib/rancher/k3s/agent/etc/containerd/config.toml")
    config.write_text(config.read_text() + "[plugins.x.containerd.runtimes.'nvidia']\n")
    root.real("nvidia-ctk", programs[NVIDIA_CTK])
    install_docker(root)
    root.program("systemctl", f'echo "$@" >> {root.folder.parent / "calls"}')
    serve.at(root, "/run/docker.sock")
    return root


def _docker(**choice: bool) -> dict[str, object]:
    return desired(Board.JETPACK_6, docker={"configure": True, "default_runtime": False} | choice)


def test_docker_gets_the_runtime_and_keeps_every_other_setting(host: HostRoot) -> None:
    theirs = {
        "features": {"buildkit": True},
        "runtimes": {"kata": {"path": "/opt/kata"}},
        "log-driver": "local",
        "proxies": {"http-proxy": "http://user:hunter2@proxy:3128"},
    }
    host.write(_DOCKER, json.dumps(theirs), 0o600)
    before = host.snapshot()
    run = host.run("configure", desired=_docker())
    assert (run.code, run.answer["restarted"]) == (0, ["docker"]), run.errors
    config = json.loads(host.read(_DOCKER))
    assert config["runtimes"].pop("nvidia")["path"] == "/usr/bin/nvidia-container-runtime"
    assert config == theirs
    assert stat.S_IMODE(host.path(_DOCKER).stat().st_mode) == 0o600
    assert "hunter2" not in run.errors + json.dumps(run.answer)
    assert host.run("configure", desired=_docker()).answer["changed"] is False
    assert host.run("check", desired=_docker()).code == 0
    assert host.run("restore").code == 0
    assert host.snapshot() == before


def test_docker_without_a_configuration_gets_one_and_loses_it_again(host: HostRoot) -> None:
    before = host.snapshot()
    assert host.run("configure", desired=_docker(default_runtime=True)).code == 0
    assert json.loads(host.read(_DOCKER))["default-runtime"] == "nvidia"
    # No longer the default, then no longer at all.
    assert host.run("configure", desired=_docker()).answer["restarted"] == ["docker"]
    assert "default-runtime" not in json.loads(host.read(_DOCKER))
    off = host.run("configure", desired=desired(Board.JETPACK_6))
    assert (off.code, off.answer["restarted"]) == (0, ["docker"])
    assert not host.path(_DOCKER).exists()
    assert host.run("restore").code == 0
    assert host.snapshot() == before


def test_what_docker_itself_refuses_is_not_written(host: HostRoot) -> None:
    host.program("dockerd", 'echo "unable to configure the Docker daemon: invalid key" >&2; exit 1')
    before = host.snapshot()
    run = host.run("configure", desired=_docker())
    assert run.code == 1
    assert "invalid key" in run.answer["error"]["message"]
    assert host.snapshot() == before
    host.program("dockerd", f'echo "$@" > {host.folder.parent / "validated"}')
    assert host.run("configure", desired=_docker()).code == 0
    assert "--validate --config-file" in (host.folder.parent / "validated").read_text()


def test_the_real_docker_accepts_what_is_written_and_refuses_what_it_does_not_know(
    host: HostRoot, programs: Mapping[Program, Path]
) -> None:
    host.real("dockerd", programs[DOCKERD])
    # Docker's packages bring the proxy; the daemon alone asks for it.
    theirs = {"userland-proxy": False, "log-driver": "json-file", "registry-mirrors": ["https://mirror.example.com"]}
    host.write(_DOCKER, json.dumps(theirs | {"no-such-setting": 1}))
    before = host.snapshot()
    refused = host.run("configure", desired=_docker(default_runtime=True))
    assert refused.code == 1
    assert "no-such-setting" in refused.answer["error"]["message"]
    assert host.snapshot() == before
    # Docker takes a byte order mark too.
    host.write(_DOCKER, f"\ufeff{json.dumps(theirs)}")
    before = host.snapshot()
    assert host.run("configure", desired=_docker(default_runtime=True)).code == 0
    written = json.loads(host.read(_DOCKER))
    assert written.pop("runtimes").keys() == {"nvidia"}
    assert written == theirs | {"default-runtime": "nvidia"}
    assert host.run("restore").code == 0
    assert host.snapshot() == before


def test_a_key_that_docker_takes_twice_is_refused_since_only_the_last_would_stay(
    host: HostRoot, programs: Mapping[Program, Path]
) -> None:
    host.real("dockerd", programs[DOCKERD])
    runtimes = [f'"runtimes": {{"{name}": {{"path": "/opt/{name}"}}}}' for name in ("kata", "gvisor")]
    host.write(_DOCKER, f'{{"userland-proxy": false, {", ".join(runtimes)}}}\n')
    valid = [str(programs[DOCKERD]), "--validate", "--config-file", str(host.path(_DOCKER))]
    subprocess.run(valid, check=True, capture_output=True, timeout=60)
    before = host.snapshot()
    refused = host.run("configure", desired=_docker())
    assert refused.code == 1
    assert f"{_DOCKER} has the key 'runtimes' twice" in refused.answer["error"]["message"]
    assert host.snapshot() == before
    host.write(_DOCKER, f'{{"userland-proxy": false, {runtimes[0]}}}\n')
    assert host.run("configure", desired=_docker()).code == 0
    assert json.loads(host.read(_DOCKER))["runtimes"].keys() == {"kata", "nvidia"}
    edited = f"{{{runtimes[1]}, {host.read(_DOCKER).strip()[1:]}\n"
    host.write(_DOCKER, edited)
    assert host.run("restore").code == 0
    assert host.read(_DOCKER) == edited, "what can't be taken apart stays"


@pytest.mark.parametrize("edit", [{"args": ["--debug"]}, {"runtimeArgs": ["--debug"]}], ids=["changed", "added"])
@pytest.mark.parametrize("written_again", [False, True], ids=["once", "written again"])
def test_a_runtime_that_somebody_gave_arguments_goes_or_stays_whole(
    host: HostRoot, edit: dict[str, list[str]], *, written_again: bool
) -> None:
    """Docker does not start with a part of one: `either a runtimeType or a path must be configured`."""
    host.write(_DOCKER, '{"debug": true}\n')
    before = host.snapshot()
    assert host.run("configure", desired=_docker()).code == 0
    edited = json.loads(host.read(_DOCKER))
    edited["runtimes"]["nvidia"] |= edit
    host.write(_DOCKER, json.dumps(edited))
    if written_again:
        assert host.run("configure", desired=_docker(default_runtime=True)).code == 0
    assert host.run("restore").code == 0
    if written_again:
        assert host.snapshot() == before
    else:
        assert json.loads(host.read(_DOCKER)) == edited, "it is theirs by now"


def test_a_default_runtime_that_somebody_took_away_is_not_put_back(host: HostRoot) -> None:
    """Docker does not start with it: `specified default runtime 'kata' does not exist`."""
    kata = {"kata": {"path": "/opt/kata"}}
    host.write(_DOCKER, json.dumps({"default-runtime": "kata", "runtimes": kata}))
    assert host.run("configure", desired=_docker(default_runtime=True)).code == 0
    edited = json.loads(host.read(_DOCKER))
    assert edited["runtimes"].pop("kata") == kata["kata"]
    host.write(_DOCKER, json.dumps(edited))
    assert host.run("restore").code == 0
    assert json.loads(host.read(_DOCKER)) == {"runtimes": {}}


def test_a_docker_that_does_not_come_up_gets_its_old_configuration_back(host: HostRoot) -> None:
    host.write(_DOCKER, '{"debug": true}\n')
    before = host.snapshot()
    calls = host.folder.parent / "calls"
    host.program(
        "systemctl", f'echo "$@" >> {calls}\nread all < {host.path(_DOCKER)}\n[ "$all" = \'{{"debug": true}}\' ]'
    )
    run = host.run("configure", desired=_docker())
    assert run.code == 1
    assert (run.answer["rolled_back"], run.answer["changed"]) == (True, False)
    assert run.answer["restarted"] == []
    assert "What was there before is back in force" in run.answer["error"]["message"]
    assert calls.read_text().splitlines() == ["restart docker"] * 2
    assert host.snapshot() == before, "no later run comes that would take a journal or a folder away"


def test_a_runtime_that_somebody_adds_after_a_roll_back_is_theirs(host: HostRoot) -> None:
    host.write(_DOCKER, '{"debug": true}\n')
    host.program("systemctl", f'read all < {host.path(_DOCKER)}\n[ "$all" = \'{{"debug": true}}\' ]')
    assert host.run("configure", desired=_docker()).answer["rolled_back"] is True
    host.program("systemctl", "exit 0")
    by_hand = [str(host.programs / "nvidia-ctk"), "runtime", "configure", "--runtime", "docker"]
    by_hand += ["--nvidia-runtime-path", "/usr/bin/nvidia-container-runtime", "--config", str(host.path(_DOCKER))]
    subprocess.run(by_hand, check=True, capture_output=True, timeout=60)
    theirs = host.snapshot()
    assert "nvidia" in host.read(_DOCKER)
    assert host.run("configure", desired=_docker()).answer["changed"] is False
    assert host.run("restore").code == 0
    assert host.snapshot() == theirs


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("docker", "programs/docker, but no docker.service, which would read /etc/docker/daemon.json"),
        (None, "There is no Docker on this host: neither a docker.service nor a `docker`."),
    ],
    ids=["a snap's or Podman's", "none"],
)
def test_a_docker_without_its_service_is_refused_before_anything_is_changed(
    program: str | None, says: str, host: HostRoot
) -> None:
    host.path(_UNIT).unlink()
    if program is None:
        (host.programs / "docker").unlink()
    before = host.snapshot()
    run = host.run("configure", desired=_docker())
    assert run.code == 1
    assert says in run.answer["error"]["message"]
    assert "switch docker.configure off" in run.answer["error"]["remedy"]
    assert host.snapshot() == before
    assert not (host.folder.parent / "calls").exists()


def test_a_docker_that_was_masked_is_refused_and_does_not_keep_a_host_from_being_restored(host: HostRoot) -> None:
    assert host.run("configure", desired=_docker()).code == 0
    mask = host.path("/etc/systemd/system/docker.service")
    mask.parent.mkdir(parents=True, exist_ok=True)
    mask.symlink_to("/dev/null")
    host.program("systemctl", 'echo "Unit docker.service is masked." >&2; exit 1')
    refused = host.run("configure", desired=_docker())
    assert "or it is masked" in refused.answer["error"]["message"]
    restored = host.run("restore")
    assert (restored.code, restored.answer["restarted"]) == (0, []), restored.errors
    assert not host.path(_DOCKER).exists()
    assert not host.path("/var/lib/kai-anywhere").exists()


def test_a_restart_that_a_killed_run_owes_is_paid_by_the_run_that_does_not_ask_for_docker(host: HostRoot) -> None:
    assert host.run("configure", desired=_docker()).code == 0
    calls = host.folder.parent / "calls"
    calls.unlink()
    # The run that takes Docker's part back ends with its file written and Docker not restarted.
    host.program("systemctl", "kill -KILL $PPID")
    killed = subprocess.run(
        [sys.executable, "-m", "agents.host", "configure", "--root", str(host.folder)],
        input=json.dumps(desired(Board.JETPACK_6)).encode(),
        env=host.environment(),
        check=False,
        timeout=120,
    )
    assert killed.returncode == -signal.SIGKILL
    assert not host.path(_DOCKER).exists()
    host.program("systemctl", f'echo "$@" >> {calls}')
    run = host.run("configure", desired=desired(Board.JETPACK_6))
    assert (run.code, run.answer["restarted"]) == (0, ["docker"]), run.errors
    assert host.run("check", desired=desired(Board.JETPACK_6)).code == 0


def test_a_docker_whose_service_is_in_etc_or_made_of_a_script_is_configured(host: HostRoot) -> None:
    unit = host.path(_UNIT)
    for folder in ("/etc/systemd/system", "/run/systemd/generator.late"):
        place = host.path(f"{folder}/docker.service")
        place.parent.mkdir(parents=True, exist_ok=True)
        unit = unit.rename(place)
        assert host.run("configure", desired=_docker()).answer["restarted"] == ["docker"]
        assert host.run("restore").answer["restarted"] == ["docker"]


@pytest.mark.parametrize("command", ["configure", "restore"])
def test_a_docker_whose_service_is_gone_is_not_restarted_and_the_host_is_given_back(
    command: str, host: HostRoot
) -> None:
    host.write(_DOCKER, '{"debug": true}\n')
    assert host.run("configure", desired=_docker()).code == 0
    host.path(_UNIT).unlink()
    before = host.snapshot()
    host.program("systemctl", "echo 'Unit docker.service not found.' >&2; exit 5")
    if command == "configure":
        off = host.run("configure", desired=desired(Board.JETPACK_6))
        assert (off.code, off.answer["restarted"]) == (0, []), off.errors
        assert host.read(_DOCKER) == '{"debug": true}\n'
    done = host.run("restore")
    assert (done.code, done.answer["restarted"]) == (0, []), done.errors
    assert host.read(_DOCKER) == '{"debug": true}\n'
    changed = set(before.items()) ^ set(host.snapshot().items())
    assert {name for name, _ in changed if not name.startswith("var/lib/kai-anywhere")} == {_DOCKER[1:]}
    assert not host.path("/var/lib/kai-anywhere").exists()


def test_a_restart_that_is_owed_to_a_docker_without_a_service_does_not_keep_the_host_from_being_given_back(
    host: HostRoot,
) -> None:
    before = host.snapshot()
    host.program("systemctl", "echo 'Unit docker.service not found.' >&2; exit 5")
    assert "Rolling back failed too" in host.run("configure", desired=_docker()).answer["error"]["message"]
    host.path(_UNIT).unlink()
    for document in (desired(Board.JETPACK_6), None):
        run = host.run("configure" if document else "restore", desired=document)
        assert (run.code, run.answer["restarted"]) == (0, []), run.errors
    host.write(_UNIT)
    assert host.snapshot() == before


def test_a_restart_that_is_owed_to_a_k3s_that_was_uninstalled_does_not_keep_the_host_from_being_given_back(
    host: HostRoot,
) -> None:
    host.program("systemctl", "echo 'Unit k3s.service not found.' >&2; exit 5")
    host.write("/var/lib/rancher/k3s/agent/etc/containerd/config.toml", "version = 3\n")
    document = desired(Board.JETPACK_6, toolkit={"owner": "host", "mode": "csv"})
    assert "Unit k3s.service not found" in host.run("configure", desired=document).answer["error"]["message"]
    assert host.run("restore").code == 1, "its unit is there"
    host.path("/etc/systemd/system/k3s.service").unlink()
    shutil.rmtree(host.path("/var/lib/rancher"))
    done = host.run("restore")
    assert (done.code, done.answer["restarted"]) == (0, []), done.errors
    assert not host.path("/var/lib/kai-anywhere").exists()


def test_a_rollback_that_fails_too_says_so_and_restore_gives_the_original(host: HostRoot) -> None:
    host.write(_DOCKER, '{"debug": true}\n')
    before = host.snapshot()
    host.program("systemctl", "echo 'Job for docker.service failed.' >&2; exit 1")
    run = host.run("configure", desired=_docker())
    assert run.code == 1
    assert run.answer["rolled_back"] is False
    assert "Rolling back failed too" in run.answer["error"]["message"]
    assert "Job for docker.service failed." in run.answer["error"]["message"]
    failed = host.run("restore")
    assert failed.code == 1
    assert host.read(_DOCKER) == '{"debug": true}\n'
    host.program("systemctl", "exit 0")
    restored = host.run("restore")
    assert (restored.code, restored.answer["restarted"]) == (0, ["docker"])
    assert host.snapshot() == before


def _needs_devices(host: HostRoot) -> None:
    if not stat.S_ISCHR(host.path("/dev/nvmap").stat().st_mode):
        pytest.skip("needs the right to make device files")


def test_cdi_describes_what_the_csv_files_list(host: HostRoot) -> None:
    _needs_devices(host)
    before = host.snapshot()
    document = desired(Board.JETPACK_6, cdi={"generate": True})
    run = host.run("configure", desired=document)
    assert (run.code, run.answer["restarted"]) == (0, []), run.errors
    specification = json.loads(host.read(_CDI))
    assert [device["name"] for device in specification["devices"]] == ["0", "all"]
    assert {node["path"] for node in specification["devices"][0]["containerEdits"]["deviceNodes"]} == {
        "/dev/nvmap",
        "/dev/nvhost-ctrl-gpu",
    }
    assert host.run("configure", desired=document).answer["changed"] is False
    assert host.run("restore").code == 0
    assert host.snapshot() == before


def test_cdi_without_csv_files_is_refused(host: HostRoot) -> None:
    shutil.rmtree(host.path("/etc/nvidia-container-runtime/host-files-for-container.d"))
    run = host.run("configure", desired=desired(Board.JETPACK_6, cdi={"generate": True}))
    assert run.code == 1
    assert "devices.csv" in run.answer["error"]["message"]


def test_a_mode_without_csv_files_is_set_with_a_warning(host: HostRoot) -> None:
    shutil.rmtree(host.path("/etc/nvidia-container-runtime/host-files-for-container.d"))
    run = host.run("configure", desired=desired(Board.JETPACK_6, toolkit={"owner": "host", "mode": "csv"}))
    assert run.code == 0
    assert "containers would start without the GPU" in run.answer["steps"][0]["detail"]
    handed = host.run("configure", desired=desired(Board.JETPACK_6, toolkit=_OPERATOR))
    assert (handed.code, handed.answer["restarted"]) == (0, [])
    assert 'mode = "auto"' in host.read("/etc/nvidia-container-runtime/config.toml")
