"""What `examine` says of hosts with and without a fault, from prepared roots."""

import json
import re
import time
from pathlib import Path

import pytest

from config.cluster import Distribution
from operations.doctor.hosts.answer import Examination, HostLookError, Injection, read_examination
from tests.support.full_disk import room_for
from tests.support.hosts.roots import Board, HostRoot, prepare

_PASSWORD = "registry-password"
_NVIDIA = (
    "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]\nruntime_type = \"io.containerd.runc.v2\"\n"
)
_CRI = "plugins.'io.containerd.cri.v1.runtime'.containerd"


def _examined(host: HostRoot) -> Examination:
    before = host.snapshot()
    run = host.run("examine")
    assert run.code == 0, run.errors
    assert host.snapshot() == before, "an examination changes nothing"
    assert not list((host.folder.parent / "candidates").iterdir())
    return read_examination(json.dumps(run.answer))


@pytest.mark.parametrize("board", Board)
@pytest.mark.parametrize("distribution", Distribution)
def test_every_host_can_be_examined(board: Board, distribution: Distribution, tmp_path: Path) -> None:
    examination = _examined(prepare(tmp_path / "host", board, distribution))
    assert examination.containerd is not None
    assert examination.containerd.unseen, "without its program, nobody knows what containerd makes of its files"
    assert examination.probe.kubernetes.distribution == distribution.value


_CSV, _CDI = "/etc/nvidia-container-runtime/host-files-for-container.d/drivers.csv", "/var/run/cdi/nvidia.yaml"


def test_what_the_toolkit_injects_from_is_told_by_its_hash_alone(tmp_path: Path) -> None:
    host = prepare(tmp_path / "host", Board.X86)
    assert _examined(host).injection == Injection(l4t=None, csv_digest=None, cdi_digest=None)
    seen = []
    for path, text in ((_CSV, "lib, /a"), (_CSV, "lib, /b"), (_CDI, "kind: nvidia.com/gpu"), (f"{_CDI}2", "")):
        host.write(path, text)
        seen.append(_examined(host).injection)
    assert all((examination.csv_digest or "").startswith("sha256:") for examination in seen)
    assert len({examination.csv_digest for examination in seen}) == 2, (
        "another content is another hash, another folder is none"
    )
    assert [examination.cdi_digest is None for examination in seen] == [True, True, False, False]
    assert seen[2].cdi_digest != seen[3].cdi_digest, "an empty file counts too"


def test_a_jetson_names_its_l4t_release(tmp_path: Path) -> None:
    injection = _examined(prepare(tmp_path / "host", Board.JETPACK_6)).injection
    assert re.fullmatch(r"R36\.[\d.]+", injection.l4t or "")


def test_a_machine_without_kubernetes_has_no_containerd_to_judge(tmp_path: Path) -> None:
    assert _examined(prepare(tmp_path / "host", Board.X86)).containerd is None


def test_what_containerd_makes_of_its_files_is_told_by_names_alone(tmp_path: Path) -> None:
    host = prepare(tmp_path / "host", Board.X86, Distribution.KUBEADM)
    main = f'version = 3\nimports = ["/etc/containerd/conf.d/*.toml"]\n# {_PASSWORD}\n'
    host.write("/etc/containerd/config.toml", main)
    host.write("/etc/containerd/conf.d/99-nvidia.toml", f"version = 3\n{_NVIDIA}")
    dumped = (
        f"[{_CRI}]\ndefault_runtime_name = 'runc'\n[{_CRI}.runtimes.runc]\nruntime_type = 'x'\n"
        f"[{_CRI}.runtimes.runc.options]\nSystemdCgroup = true\n[{_CRI}.runtimes.nvidia.options]\n"
        f"BinaryName = '/usr/bin/nvidia-container-runtime'\n[plugins.registry]\nauth = '{_PASSWORD}'\n"
    )
    host.write("/dumped.toml", dumped)
    command = f'while IFS= read -r line; do echo "$line"; done < {host.path("/dumped.toml")}'
    host.program("containerd", f'if [ "$1" = --version ]; then echo "containerd v2.1.4"; else {command}; fi')
    containerd = _examined(host).containerd
    assert containerd is not None
    assert containerd.merged is not None
    assert (containerd.version, containerd.file_version, containerd.merged.default_runtime) == ("2.1.4", 3, "runc")
    assert containerd.merged.runtimes == ["nvidia", "runc"]
    assert containerd.merged.systemd_cgroup == {"runc": True, "nvidia": False}
    assert [(drop_in.imported, drop_in.nvidia, drop_in.version) for drop_in in containerd.drop_ins] == [(True, True, 3)]
    assert _PASSWORD not in containerd.model_dump_json()
    assert containerd.merged.lacks_program
    host.write("/usr/bin/nvidia-container-runtime", "", 0o755)
    with_program = _examined(host).containerd
    assert with_program is not None
    assert with_program.merged is not None
    assert not with_program.merged.lacks_program


@pytest.mark.parametrize("room", [0, 64], ids=["none", "for-no-candidate"])
def test_on_a_full_disk_nobody_says_that_containerd_refuses_its_files(room: int, tmp_path: Path) -> None:
    host = prepare(tmp_path / "host", Board.X86, Distribution.KUBEADM)
    host.write("/etc/containerd/config.toml", f"version = 3\n# {'long ' * 20}\n")
    host.program("containerd", "echo 'containerd v2.1.4'")
    with room_for(room):
        # A compiled module of which a part alone has room would be taken for the whole later.
        run = host.run("examine", environment={"PYTHONDONTWRITEBYTECODE": "1"})
    assert run.code == 0, run.errors
    containerd = read_examination(json.dumps(run.answer)).containerd
    assert containerd is not None
    assert containerd.refused is None
    assert "can't be tried in a temporary folder" in (containerd.unseen or "")
    assert not list((host.folder.parent / "candidates").iterdir())


def test_a_containerd_that_refuses_its_files_is_quoted(tmp_path: Path) -> None:
    host = prepare(tmp_path / "host", Board.X86, Distribution.KUBEADM)
    host.program("containerd", 'echo "toml: table runc already exists" >&2; exit 1')
    containerd = _examined(host).containerd
    assert containerd is not None
    assert "table runc already exists" in (containerd.refused or "")


def test_a_file_that_is_not_imported_and_another_containerd_are_seen(tmp_path: Path) -> None:
    host = prepare(tmp_path / "host", Board.JETPACK_6, Distribution.K8S_SNAP)
    host.write("/etc/containerd/config.toml", f"version = 3\n{_NVIDIA}")
    host.write("/var/lib/k8s-base/etc/containerd/config.toml", "version = 2\n", 0o600)
    host.write("/var/lib/k8s-base/etc/containerd/conf.d/99-nvidia.toml", f"version = 2\n{_NVIDIA}")
    containerd = _examined(host).containerd
    assert containerd is not None
    assert [drop_in.imported for drop_in in containerd.drop_ins] == [False]
    assert containerd.elsewhere == ["/etc/containerd/config.toml"]


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("", "empty"),
        ("{", "invalid"),
        ("[]", "invalid"),
        ('{"debug": true}', "valid"),
        # Docker takes a byte order mark, and so does the step that configures it.
        ('\ufeff{"debug": true}', "valid"),
    ],
)
def test_dockers_file_is_judged_and_not_told(text: str, state: str, tmp_path: Path) -> None:
    host = prepare(tmp_path / "host", Board.X86)
    host.write("/etc/docker/daemon.json", text)
    docker = _examined(host).docker
    assert docker is not None
    assert docker.state == state


def test_entries_of_a_jetsons_lists_that_lead_nowhere_are_named(tmp_path: Path) -> None:
    host = prepare(tmp_path / "host", Board.JETPACK_6)
    folder = "/etc/nvidia-container-runtime/host-files-for-container.d"
    host.write(f"{folder}/devices.csv", "dev, /dev/nvmap\ndev, /dev/gone\nsym, /any/link\nlib, /usr/lib/lost.so\n")
    # To the toolkit, as to all programs in Go, two asterisks are one.
    host.write(f"{folder}/site.csv", "dev, /dev/nv**ap\ndir, /\n")
    csv = _examined(host).csv
    assert csv.missing == ["/dev/gone", "/usr/lib/lost.so"]
    assert f"{folder}/devices.csv" in csv.files


def test_swap_and_the_validators_notes_are_read(tmp_path: Path) -> None:
    host = prepare(tmp_path / "host", Board.SPARK)
    assert (_examined(host).swap_mib, _examined(host).validations) == (0, None)
    host.write("/proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n/swap.img partition 8388604 0 -2\n")
    host.path("/run/nvidia/validations").mkdir(parents=True)
    examination = _examined(host)
    assert (examination.swap_mib, examination.validations) == (8191, [])


def test_the_hosts_clock_is_told(tmp_path: Path) -> None:
    before = int(time.time())
    assert before <= _examined(prepare(tmp_path / "host", Board.JETPACK_6)).clock <= time.time()


def test_an_agents_error_is_what_it_says_and_noise_is_the_shells() -> None:
    with pytest.raises(HostLookError, match=r"Python 3\.6 is too old\. Install another\."):
        read_examination('{"error": {"message": "Python 3.6 is too old.", "remedy": "Install another."}}')
    with pytest.raises(HostLookError, match="must be silent"):
        read_examination("Welcome to this machine")
