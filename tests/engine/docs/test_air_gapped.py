"""docs/air-gapped.md: what is carried in is all that is needed."""

import io
import re
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import toolchain
from tests.support.checkout import fresh, shell
from tests.support.docs import command
from toolchain.cache import root
from toolchain.programs import PULUMI

PAGE = "air-gapped.md"


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    with fresh(tmp_path / "kai-anywhere") as folder:
        yield folder


def test_what_is_carried_in_is_all_that_is_needed(checkout: Path) -> None:
    toolchain.install(toolchain.ENGINE)
    (checkout / "carry" / "cache").mkdir(parents=True)
    # Built or downloaded before, so that this test need not do it again.
    (checkout / "carry" / "cache" / "toolchain").symlink_to(root())
    # The program's packages are enough; those of its tests would take most of the time.
    (checkout / "requirements-dev.txt").write_bytes((checkout / "requirements.txt").read_bytes())
    (checkout / ".venv" / "installed").touch()
    shell(command(PAGE, "make install"), checkout)
    assert list((checkout / "carry" / "wheels").glob("pulumi-*.whl"))

    # Inside: no environment yet.
    (checkout / ".venv").unlink()
    inside = command(PAGE, "export PIP_NO_INDEX=1 PIP_FIND_LINKS=$PWD/carry/wheels")
    # An index that is nowhere: a package that was not carried would be missed. For pip's `--no-compile` it is 0 that
    # compiles nothing.
    environment = {"PYTHON": sys.executable, "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_NO_COMPILE": "0"}
    output = shell(f"{inside}\npulumi version\nwhich pulumi-language-python", checkout, environment)
    assert re.search(r"(?m)^v3\.", output)
    assert list((checkout / ".venv" / "lib").glob("python*/site-packages/pulumi_kubernetes"))
    assert not (checkout / ".venv").is_symlink()


def _archive(file: Path, program: str) -> None:
    with tarfile.open(file, "w:gz") as archive:
        member = tarfile.TarInfo(program)
        script = b"#!/bin/sh\n"
        member.size, member.mode = len(script), 0o755
        archive.addfile(member, io.BytesIO(script))


def test_plugins_are_installed_from_archives(tmp_path: Path) -> None:
    script = command(
        PAGE,
        "pulumi plugin install resource kubernetes 4.25.0 --file pulumi-resource-kubernetes-v4.25.0-linux-amd64.tar.gz",
    )
    for name, version in (("kubernetes", "4.25.0"), ("command", "1.2.1")):
        _archive(tmp_path / f"pulumi-resource-{name}-v{version}-linux-amd64.tar.gz", f"pulumi-resource-{name}")
    environment = {
        "PATH": toolchain.environment((PULUMI,))["PATH"],
        "PULUMI_HOME": str(tmp_path / "pulumi-home"),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }
    listed = shell(script, tmp_path, environment).splitlines()
    rows = [line.split()[:3] for line in listed]
    assert ["kubernetes", "resource", "4.25.0"] in rows
    assert ["command", "resource", "1.2.1"] in rows
