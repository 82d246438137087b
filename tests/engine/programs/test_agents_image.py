"""The agents' image, built by buildah from agents/Containerfile and started.

The base image is made of this machine's own Python, since no registry is asked; everything after it is the file's.
"""

import json
import shutil
from pathlib import Path

import pytest

from operations.release.bill_of_materials import of_folder
from testbed.stacks import ROOT
from tests.support.pods.images import Builder

pytestmark = [
    pytest.mark.skipif(shutil.which("buildah") is None, reason="buildah is not installed (apt-get install buildah)"),
]


def test_it_runs_as_nobody_and_starts_the_admission_server(agents_image: tuple[Builder, str]) -> None:
    builder, name = agents_image
    config = json.loads(builder.run("inspect", "--type", "image", name))["OCIv1"]["config"]
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["python3", "-m"]
    assert config["Cmd"] == ["agents.admission"]


def test_its_server_imports_all_that_it_needs_and_says_what_is_missing(agents_image: tuple[Builder, str]) -> None:
    builder, name = agents_image
    container = builder.run("from", "--pull-never", name)
    script = "from agents.admission.__main__ import main; import os, sys; print(os.getuid(), main(['/nowhere']))"
    printed = builder.run("run", "--isolation", "chroot", container, "--", "python3", "-c", script)
    assert printed.splitlines()[-1] == "65532 2", "the exit status of a server without its settings"


def test_it_holds_nothing_but_the_agents_and_their_dependencies(agents_image: tuple[Builder, str]) -> None:
    builder, name = agents_image
    container = builder.run("from", "--pull-never", name)
    script = "import os; print(sorted(os.listdir('/opt')), sorted(os.listdir('/opt/agents/agents')))"
    printed = builder.run("run", "--isolation", "chroot", container, "--", "python3", "-c", script)
    assert printed.splitlines()[-1] == "['agents', 'dependencies'] ['__init__.py', 'admission']"


def test_its_packages_are_those_of_its_bill_of_materials(agents_image: tuple[Builder, str]) -> None:
    builder, name = agents_image
    container = builder.run("from", "--pull-never", name)
    script = (
        "import importlib.metadata, json; "
        "found = importlib.metadata.distributions(path=['/opt/dependencies']); "
        "print(json.dumps({each.name.lower().replace('_', '-'): each.version for each in found}))"
    )
    printed = builder.run("run", "--isolation", "chroot", container, "--", "python3", "-c", script)
    installed = json.loads(printed.splitlines()[-1])
    parts = [part for part in of_folder(ROOT, "1.2.3")["agents"]["components"] if part["type"] == "library"]
    assert installed.items() <= {(part["name"], part["version"]) for part in parts}
    assert {part["name"] for part in parts if "scope" not in part} <= installed.keys()


def test_the_base_is_pinned_by_digest() -> None:
    text = Path(ROOT / "agents/Containerfile").read_text(encoding="utf-8")
    [base] = [line for line in text.splitlines() if line.startswith("ARG BASE=")]
    assert "@sha256:" in base
    assert ":latest" not in text
