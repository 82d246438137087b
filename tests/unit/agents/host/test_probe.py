"""What `probe` says of each kind of host, from prepared roots and a real shared library in NVML's place."""

import shutil
import signal
from pathlib import Path

import pytest

from config.cluster import Distribution
from tests.support.hosts.answers import NVML_FAILURES, no_nvml
from tests.support.hosts.roots import (
    NVML,
    Board,
    HostRoot,
    install_toolkit,
    mock_library,
    needs_compiler,
    prepare,
    probed,
)

_FOLDERS = {Board.SPARK: "/usr/lib/aarch64-linux-gnu", Board.X86: "/usr/lib/x86_64-linux-gnu"}
_TEGRA_FOLDER = "/usr/lib/aarch64-linux-gnu/nvidia"


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mock_library(tmp_path_factory.mktemp("nvml"), NVML)


@pytest.fixture
def orin(tmp_path: Path, library: Path) -> HostRoot:
    """A JetPack 6 board with the mock in Tegra's own folder, which no loader knows."""
    return _with_library(prepare(tmp_path / "orin", Board.JETPACK_6, Distribution.K3S), Board.JETPACK_6, library)


def _with_library(host: HostRoot, board: Board, library: Path) -> HostRoot:
    host.write(f"{_FOLDERS.get(board, _TEGRA_FOLDER)}/{library.name}", library.read_bytes(), 0o755)
    return host


@pytest.mark.parametrize(
    ("board", "kind", "generation", "jetpack", "architecture"),
    [
        (Board.JETPACK_5, "tegra", "xavier", "5", "aarch64"),
        (Board.JETPACK_6, "tegra", "orin", "6", "aarch64"),
        (Board.JETPACK_7, "tegra", "thor", "7", "aarch64"),
        (Board.SPARK, "spark", None, None, "aarch64"),
        (Board.X86, "x86", None, None, "x86_64"),
    ],
)
def test_each_board_is_recognised_with_reasons(  # noqa: PLR0913, PLR0917 - a table
    board: Board, kind: str, generation: str | None, jetpack: str | None, architecture: str, tmp_path: Path
) -> None:
    probe = probed(prepare(tmp_path / "host", board))
    platform = probe["platform"]
    assert (platform["kind"], platform["generation"], platform["jetpack"]) == (kind, generation, jetpack)
    assert probe["architecture"] == architecture
    assert platform["reasons"]
    assert probe["kubernetes"]["distribution"] == "none"


def test_a_host_without_anything_is_answered_too(tmp_path: Path) -> None:
    (tmp_path / "root" / "proc" / "sys" / "kernel").mkdir(parents=True)
    (tmp_path / "programs").mkdir()
    probe = probed(HostRoot(tmp_path / "root", tmp_path / "programs"))
    assert probe["platform"]["kind"] == "none"
    assert probe["platform"]["reasons"] == ["no sign of an NVIDIA GPU"]
    assert (probe["gpus"], probe["devices"], probe["runtimes"]) == ([], [], [])
    assert probe["memory"] == {"total_mib": 0}
    assert probe["toolkit"] == {
        "version": None,
        "mode": None,
        "config": None,
        "reasons": ["nvidia-ctk is not found", "/etc/nvidia-container-runtime/config.toml does not exist"],
    }


def test_a_file_that_is_no_text_and_a_folder_in_its_place_are_survived(tmp_path: Path) -> None:
    host = prepare(tmp_path / "host", Board.X86)
    host.write("/proc/driver/nvidia/version", b"\xff\xfe\x00NVRM")
    host.path("/proc/meminfo").unlink()
    host.path("/proc/meminfo").mkdir()
    probe = probed(host)
    assert probe["driver"]["version"] is None
    assert probe["memory"]["total_mib"] == 0


def test_tegra_is_seen_from_the_device_tree_alone_and_from_the_release_file_alone(tmp_path: Path) -> None:
    hidden = prepare(tmp_path / "one", Board.JETPACK_6)
    hidden.path("/etc/nv_tegra_release").unlink()
    assert probed(hidden)["platform"]["generation"] == "orin"
    other = prepare(tmp_path / "two", Board.JETPACK_7)
    shutil.rmtree(other.path("/proc/device-tree"))
    shutil.rmtree(other.path("/sys/devices"))
    assert probed(other)["platform"]["kind"] == "tegra"


def test_an_rtx_on_x86_is_no_spark_and_wsl_is_no_target(tmp_path: Path) -> None:
    host = prepare(tmp_path / "host", Board.X86)
    assert probed(host)["platform"]["kind"] == "x86"
    host.write("/proc/sys/kernel/osrelease", "5.15.90.1-microsoft-standard-WSL2\n")
    assert probed(host)["platform"]["kind"] == "none"


def test_without_nvml_the_driver_still_lists_the_gpu_but_not_its_memory(tmp_path: Path) -> None:
    probe = probed(prepare(tmp_path / "host", Board.X86))
    assert probe["nvml"]["ok"] is False
    [gpu] = probe["gpus"]
    assert gpu["uuid"] == "GPU-11111111-2222-3333-4444-555555555555"
    assert gpu["name"] == "NVIDIA RTX A6000"
    assert (gpu["memory_mib"], gpu["memory_source"]) == (None, None)
    assert [reason.split(":")[0] for reason in gpu["memory_reasons"]] == [
        "NVML does not tell it",
        "CUDA does not tell it",
    ]
    assert probe["driver"]["version"] == "570.86.15"


def test_jetpack_5_has_one_gpu_and_no_nvml(tmp_path: Path) -> None:
    probe = probed(prepare(tmp_path / "host", Board.JETPACK_5))
    assert probe["nvml"] == {"ok": False, "reason": "JetPack 5 has no NVML; fractions need JetPack 6 or later"}
    assert probe["driver"]["library_folder"] == "/usr/lib/aarch64-linux-gnu/tegra"
    assert [(gpu["uuid"], gpu["memory_mib"], gpu["memory_source"]) for gpu in probe["gpus"]] == [
        (None, 29995, "meminfo")
    ]


@needs_compiler
def test_nvml_is_loaded_from_the_tegra_folder_and_without_cuda_the_kernel_tells_the_memory(orin: HostRoot) -> None:
    probe = probed(orin)
    assert probe["nvml"] == {"ok": True, "reason": None}
    assert probe["driver"]["library_folder"] == _TEGRA_FOLDER
    assert probe["driver"]["version"] == "540.4.0"
    [gpu] = probe["gpus"]
    assert (gpu["index"], gpu["uuid"], gpu["name"]) == (0, "54c53ba5-2d3b-5e8a-9d9d-7a21d6a0a1b1", "Orin (nvgpu)")
    assert (gpu["memory_mib"], gpu["memory_source"]) == (62841, "meminfo")
    assert gpu["memory_reasons"][0] == "NVML does not tell it: Not Supported (NVML error 3)"
    assert "file too short" in gpu["memory_reasons"][1], "CUDA's library there ends with its first bytes"


@needs_compiler
def test_discrete_gpus_have_nvmls_memory(tmp_path: Path, library: Path) -> None:
    host = _with_library(prepare(tmp_path / "host", Board.X86), Board.X86, library)
    probe = probed(
        host, MOCK_NVML_COUNT="2", MOCK_NVML_NAME="NVIDIA RTX A6000", MOCK_NVML_MEMORY=str(49140 * 1024 * 1024)
    )
    assert [(gpu["index"], gpu["memory_mib"], gpu["memory_source"]) for gpu in probe["gpus"]] == [
        (0, 49140, "nvml"),
        (1, 49140, "nvml"),
    ]
    assert len({gpu["uuid"] for gpu in probe["gpus"]}) == 2


@needs_compiler
def test_a_gb10_of_another_maker_is_a_spark(tmp_path: Path, library: Path) -> None:
    host = _with_library(prepare(tmp_path / "host", Board.SPARK), Board.SPARK, library)
    host.write("/sys/class/dmi/id/product_name", "GX10\n")
    probe = probed(host, MOCK_NVML_NAME="NVIDIA GB10")
    assert probe["platform"]["kind"] == "spark"
    assert probe["gpus"][0]["memory_source"] == "meminfo"
    assert probe["gpus"][0]["memory_mib"] == 124610


@needs_compiler
@pytest.mark.parametrize("code", NVML_FAILURES)
def test_each_failure_of_nvml_is_told_with_its_name_and_number(code: int, orin: HostRoot) -> None:
    probe = probed(orin, MOCK_NVML_INIT=str(code))
    assert probe["nvml"] == no_nvml(code)
    assert probe["gpus"][0]["uuid"] is None


@needs_compiler
def test_without_its_device_file_the_driver_counts_as_not_loaded(orin: HostRoot) -> None:
    device = orin.path("/dev/nvmap")
    assert probed(orin, MOCK_NVML_DEVICE=str(device))["nvml"] == {"ok": True, "reason": None}
    device.unlink()
    assert probed(orin, MOCK_NVML_DEVICE=str(device))["nvml"] == no_nvml(9)


@needs_compiler
def test_a_library_without_nvmls_functions_is_told(orin: HostRoot) -> None:
    mock_library(orin.path(_TEGRA_FOLDER), NVML, "WITHOUT_FUNCTIONS")
    probe = probed(orin)
    assert probe["nvml"] == no_nvml(13)
    assert (probe["gpus"][0]["uuid"], probe["gpus"][0]["memory_source"]) == (None, "meminfo")


@needs_compiler
def test_a_failing_list_of_gpus_is_told(orin: HostRoot) -> None:
    assert "can't list the GPUs" in probed(orin, MOCK_NVML_LIST="15")["nvml"]["reason"]


@needs_compiler
def test_a_gpu_without_a_uuid_is_listed(orin: HostRoot) -> None:
    assert probed(orin, MOCK_NVML_NO_UUID="1")["gpus"][0]["uuid"] is None


@needs_compiler
def test_a_library_that_crashes_or_hangs_does_not_take_the_probe_with_it(orin: HostRoot) -> None:
    assert probed(orin, MOCK_NVML_CRASH="1")["nvml"]["reason"] == "NVML's library crashed with SIGSEGV"
    hung = orin.run("probe", "--timeout", "4", environment={"MOCK_NVML_HANG": "1"})
    assert hung.code == 0
    assert hung.answer["nvml"]["reason"] == "NVML's library does not answer: it hangs"


def test_a_library_for_another_architecture_is_told(tmp_path: Path) -> None:
    host = prepare(tmp_path / "host", Board.JETPACK_6)
    host.write(f"{_TEGRA_FOLDER}/libnvidia-ml.so.1", b"\x7fELF" + bytes(200), 0o755)
    reason = probed(host)["nvml"]["reason"]
    assert reason.startswith("NVML's library can't be loaded: ")
    assert f"{_TEGRA_FOLDER}/libnvidia-ml.so.1" in reason


@needs_compiler
def test_this_machines_nvml_does_not_answer_for_a_prepared_root(tmp_path: Path, library: Path) -> None:
    host = prepare(tmp_path / "host", Board.JETPACK_6)
    host.write(f"{_TEGRA_FOLDER}/libnvidia-ml.so.1", b"\x7fELF" + bytes(200), 0o755)
    probe = probed(host, LD_LIBRARY_PATH=str(library.parent))
    assert probe["nvml"]["ok"] is False
    assert probe["gpus"][0]["uuid"] is None


@pytest.mark.parametrize("distribution", Distribution)
def test_each_distribution_is_recognised_with_its_configuration(distribution: Distribution, tmp_path: Path) -> None:
    probe = probed(prepare(tmp_path / "host", Board.X86, distribution))
    assert probe["kubernetes"]["distribution"] == distribution
    assert probe["kubernetes"]["reasons"]
    versions = {"k3s": "1.33.4+k3s1", "k8s-snap": "1.34.1", "microk8s": "1.32.8", "kubeadm": "1.35.5", "rke2": None}
    assert probe["kubernetes"]["version"] == versions[distribution]
    (runtime,) = probe["runtimes"]
    assert runtime["name"] == "containerd"
    assert (tmp_path / "host" / "root" / runtime["config"].lstrip("/")).is_file()


def test_toolkit_docker_and_devices_are_told(tmp_path: Path) -> None:
    host = prepare(tmp_path / "host", Board.JETPACK_6)
    install_toolkit(host)
    host.program("nvidia-ctk", "echo 'NVIDIA Container Toolkit CLI version 1.16.2'")
    host.program("docker", "echo 'Docker version 27.5.1, build 9f9e405'")
    probe = probed(host)
    assert probe["toolkit"] == {
        "version": "1.16.2",
        "mode": "auto",
        "config": "/etc/nvidia-container-runtime/config.toml",
        "reasons": [
            "nvidia-ctk tells its version",
            "the mode is from /etc/nvidia-container-runtime/config.toml",
        ],
    }
    assert [(runtime["name"], runtime["version"]) for runtime in probe["runtimes"]] == [("docker", "27.5.1")]
    assert probe["devices"] == ["/dev/nvgpu/igpu0/ctrl", "/dev/nvhost-ctrl-gpu", "/dev/nvmap"]


def test_a_program_that_fails_crashes_or_hangs_is_only_missing_in_the_answer(tmp_path: Path) -> None:
    host = prepare(tmp_path / "host", Board.X86, Distribution.KUBEADM)
    host.program("kubelet", "exit 1")
    host.program("docker", f"kill -{int(signal.SIGKILL)} $$")
    host.program("nvidia-ctk", "while :; do :; done")
    run = host.run("probe", "--timeout", "5")
    assert run.code == 0
    assert run.answer["kubernetes"]["version"] is None
    assert run.answer["toolkit"]["version"] is None
