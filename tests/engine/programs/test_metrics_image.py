"""The exporter's image, built by buildah from agents/metrics/Containerfile and started.

The base image is made of this machine's own Python, since no registry is asked; everything after it is the file's.
"""

import json
import shutil
from collections.abc import Iterator

import pytest

from testbed.stacks import ROOT
from tests.support.pods.images import Builder

pytestmark = [
    pytest.mark.skipif(shutil.which("buildah") is None, reason="buildah is not installed (apt-get install buildah)"),
]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Builder, str]]:
    """The image, and who built it."""
    folder = tmp_path_factory.mktemp("images")
    builder = Builder(folder)
    yield builder, builder.metrics()
    # The layers are some hundred MiB.
    shutil.rmtree(folder, ignore_errors=True)


def _run(image: tuple[Builder, str], script: str) -> str:
    builder, name = image
    container = builder.run("from", "--pull-never", name)
    return builder.run("run", "--isolation", "chroot", container, "--", "python3", "-c", script).splitlines()[-1]


def test_it_runs_as_nobody_and_starts_the_exporter(image: tuple[Builder, str]) -> None:
    builder, name = image
    config = json.loads(builder.run("inspect", "--type", "image", name))["OCIv1"]["config"]
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["python3", "-m"]
    assert config["Cmd"] == ["agents.metrics"]


def test_the_exporter_imports_all_that_it_needs_and_says_what_is_missing(image: tuple[Builder, str]) -> None:
    script = "from agents.metrics.__main__ import main; import os; print(os.getuid(), main([]))"
    assert _run(image, script) == "65532 2", "the exit status of an exporter that is in no pod"


def test_it_holds_what_it_counts_with_and_neither_pulumi_nor_the_commands(image: tuple[Builder, str]) -> None:
    script = "import os; print(sorted(os.listdir('/opt/program')))"
    assert _run(image, script) == str(["agents", "cluster", "config", "gpu_sharing", "manifests", "sharing_map"])
    script = "from importlib.util import find_spec; print([find_spec(name) for name in ('pulumi', 'typer', 'rich')])"
    assert _run(image, script) == "[None, None, None]"


def test_both_images_have_one_base() -> None:
    [agents, metrics] = [
        [line for line in (ROOT / file).read_text(encoding="utf-8").splitlines() if line.startswith("ARG BASE=")]
        for file in ("agents/Containerfile", "agents/metrics/Containerfile")
    ]
    assert agents == metrics
