"""The agents' image, built by buildah from agents/Containerfile and started.

The base image is made of this machine's own Python, since no registry is asked; everything after it is the file's.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.images import Builder
from tests.support.stacks import ROOT

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(shutil.which("buildah") is None, reason="buildah is not installed (apt-get install buildah)"),
]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Builder, str]]:
    folder = tmp_path_factory.mktemp("images")
    builder = Builder(folder)
    base = builder.base_with_python(ROOT / "agents/admission/requirements.txt")
    arguments = ["--isolation", "chroot", "--pull-never", "--build-arg", f"BASE={base}"]
    builder.run(
        "build", "--quiet", *arguments, "--file", str(ROOT / "agents/Containerfile"), "--tag", "agents", str(ROOT)
    )
    yield builder, "agents"
    # The layers are some hundred MiB.
    shutil.rmtree(folder, ignore_errors=True)


def test_it_runs_as_nobody_and_starts_the_admission_server(image: tuple[Builder, str]) -> None:
    builder, name = image
    config = json.loads(builder.run("inspect", "--type", "image", name))["OCIv1"]["config"]
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["python3", "-m"]
    assert config["Cmd"] == ["agents.admission"]


def test_its_server_imports_all_that_it_needs_and_says_what_is_missing(image: tuple[Builder, str]) -> None:
    builder, name = image
    container = builder.run("from", "--pull-never", name)
    script = "from agents.admission.__main__ import main; import os, sys; print(os.getuid(), main(['/nowhere']))"
    told = builder.run("run", "--isolation", "chroot", container, "--", "python3", "-c", script)
    assert told.splitlines()[-1] == "65532 2", "the exit status of a server without its settings"


def test_it_holds_nothing_but_the_agents_and_their_dependencies(image: tuple[Builder, str]) -> None:
    builder, name = image
    container = builder.run("from", "--pull-never", name)
    script = "import os; print(sorted(os.listdir('/opt')), sorted(os.listdir('/opt/agents/agents')))"
    told = builder.run("run", "--isolation", "chroot", container, "--", "python3", "-c", script)
    assert told.splitlines()[-1] == "['agents', 'dependencies'] ['__init__.py', 'admission']"


def test_the_base_is_pinned_by_digest() -> None:
    text = Path(ROOT / "agents/Containerfile").read_text(encoding="utf-8")
    [base] = [line for line in text.splitlines() if line.startswith("ARG BASE=")]
    assert "@sha256:" in base
    assert ":latest" not in text
