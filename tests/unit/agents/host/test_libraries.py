"""Where the driver's libraries are, on each release of L4T: sizes and links count, names do not."""

import json
from pathlib import Path
from typing import Any

import pytest

from agents.host.look import board, libraries
from agents.host.look.libraries import Libraries
from agents.host.root import Root
from components.hosts.answer import read_probe
from tests.support.hosts.jetpack import (
    CHOSEN,
    CSV,
    LIBRARY,
    LOADER,
    NVIDIA,
    TRIPLET,
    VARIANTS,
    L4t,
    jetson,
    link,
)
from tests.support.hosts.roots import CUDA, NVML, Board, HostRoot, prepare

_R39 = [L4t.R39_NVGPU, L4t.R39_OPENRM]


def _libraries_of(host: HostRoot, *asked: str) -> Libraries:
    root = Root(str(host.folder))
    return libraries.find(root, board.detect(root), asked)


@pytest.mark.parametrize("release", L4t)
def test_nvml_is_a_plain_file_in_one_folder_on_every_release(release: L4t, tmp_path: Path) -> None:
    libraries = _libraries_of(jetson(tmp_path / "host", release))
    assert libraries.folder_of(NVML) == NVIDIA, "the loader's file names a link to it"
    [place] = libraries.nvml
    assert (place.real, place.bytes, place.state) == (f"{NVIDIA}/{NVML}", len(LIBRARY), "library")
    assert libraries.findings == ()


@pytest.mark.parametrize("release", L4t)
def test_cuda_is_in_the_folder_of_the_driver_that_the_boards_start_chose(release: L4t, tmp_path: Path) -> None:
    libraries = _libraries_of(jetson(tmp_path / "host", release))
    first = next(place for place in libraries.cuda if place.state == "library")
    assert first.real == f"{release.cuda_folder}/libcuda.so.1.1"
    other = {"nvgpu": "openrm", "openrm": "nvgpu"}.get(release.variant or "", "any")
    assert not [folder.path for folder in libraries.folders if folder.path == f"{VARIANTS}/{other}"]
    assert {place.real for place in libraries.cuda} == {first.real}, "the triplet's link leads to the same file"


@pytest.mark.parametrize("release", _R39)
@pytest.mark.parametrize("kept", ["loader", "start", "links", "csv"])
def test_each_of_the_boards_own_files_alone_tells_cudas_folder(release: L4t, kept: str, tmp_path: Path) -> None:
    host = jetson(tmp_path / "host", release)
    files = {"loader": [LOADER], "start": [CHOSEN], "csv": [f"{CSV}/l4t.csv"]}
    files["links"] = [f"{TRIPLET}/libcuda.so.1", f"{TRIPLET}/libcuda.so"]
    for name, paths in files.items():
        for path in paths if name != kept else []:
            host.path(path).unlink()
    libraries = _libraries_of(host)
    assert {place.real for place in libraries.cuda} == {f"{release.cuda_folder}/libcuda.so.1.1"}
    assert libraries.findings == ()


def test_the_files_that_name_a_folder_are_told(tmp_path: Path) -> None:
    folder = L4t.R39_OPENRM.cuda_folder
    [chosen] = [
        entry for entry in _libraries_of(jetson(tmp_path / "host", L4t.R39_OPENRM)).folders if entry.path == folder
    ]
    assert chosen.named_by == (LOADER, CHOSEN, f"{CSV}/l4t.csv")


def test_a_file_without_a_byte_is_a_finding_and_the_library_is_found_behind_it(tmp_path: Path) -> None:
    host = jetson(tmp_path / "host", L4t.R39_NVGPU)
    host.path(LOADER).unlink()
    host.path("/etc/ld.so.conf.d/aarch64-linux-gnu.conf").unlink()
    host.path(CHOSEN).unlink()
    host.write(f"{NVIDIA}/libcuda.so.1", b"")
    libraries = _libraries_of(host)
    assert libraries.cuda[0].state == "stub"
    assert libraries.folder_of(CUDA) == TRIPLET
    assert any("libcuda.so.1 has 0 bytes and is no library" in text for text in libraries.findings)


@pytest.mark.parametrize("content", [b"", b"\x7fEL", b"/* GNU ld script */\n" * 100])
def test_what_is_no_library_is_none_whatever_its_name(content: bytes, tmp_path: Path) -> None:
    host = jetson(tmp_path / "host", L4t.R36)
    host.write(f"{NVIDIA}/{NVML}", content)
    libraries = _libraries_of(host)
    assert libraries.folder_of(NVML) is None
    assert f"has {len(content)} bytes and is no library" in libraries.where(NVML)
    assert len(libraries.findings) == 1


def test_links_to_a_driver_that_is_not_installed_are_findings(tmp_path: Path) -> None:
    host = jetson(tmp_path / "host", L4t.R39_NVGPU)
    for file in host.path(f"{VARIANTS}/nvgpu").iterdir():
        file.unlink()
    host.path(f"{VARIANTS}/nvgpu").rmdir()
    libraries = _libraries_of(host)
    gone = f"{VARIANTS}/nvgpu"
    assert libraries.folder_of(CUDA) is None, "the other driver's library is not this board's"
    assert f"{TRIPLET}/{CUDA} is a link to {gone}/libcuda.so.1.1, which is not there" in libraries.findings
    assert f"{gone} is not there; it is named by {LOADER}, {CHOSEN}, {CSV}/l4t.csv" in libraries.findings
    assert f"{CSV}/l4t.csv gives containers {gone}/libcuda.so.1.1, which is not there" in libraries.findings
    assert libraries.folder_of(NVML) is not None


def test_a_link_in_a_circle_is_a_finding_and_not_followed_for_ever(tmp_path: Path) -> None:
    host = jetson(tmp_path / "host", L4t.R36)
    link(host, f"{NVIDIA}/{NVML}", f"{TRIPLET}/{NVML}")
    link(host, f"{TRIPLET}/{NVML}", f"{NVIDIA}/{NVML}")
    libraries = _libraries_of(host)
    assert {place.state for place in libraries.nvml} == {"dangling"}
    assert libraries.folder_of(NVML) is None


def test_a_folder_in_a_librarys_place_is_no_library(tmp_path: Path) -> None:
    host = jetson(tmp_path / "host", L4t.R36)
    host.path(f"{NVIDIA}/{NVML}").unlink()
    host.path(f"{NVIDIA}/{NVML}").mkdir()
    assert _libraries_of(host).folder_of(NVML) is None


def test_two_files_that_name_different_drivers_are_a_finding(tmp_path: Path) -> None:
    host = jetson(tmp_path / "host", L4t.R39_OPENRM)
    host.write(CHOSEN, "nvgpu-l4t\n")
    [finding] = _libraries_of(host).findings
    assert finding.startswith("the host's files name more than one driver: ")
    assert f"{VARIANTS}/nvgpu by {CHOSEN}" in finding


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/etc/cdi/nvidia.yaml", "containerEdits:\n  mounts:\n  - hostPath: /opt/vendor/libcuda.so.1.1\n"),
        ("/var/run/cdi/nvidia.json", '{"mounts": [{"hostPath": "/opt/vendor/libcuda.so.1.1"}]}'),
    ],
)
def test_a_cdi_specification_that_names_a_missing_library_is_a_finding(path: str, text: str, tmp_path: Path) -> None:
    host = jetson(tmp_path / "host", L4t.R36)
    host.write(path, text)
    assert _libraries_of(host).findings == (f"{path} gives containers /opt/vendor/libcuda.so.1.1, which is not there",)
    host.write("/opt/vendor/libcuda.so.1.1", LIBRARY)
    libraries = _libraries_of(host)
    assert libraries.findings == ()
    assert "/opt/vendor" in [folder.path for folder in libraries.folders]


def test_files_of_the_loader_that_name_no_folder_are_survived(tmp_path: Path) -> None:
    host = jetson(tmp_path / "host", L4t.R36)
    host.write("/etc/ld.so.conf.d/a.conf", "# a comment\ninclude /etc/other/*.conf\nrelative/lib\n\n/usr/lib/gone\n")
    host.write("/etc/ld.so.conf.d/b.conf", b"\xff\xfe\n")
    libraries = _libraries_of(host)
    assert libraries.folder_of(NVML) is not None
    assert "/usr/lib/gone" in [folder.path for folder in libraries.folders]
    assert not [folder.path for folder in libraries.folders if "other" in folder.path or "relative" in folder.path]
    assert libraries.findings == (), "the loader skips folders that are not there, too"


def test_a_folder_that_is_asked_for_is_looked_into_last(tmp_path: Path) -> None:
    host = jetson(tmp_path / "host", L4t.R36)
    host.write(f"/opt/own/{NVML}", LIBRARY)
    libraries = _libraries_of(host, "/opt/own", "/opt/none")
    assert [place.folder for place in libraries.nvml][-1] == "/opt/own"
    assert {folder.path: folder.real for folder in libraries.folders}["/opt/none"] is None
    assert "/opt/own" not in [folder.path for folder in _libraries_of(host).folders]


def test_a_machine_that_is_no_jetson_is_not_asked_for_its_loaders_folders(tmp_path: Path) -> None:
    host = prepare(tmp_path / "host", Board.X86)
    host.write("/etc/ld.so.conf.d/cuda.conf", "/usr/local/cuda/compat\n")
    host.write(f"/usr/local/cuda/compat/{CUDA}", LIBRARY)
    host.write(f"/usr/lib/x86_64-linux-gnu/{CUDA}", b"")
    libraries = _libraries_of(host)
    assert libraries.folder_of(CUDA) is None
    assert [folder.path for folder in libraries.folders] == [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib64",
        "/usr/lib/wsl/lib",
    ]
    assert len(libraries.findings) == 1


@pytest.mark.parametrize("release", L4t)
def test_the_probe_says_it_as_the_program_reads_it(release: L4t, tmp_path: Path) -> None:
    run = jetson(tmp_path / "host", release).run("probe", "--libraries", "/opt/own")
    assert run.code == 0
    answer: dict[str, Any] = run.answer
    assert answer["driver"]["reasons"][-1] == f"{NVML} is in {NVIDIA}"
    read = read_probe("jetson-1", json.dumps(answer)).libraries
    assert read is not None
    assert [folder.path for folder in read.folders][-1] == "/opt/own"
    assert [place.real for place in read.nvml] == [f"{NVIDIA}/{NVML}"]
