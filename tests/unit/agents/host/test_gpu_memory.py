"""Where the memory of a GPU comes from: NVML, CUDA, the kernel; mocks of the driver's libraries are real libraries."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from agents.host import commands
from agents.host.commands import Deadline, Tools
from agents.host.errors import HostError
from agents.host.root import Root
from components.hosts.answer import read_probe
from tests.support.hosts.roots import CUDA, NVML, Board, HostRoot, mock_library, needs_compiler, prepare, probed

pytestmark = needs_compiler

_TEGRA = "/usr/lib/aarch64-linux-gnu/tegra"
_NVIDIA = "/usr/lib/aarch64-linux-gnu/nvidia"
_X86 = "/usr/lib/x86_64-linux-gnu"
_MIB = 1024 * 1024
_UUID = "01010101-0101-0101-0101-010101010101"


@pytest.fixture(scope="session")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mock_library(tmp_path_factory.mktemp("cuda"), CUDA)


@pytest.fixture(scope="session")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mock_library(tmp_path_factory.mktemp("nvml"), NVML)


@pytest.fixture
def orin(cuda: Path, nvml: Path, tmp_path: Path) -> HostRoot:
    """A JetPack 6 board: NVML that knows no memory, and CUDA in another folder."""
    host = prepare(tmp_path / "orin", Board.JETPACK_6)
    host.write(f"{_NVIDIA}/{NVML}", nvml.read_bytes(), 0o755)
    host.write(f"{_TEGRA}/{CUDA}", cuda.read_bytes(), 0o755)
    return host


def _memory(probe: dict[str, Any]) -> list[tuple[int | None, str | None]]:
    return [(gpu["memory_mib"], gpu["memory_source"]) for gpu in probe["gpus"]]


def test_on_unified_memory_cuda_tells_what_nvml_does_not(orin: HostRoot) -> None:
    probe = probed(orin, MOCK_CUDA_MEMORY=str(61000 * _MIB))
    assert (probe["nvml"], probe["cuda"]) == ({"ok": True, "reason": None}, {"ok": True, "reason": None})
    assert _memory(probe) == [(61000, "cuda")]
    assert probe["gpus"][0]["memory_reasons"] == [
        "NVML does not tell it: Not Supported (NVML error 3)",
        "CUDA tells 61000 MiB",
        "the GPU shares the machine's memory, whose MemTotal is 62841 MiB",
    ]


@pytest.mark.parametrize("source", ["MOCK_CUDA_MEMORY", "MOCK_NVML_MEMORY"])
def test_no_source_gives_unified_memory_more_than_the_machine_has(source: str, orin: HostRoot) -> None:
    probe = probed(orin, **{source: str(65536 * _MIB)})
    assert _memory(probe) == [(62841, "meminfo")]
    assert any("tells 65536 MiB" in reason for reason in probe["gpus"][0]["memory_reasons"])


def test_nvmls_memory_comes_first_and_cuda_is_then_not_asked(orin: HostRoot) -> None:
    probe = probed(orin, MOCK_NVML_MEMORY=str(60000 * _MIB), MOCK_CUDA_CRASH="1")
    assert _memory(probe) == [(60000, "nvml")]
    assert probe["cuda"] == {"ok": False, "reason": "not asked, since NVML tells the memory of every GPU"}


def test_jetpack_5_without_nvml_has_cudas_memory(cuda: Path, tmp_path: Path) -> None:
    host = prepare(tmp_path / "xavier", Board.JETPACK_5)
    host.write(f"{_TEGRA}/{CUDA}", cuda.read_bytes(), 0o755)
    probe = probed(host, MOCK_CUDA_MEMORY=str(29000 * _MIB), MOCK_CUDA_NAME="Xavier")
    assert _memory(probe) == [(29000, "cuda")]
    assert (probe["gpus"][0]["name"], probe["gpus"][0]["uuid"]) == ("Xavier", f"GPU-{_UUID}")


@pytest.mark.parametrize(
    ("setting", "function"),
    [
        ("MOCK_CUDA_INIT", "cuInit"),
        ("MOCK_CUDA_LIST", "cuDeviceGetCount"),
        ("MOCK_CUDA_DEVICE", "cuDeviceGet"),
        ("MOCK_CUDA_NAMELESS", "cuDeviceGetName"),
    ],
)
@pytest.mark.parametrize("code", [3, 34, 100, 803, 999])
def test_each_failure_of_cuda_is_told_with_its_number_and_the_kernels_memory_is_taken(
    setting: str, function: str, code: int, orin: HostRoot
) -> None:
    probe = probed(orin, **{setting: str(code)})
    assert probe["cuda"] == {
        "ok": False,
        "reason": f"{function} fails: AS_THE_MOCK_WAS_TOLD (CUDA error {code})",
    }
    assert _memory(probe) == [(62841, "meminfo")]
    assert probe["gpus"][0]["name"] == "Orin (nvgpu)"


def test_a_gpu_whose_memory_alone_is_not_told_has_the_kernels(orin: HostRoot) -> None:
    probe = probed(orin, MOCK_CUDA_NO_MEMORY="801")
    assert probe["cuda"]["ok"] is True
    assert _memory(probe) == [(62841, "meminfo")]
    reason = "CUDA does not tell it: cuDeviceTotalMem_v2 fails: AS_THE_MOCK_WAS_TOLD (CUDA error 801)"
    assert probe["gpus"][0]["memory_reasons"][1] == reason


def test_a_library_without_a_function_is_told(orin: HostRoot) -> None:
    mock_library(orin.path(_TEGRA), CUDA, "WITHOUT_UUID", "WITHOUT_MEMORY")
    probe = probed(orin)
    assert _memory(probe) == [(62841, "meminfo")]
    assert "CUDA does not tell it: CUDA's library has no cuDeviceTotalMem_v2" in probe["gpus"][0]["memory_reasons"]


def test_a_missing_library_and_one_for_another_architecture_are_told(orin: HostRoot) -> None:
    orin.write(f"{_TEGRA}/{CUDA}", b"\x7fELF" + bytes(200), 0o755)
    probe = probed(orin)
    assert probe["cuda"]["reason"].startswith("CUDA's library can't be loaded: ")
    assert _memory(probe) == [(62841, "meminfo")]
    orin.path(f"{_TEGRA}/{CUDA}").unlink()
    missing = probed(orin)
    assert missing["cuda"]["reason"].startswith(f"{CUDA} is in none of {_NVIDIA}, {_TEGRA}, ")
    assert _memory(missing) == [(62841, "meminfo")]


def test_a_library_that_crashes_or_hangs_does_not_take_the_probe_with_it(orin: HostRoot) -> None:
    crashed = probed(orin, MOCK_CUDA_CRASH="1")
    assert crashed["cuda"]["reason"] == "CUDA's library crashed with SIGSEGV"
    assert _memory(crashed) == [(62841, "meminfo")]
    hung = orin.run("probe", "--timeout", "5", environment={"MOCK_CUDA_HANG": "1"})
    assert hung.code == 0
    assert hung.answer["cuda"]["reason"] == "CUDA's library does not answer: it hangs"
    assert _memory(hung.answer) == [(62841, "meminfo")]
    assert hung.answer["nvml"]["ok"] is True


def test_a_driver_that_hangs_is_asked_once(orin: HostRoot) -> None:
    hung = orin.run("probe", "--timeout", "5", environment={"MOCK_NVML_HANG": "1"})
    assert hung.answer["cuda"]["reason"] == "not asked, since the driver does not answer NVML either"
    assert _memory(hung.answer) == [(62841, "meminfo")]


def test_what_the_environment_hides_from_cuda_is_counted(orin: HostRoot) -> None:
    assert _memory(probed(orin, CUDA_VISIBLE_DEVICES="", MOCK_CUDA_MEMORY=str(61000 * _MIB))) == [(61000, "cuda")]


def test_discrete_gpus_without_nvml_have_cudas_memory_each_its_own(cuda: Path, tmp_path: Path) -> None:
    host = prepare(tmp_path / "host", Board.X86)
    host.write(f"{_X86}/{CUDA}", cuda.read_bytes(), 0o755)
    for bus, last in (("01", "02"), ("02", "01")):
        information = f"/proc/driver/nvidia/gpus/0000:{bus}:00.0/information"
        host.write(information, f"Model: \t NVIDIA L4\nGPU UUID: \t GPU-{_UUID[:-2]}{last}\n")
    probe = probed(host, MOCK_CUDA_COUNT="2", MOCK_CUDA_MEMORY=str(10240 * _MIB))
    assert [(gpu["uuid"][-2:], gpu["memory_mib"], gpu["memory_source"]) for gpu in probe["gpus"]] == [
        ("02", 11264, "cuda"),
        ("01", 10240, "cuda"),
    ]


def test_a_discrete_gpu_that_cuda_does_not_know_has_no_memory(cuda: Path, tmp_path: Path) -> None:
    host = prepare(tmp_path / "host", Board.X86)
    host.write(f"{_X86}/{CUDA}", cuda.read_bytes(), 0o755)
    probe = probed(host, MOCK_CUDA_COUNT="2")
    assert _memory(probe) == [(None, None)]
    assert "CUDA does not tell it: it lists no GPU with this UUID" in probe["gpus"][0]["memory_reasons"]


def test_gpus_that_cuda_alone_lists_are_told(cuda: Path, tmp_path: Path) -> None:
    host = prepare(tmp_path / "host", Board.X86)
    host.path("/proc/driver/nvidia/gpus/0000:01:00.0/information").unlink()
    host.write(f"{_X86}/{CUDA}", cuda.read_bytes(), 0o755)
    probe = probed(host, MOCK_CUDA_NAME="NVIDIA L4", MOCK_CUDA_MEMORY=str(23034 * _MIB), MOCK_CUDA_UUID="0")
    assert [(gpu["name"], gpu["uuid"], gpu["memory_mib"]) for gpu in probe["gpus"]] == [("NVIDIA L4", None, 23034)]


@pytest.mark.parametrize("board", Board)
def test_every_boards_answer_is_one_that_the_program_reads(board: Board, cuda: Path, tmp_path: Path) -> None:
    host = prepare(tmp_path / "host", board)
    host.write(f"{_TEGRA}/{CUDA}", cuda.read_bytes(), 0o755)
    host.write(f"{_X86}/{CUDA}", cuda.read_bytes(), 0o755)
    assert read_probe("host-1", json.dumps(probed(host))).platform.kind == board.platform


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_a_program_that_can_not_be_killed_is_left_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As one in a call of a driver that never returns: there it takes a kill only once the call ends."""
    kill = os.killpg
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "killpg", lambda group, number: killed.append((group, number)))
    monkeypatch.setattr(commands, "_DYING_SECONDS", 0.1)
    tools = Tools(Root(str(tmp_path)), Deadline(60))
    try:
        with pytest.raises(HostError, match="timed out after"):
            tools.run(["/bin/sleep", "600"], seconds=0.1)
        [(group, number)] = killed
        assert number == signal.SIGKILL
    finally:
        for group, _ in killed:
            kill(group, signal.SIGKILL)
