"""The one file: the same bytes for the same source, and what the Python on a host makes of it."""

import ast
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from agents.host_zipapp import build
from testbed.stacks import ROOT
from tests.support.hosts.roots import CUDA, NVML, Board, mock_library, needs_compiler, prepare

_SOURCES = sorted((ROOT / "agents" / "host").rglob("*.py"))


def _python(version: str) -> str | None:
    """An interpreter of a version: one that pyenv keeps, else from PATH."""
    kept = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    return str(kept[-1]) if kept else shutil.which(f"python{version}")


@pytest.fixture(scope="module")
def zipapp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("zipapp") / "kai-host.pyz")


def test_the_same_source_gives_the_same_bytes(zipapp: Path, tmp_path: Path) -> None:
    os.utime(_SOURCES[0])
    assert build(tmp_path / "again.pyz").read_bytes() == zipapp.read_bytes()


def test_it_holds_the_package_pynvml_and_tomlis_sources_and_nothing_else(zipapp: Path) -> None:
    names = set(zipfile.ZipFile(zipapp).namelist())
    package = {source.relative_to(ROOT).as_posix() for source in _SOURCES}
    tomli = {f"tomli/{name}.py" for name in ("__init__", "_parser", "_re", "_types")}
    assert names == {"__main__.py", "pynvml.py", "agents/__init__.py", *tomli, *package}


def test_it_runs_where_nothing_is_installed(zipapp: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(zipapp), "probe", "--root", str(tmp_path)],
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert json.loads(done.stdout)["platform"]["kind"] == "none"


@pytest.mark.parametrize("source", _SOURCES, ids=lambda path: path.stem)
def test_the_source_is_python_3_8(source: Path) -> None:
    tree = ast.parse(source.read_text(encoding="utf-8"), feature_version=(3, 8))
    futures = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    if source.stem not in {"__init__", "__main__"}:
        assert futures, "annotations like `str | None` are evaluated without it, which 3.8 can't"
    missing_in_3_8 = {"removeprefix", "removesuffix", "is_relative_to", "with_stem", "hardlink_to"}
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not used & missing_in_3_8
    assert "zip" not in {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}, "strict= came with 3.10"


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.12", "3.13"])
def test_every_python_from_3_8_on_runs_it(version: str, zipapp: Path, tmp_path: Path) -> None:
    python = _python(version)
    if python is None:
        pytest.skip(f"needs Python {version}")
    done = subprocess.run(
        [python, str(zipapp), "probe", "--root", str(tmp_path)], capture_output=True, check=True, timeout=60
    )
    assert json.loads(done.stdout)["python"].startswith(f"{version}.")
    refused = subprocess.run(
        [python, str(zipapp), "configure", "--root", str(tmp_path)],
        input=b"{}",
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert refused.returncode == 2
    assert "the key 'version' is missing" in json.loads(refused.stdout)["error"]["message"]


@needs_compiler
@pytest.mark.parametrize("version", ["3.8", "3.11"])
def test_the_file_asks_real_libraries(version: str, zipapp: Path, tmp_path: Path) -> None:
    python = sys.executable if version == "3.11" else _python(version)
    if python is None:
        pytest.skip(f"needs Python {version}")
    host = prepare(tmp_path / "host", Board.JETPACK_6)
    mock_library(host.path("/usr/lib/aarch64-linux-gnu/nvidia"), NVML)
    mock_library(host.path("/usr/lib/aarch64-linux-gnu/tegra"), CUDA)
    run = host.run("probe", agent=(python, "-I", "-S", str(zipapp)))
    assert run.answer["nvml"] == {"ok": True, "reason": None}
    assert run.answer["cuda"] == {"ok": True, "reason": None}
    assert run.answer["gpus"][0]["name"] == "Orin (nvgpu)"
    assert run.answer["gpus"][0]["memory_source"] == "cuda"


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.7"])
def test_an_older_python_gets_a_sentence_and_no_traceback(version: str, zipapp: Path) -> None:
    python = _python(version)
    if python is None:
        pytest.skip(f"needs Python {version}")
    done = subprocess.run([python, str(zipapp), "probe"], capture_output=True, check=False, timeout=60)
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["message"].startswith(f"Python {version} is too old")
    assert b"Traceback" not in done.stderr
    assert b"Install Python 3.8" in done.stderr
    assert b"also for sudo" in done.stderr


@pytest.mark.parametrize("module", ["json", "shutil", "difflib"])
def test_a_python_with_a_part_of_its_library_gets_a_sentence_and_no_traceback(module: str, zipapp: Path) -> None:
    """As Debian's `python3-minimal`, which lacks these three, and Yocto's `python3-core` are."""
    start = f"import runpy, sys; sys.modules['{module}'] = None; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-I", "-c", start, str(zipapp), "probe"], capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert error["message"].startswith(f"Python's standard library is not all there: import of {module} halted")
    assert error["remedy"].startswith("Install the package `python3` of Debian, Ubuntu or RHEL")
    assert done.stderr.decode() == f"{error['message']} {error['remedy']}\n"
