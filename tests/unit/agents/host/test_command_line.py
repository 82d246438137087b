"""The command line's contract: one JSON object on stdout, the exit status, one run at a time."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from config.cluster import Distribution
from testbed.stacks import ROOT
from testbed.waiting import eventually
from tests.support.hosts.roots import (
    Board,
    HostRoot,
    Serve,
    desired,
    install_docker,
    install_toolkit,
    prepare,
)


@pytest.fixture
def k3s(tmp_path: Path) -> HostRoot:
    """An Orin with k3s, which has not found the nvidia runtime yet; `systemctl` only notes what it was asked."""
    host = prepare(tmp_path / "host", Board.JETPACK_6, Distribution.K3S)
    install_toolkit(host)
    host.program("nvidia-ctk", "exit 9")
    return host


@pytest.mark.parametrize(
    "arguments", [(), ("prob",), ("probe", "--what"), ("probe", "--timeout", "0"), ("probe", "--timeout", "soon")]
)
def test_bad_arguments_are_an_object_too(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agents.host", *arguments], cwd=ROOT, capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 2
    (line,) = done.stdout.splitlines()
    remedy = json.loads(line)["error"]["remedy"]
    assert remedy.startswith("Usage: kai-host.pyz probe")
    if not arguments or arguments[0] != "probe":
        assert "probe|examine|configure|check|untouched|restore" in remedy, "a usage says what there is"
    assert done.stderr


def test_help_is_an_object_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agents.host", "--help"], cwd=ROOT, capture_output=True, check=True, timeout=60
    )
    assert "configure" in json.loads(done.stdout)["help"] + done.stderr.decode()


def test_a_bad_document_changes_nothing(k3s: HostRoot) -> None:
    before = k3s.snapshot()
    for command in ("configure", "check"):
        run = k3s.run(command, desired={"version": 1, "platform": "amiga"})
        assert run.code == 2
        assert "error" in run.answer
        assert run.answer["error"]["message"] in run.errors
    assert k3s.snapshot() == before


def test_another_platform_than_the_stacks_is_an_error_that_names_both(k3s: HostRoot) -> None:
    before = k3s.snapshot()
    run = k3s.run("configure", desired=desired(Board.X86))
    assert run.code == 1
    assert "'x86'" in run.answer["error"]["message"]
    assert "'tegra'" in run.answer["error"]["message"]
    assert k3s.snapshot() == before


def test_another_distribution_than_the_stacks_is_an_error_that_names_both(k3s: HostRoot) -> None:
    run = k3s.run("configure", desired=desired(Board.JETPACK_6, distribution="microk8s"))
    assert run.code == 1
    assert "microk8s" in run.answer["error"]["message"]
    assert "k3s" in run.answer["error"]["message"]


@pytest.mark.parametrize("said", ["false", "true", None])
def test_a_toolkit_that_ignores_fractions_is_told(said: str | None, k3s: HostRoot) -> None:
    switch = "accept-nvidia-visible-devices-envvar-when-unprivileged"
    path = "/etc/nvidia-container-runtime/config.toml"
    k3s.write(path, ("" if said is None else f"{switch} = {said}\n") + k3s.read(path))
    detail = k3s.run("check", desired=desired(Board.JETPACK_6)).answer["steps"][0]["detail"]
    assert ("pods with a fraction of a GPU would start without it" in detail) is (said == "false")


def test_two_distributions_are_not_guessed_between(k3s: HostRoot) -> None:
    k3s.path("/var/snap/microk8s/current").mkdir(parents=True)
    run = k3s.run("configure", desired=desired(Board.JETPACK_6))
    assert run.code == 1
    assert "signs of k3s and microk8s" in run.answer["error"]["message"]


def test_a_k3s_with_a_data_dir_of_its_own_is_found_through_a_link_which_the_error_asks_for(k3s: HostRoot) -> None:
    usual, own = k3s.path("/var/lib/rancher/k3s"), k3s.path("/ssd/k3s")
    own.parent.mkdir()
    usual.rename(own)
    document = desired(Board.JETPACK_6) | {"distribution": "k3s"}
    lost = k3s.run("check", desired=document).answer["error"]
    assert "signs of no distribution" in lost["message"]
    assert "put a link to that at /var/lib/rancher/k3s." in lost["remedy"]
    usual.symlink_to(own)
    assert "k3s looks for the nvidia runtime" in k3s.run("check", desired=document).answer["steps"][1]["detail"]


@pytest.mark.parametrize(
    ("path", "text", "named"),
    [
        ("/var/lib/kubelet/config.yaml", "containerRuntimeEndpoint: unix:///var/run/crio/crio.sock\n", "crio.sock"),
        (
            "/var/lib/kubelet/kubeadm-flags.env",
            'KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/cri-dockerd.sock --v=2"\n',
            "cri-dockerd.sock",
        ),
        ("/var/lib/k0s/kubelet.conf", "", "k0s"),
    ],
)
def test_a_containerd_that_the_kubelet_does_not_ask_is_not_configured_for_it(
    tmp_path: Path, path: str, text: str, named: str
) -> None:
    """A Jetson has one for Docker, which would take everything and serve no pod."""
    host = prepare(tmp_path / "host", Board.JETPACK_6)
    install_toolkit(host)
    install_docker(host)
    host.write(path, text)
    before = host.snapshot()
    run = host.run("configure", desired=desired(Board.JETPACK_6, distribution="kubeadm"))
    assert run.code == 1
    assert named in run.answer["error"]["message"]
    assert "Take the host out of `hosts`" in run.answer["error"]["remedy"]
    assert host.snapshot() == before


@pytest.mark.parametrize(
    "text",
    [
        "containerRuntimeEndpoint: unix:///var/run/containerd/containerd.sock\n",
        'containerRuntimeEndpoint: "unix:///run/containerd/containerd.sock" # ours\n',
        'containerRuntimeEndpoint: ""\n',
    ],
)
def test_however_the_kubelet_names_the_systems_containerd_it_is_the_one(tmp_path: Path, text: str) -> None:
    host = prepare(tmp_path / "host", Board.JETPACK_6)
    install_toolkit(host)
    host.write("/var/lib/kubelet/config.yaml", text)
    error = host.run("check", desired=desired(Board.JETPACK_6, distribution="kubeadm")).answer["error"]
    assert error["message"] == "The containerd of kubeadm is not found in PATH.", "the kubelet is no reason to refuse"


_STARTED = "ExecStart=/usr/bin/containerd"
_OF_ANOTHER_FILE = f"[Service]\nExecStart=\n{_STARTED} \\\n  --log-level info --config=/opt/containerd/config.toml\n"


@pytest.mark.parametrize(
    ("files", "named"),
    [
        (
            ["containerd.service.d/10-theirs.conf", _OF_ANOTHER_FILE],
            "/etc/systemd/system/containerd.service.d/10-theirs",
        ),
        (
            ["containerd.service", f"{_STARTED} -c '/opt/containerd/config.toml'\n"],
            "/etc/systemd/system/containerd.ser",
        ),
        (
            ["containerd.service", "ExecStart=/bin/sh -c 'exec containerd -c /opt/c.toml'\n"],
            "with the file /opt/c.toml,",
        ),
        (["containerd.service.d/10-theirs.conf", f"{_STARTED} --config /etc/containerd/config.toml\n"], ""),
        (["containerd.service.d/10-theirs.conf", f"{_STARTED} --config /opt/a-link.toml\n"], ""),
        (["containerd.service.d/10-theirs.conf", f"{_STARTED} --config $CONTAINERD_CONFIG\n"], ""),
        (["containerd.service.d/10-theirs.conf", "ExecStart=/bin/sh -c 'exec containerd'\n"], ""),
        (
            ["containerd.service", _OF_ANOTHER_FILE, "containerd.service.d/10.conf", f"ExecStart=\n{_STARTED}\n"],
            "",
        ),
    ],
)
def test_a_containerd_that_a_unit_starts_with_another_file_is_not_configured(
    tmp_path: Path, files: list[str], named: str
) -> None:
    host = prepare(tmp_path / "host", Board.JETPACK_6, Distribution.KUBEADM)
    install_toolkit(host)
    host.path("/opt").mkdir()
    host.path("/opt/a-link.toml").symlink_to("/etc/containerd/config.toml")
    for path, text in zip(files[::2], files[1::2], strict=True):
        host.write(f"/etc/systemd/system/{path}", text)
    before = host.snapshot()
    run = host.run("configure", desired=desired(Board.JETPACK_6, distribution="kubeadm"))
    message = run.answer["error"]["message"]
    if named:
        assert named in message
        assert "so it does not read /etc/containerd/config.toml" in message
    else:
        assert message == "The containerd of kubeadm is not found in PATH.", "the unit is no reason to refuse"
    assert host.snapshot() == before


@pytest.mark.parametrize(
    ("path", "text", "refused"),
    [
        ("/etc/systemd/system/k3s.service", "ExecStart=/usr/local/bin/k3s \\\n    server \\\n\t'--docker' \\\n", True),
        ("/etc/systemd/system/k3s.service", "ExecStart=/usr/local/bin/k3s server --docker\n", True),
        (
            "/etc/systemd/system/k3s.service",
            "ExecStart=/k3s server --container-runtime-endpoint=/run/crio.sock\n",
            True,
        ),
        ("/etc/systemd/system/k3s.service", "ExecStart=/k3s server --docker=false --node-label=a=--docker\n", False),
        ("/etc/rancher/k3s/config.yaml", "tls-san: [a]\ndocker: true\n", True),
        ("/etc/rancher/k3s/config.yaml.d/docker.yaml", 'container-runtime-endpoint: "unix:///run/crio.sock"\n', True),
        ("/etc/rancher/k3s/config.yaml", 'docker: false\n# docker: true\ncontainer-runtime-endpoint: ""\n', False),
    ],
)
def test_a_k3s_that_was_told_to_use_docker_is_not_restarted_for_a_runtime(
    k3s: HostRoot, path: str, text: str, *, refused: bool
) -> None:
    """Guides for Jetsons say `--docker`: k3s would be restarted at each run, and the wait for it would time out."""
    k3s.write(path, text)
    run = k3s.run("check", desired=desired(Board.JETPACK_6))
    assert run.code == (1 if refused else 3), run.errors
    if refused:
        assert f"{path} has the option" in run.answer["error"]["message"]
        assert "Take the option away and restart k3s" in run.answer["error"]["remedy"]


@pytest.mark.parametrize("names", [["config.toml.tmpl"], ["config.toml.tmpl", "config-v3.toml.tmpl"]])
def test_a_template_that_leaves_out_the_runtimes_is_named_and_k3s_is_not_restarted(
    k3s: HostRoot, serve: Serve, names: list[str]
) -> None:
    calls = serve(k3s, Distribution.K3S)
    k3s.program("systemctl", f'echo "$@" >> {calls}')
    folder = "/var/lib/rancher/k3s/agent/etc/containerd"
    for name in names:
        k3s.write(f"{folder}/{name}", "version = 3\n[debug]\n  level = 'debug'\n")
    run = k3s.run("configure", desired=desired(Board.JETPACK_6))
    assert run.code == 1
    assert all(f"{folder}/{name}" in run.answer["error"]["message"] for name in names)
    assert "nothing was changed" in run.answer["error"]["remedy"]
    assert not calls.exists()
    for extended in ('{{ template "base" . }}\n', "{{range $k, $v := .ExtraRuntimes}}{{end}}\n"):
        k3s.write(f"{folder}/config.toml.tmpl", extended)
        assert "looks for the nvidia runtime" in k3s.run("check", desired=desired(Board.JETPACK_6)).errors


def test_the_operators_toolkit_beside_the_hosts_is_refused(k3s: HostRoot) -> None:
    k3s.write("/usr/local/nvidia/toolkit/nvidia-container-runtime", "", 0o755)
    run = k3s.run("configure", desired=desired(Board.JETPACK_6))
    assert run.code == 1
    assert "/usr/local/nvidia/toolkit" in run.answer["error"]["message"]
    assert "nvidia.com/gpu.deploy.container-toolkit=false" in run.answer["error"]["remedy"]
    owned = k3s.run("configure", desired=desired(Board.JETPACK_6, toolkit={"owner": "operator", "mode": "auto"}))
    assert (owned.code, owned.answer["changed"]) == (0, False)


def test_a_missing_toolkit_is_named_with_the_package(k3s: HostRoot) -> None:
    k3s.path("/usr/bin/nvidia-container-runtime").unlink()
    run = k3s.run("configure", desired=desired(Board.JETPACK_6))
    assert run.code == 1
    assert "nvidia-container-runtime" in run.answer["error"]["message"]
    assert "apt-get install nvidia-container" in run.answer["error"]["remedy"]


def test_thor_with_a_toolkit_that_does_not_know_it_is_refused(tmp_path: Path) -> None:
    host = prepare(tmp_path / "host", Board.JETPACK_7, Distribution.K3S)
    install_toolkit(host)
    host.program("nvidia-ctk", "echo 'NVIDIA Container Toolkit CLI version 1.17.6'")
    run = host.run("configure", desired=desired(Board.JETPACK_7))
    assert run.code == 1
    assert "1.17.6" in run.answer["error"]["message"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"runtimes": []}', "[" * 100_000])
def test_a_broken_docker_configuration_is_an_error_and_stays(content: str, k3s: HostRoot) -> None:
    k3s.write("/etc/docker/daemon.json", content)
    install_docker(k3s)
    before = k3s.snapshot()
    run = k3s.run("configure", desired=desired(Board.JETPACK_6, docker={"configure": True, "default_runtime": False}))
    assert run.code == 1
    assert "/etc/docker/daemon.json" in run.answer["error"]["message"]
    assert k3s.snapshot() == before


@pytest.mark.parametrize("refused", [True, False])
def test_a_docker_that_a_unit_starts_with_another_file_is_not_configured(k3s: HostRoot, *, refused: bool) -> None:
    install_docker(k3s)
    file = "/opt/daemon.json" if refused else "/etc/docker/daemon.json"
    started = f"ExecStart=\nExecStart=/usr/bin/dockerd -H fd:// --config-file={file}\n"
    k3s.write("/etc/systemd/system/docker.service.d/10-theirs.conf", started)
    before = k3s.snapshot()
    run = k3s.run("configure", desired=desired(Board.JETPACK_6, docker={"configure": True, "default_runtime": False}))
    assert run.code == 1
    message = run.answer["error"]["message"]
    assert ("starts docker with the file /opt/daemon.json, so it does not read /etc/docker" in message) is refused
    assert ("nvidia-ctk" in message) is not refused, "else only this toolkit, which fails, is a reason"
    assert k3s.snapshot() == before


def test_restore_of_a_host_that_was_never_changed_does_nothing(k3s: HostRoot) -> None:
    before = k3s.snapshot()
    run = k3s.run("restore")
    assert (run.code, run.answer["changed"], run.answer["restarted"]) == (0, False, [])
    assert k3s.snapshot() == before
    assert list(k3s.path("/run").iterdir()) == []


def test_a_second_run_is_refused_while_the_first_one_works(k3s: HostRoot) -> None:
    descriptor = os.open(k3s.path("/run/kai-anywhere-host.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        run = k3s.run("configure", desired=desired(Board.JETPACK_6))
    finally:
        os.close(descriptor)
    assert run.code == 1
    assert "Another run" in run.answer["error"]["message"]


def test_k3s_is_restarted_once_and_must_then_have_found_the_runtime(k3s: HostRoot, serve: Serve) -> None:
    calls = serve(k3s, Distribution.K3S)
    config = k3s.path("/var/lib/rancher/k3s/agent/etc/containerd/config.toml")
    k3s.program("systemctl", f'echo "$@" >> {calls}')
    refused = k3s.run("configure", desired=desired(Board.JETPACK_6))
    assert refused.code == 1
    assert "still lacks the nvidia runtime" in refused.answer["error"]["message"]

    k3s.program("systemctl", f'echo "$@" >> {calls}\necho \'[x.runtimes."nvidia"]\' >> {config}')
    assert k3s.run("check", desired=desired(Board.JETPACK_6)).code == 3
    first = k3s.run("configure", desired=desired(Board.JETPACK_6))
    assert (first.code, first.answer["restarted"]) == (0, ["k3s"]), first.errors
    second = k3s.run("configure", desired=desired(Board.JETPACK_6))
    assert (second.code, second.answer["changed"]) == (0, False)
    assert k3s.run("check", desired=desired(Board.JETPACK_6)).code == 0
    assert calls.read_text().splitlines() == ["restart k3s"] * 2


def test_only_the_enabled_unit_of_rke2_is_restarted(tmp_path: Path, serve: Serve) -> None:
    host = prepare(tmp_path / "host", Board.SPARK, Distribution.RKE2)
    install_toolkit(host)
    calls = serve(host, Distribution.RKE2)
    config = host.path("/var/lib/rancher/rke2/agent/etc/containerd/config.toml")
    host.program("systemctl", f'echo "$@" >> {calls}\necho \'[x.runtimes."nvidia"]\' >> {config}')
    run = host.run("configure", desired=desired(Board.SPARK))
    assert (run.code, run.answer["restarted"]) == (0, ["rke2-agent"])


def test_a_runtime_that_never_answers_is_told_within_the_time(k3s: HostRoot) -> None:
    k3s.program("systemctl", "exit 0")
    run = k3s.run("configure", desired=desired(Board.JETPACK_6, restart={"timeout_seconds": 1}))
    assert run.code == 1
    assert "nobody answers on /run/k3s/containerd/containerd.sock" in run.answer["error"]["message"]
    assert "journalctl -u k3s" in run.answer["error"]["remedy"]


def test_a_stopped_run_says_so_and_leaves_no_candidates(k3s: HostRoot, tmp_path: Path) -> None:
    started = tmp_path / "started"
    candidates = tmp_path / "candidates"
    candidates.mkdir()
    k3s.program("systemctl", f"touch {started}; exec sleep 600")
    k3s.real("sleep", Path(shutil.which("sleep") or "/bin/sleep"))
    k3s.real("touch", Path(shutil.which("touch") or "/bin/touch"))
    process = subprocess.Popen(
        [sys.executable, "-m", "agents.host", "configure", "--root", str(k3s.folder)],
        env={**k3s.environment(), "TMPDIR": str(candidates)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin
    process.stdin.write(json.dumps(desired(Board.JETPACK_6)).encode())
    process.stdin.close()
    eventually(started.exists)
    process.send_signal(signal.SIGTERM)
    assert process.stdout
    answer = json.loads(process.stdout.read())
    process.stdout.close()
    assert process.wait(timeout=60) == 1
    assert answer["error"]["message"] == "Stopped by SIGTERM."
    assert list(candidates.iterdir()) == []
    assert k3s.run("check", desired=desired(Board.JETPACK_6)).code == 3


def test_a_document_that_never_ends_does_not_hold_the_host(k3s: HostRoot) -> None:
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "agents.host", "check", "--timeout", "1", "--root", str(k3s.folder)],
        env=k3s.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.wait(timeout=60) == 2
    assert time.monotonic() - began >= 1
    for stream in (process.stdin, process.stdout):
        assert stream
        stream.close()
