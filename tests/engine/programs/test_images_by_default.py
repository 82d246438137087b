"""`make up` without a word about KAI's programs: they come out of the images of a registry on loopback, and run."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from lightkube import Client, codecs
from lightkube.resources.apps_v1 import Deployment

import simulator
import toolchain
from operations.kai_programs import NAMES, choose
from operations.target import open_target
from simulator import api
from simulator.pods import launcher
from testbed.stacks import ROOT, Json, changed, jetson, parse
from testbed.waiting import eventually
from tests.support.registry_server import Registry, archive, file, running
from toolchain import cache
from toolchain.official import this_platform
from toolchain.registry import Crane

pytestmark = [
    pytest.mark.skipif(launcher.unavailable() is not None, reason=f"no programs here: {launcher.unavailable()}"),
]

TAG = "v1"
_PROGRAM = Path("/bin/sleep")
_CONTAINER = {"Entrypoint": ["/workspace/app", "infinity"], "User": "65532:65532"}


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry with an image of each of KAI's programs; this machine has none of them, and no logins."""
    crane = Crane.installed()
    programs = toolchain.install([*toolchain.SIMULATOR, *toolchain.ENGINE])
    variables = toolchain.environment((*toolchain.ENGINE, *toolchain.SIMULATOR))
    monkeypatch.setattr(Crane, "installed", lambda: crane)
    monkeypatch.setattr("toolchain.install", lambda _: programs)
    monkeypatch.setattr("toolchain.environment", lambda _: variables)
    monkeypatch.setenv(cache.LOCATION_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    for variable in ("KUBECONFIG", "KAI_PROGRAMS", "KAI_ANYWHERE_OFFLINE"):
        monkeypatch.delenv(variable, raising=False)
    layer = archive([file("workspace/app", _PROGRAM.read_bytes())])
    with running() as started:
        for name in NAMES:
            started.image(f"kai/{name}", TAG, layer, architecture=this_platform().processor, container=_CONTAINER)
        yield started


@pytest.fixture
def checkout(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout whose stack names that registry."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    shutil.copy(ROOT / "Pulumi.yaml", folder)
    content = {"config": {"kai-anywhere:settings": stack(registry)}}
    (folder / "Pulumi.jetson.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    monkeypatch.setattr("operations.target.ROOT", folder)
    try:
        yield folder
    finally:
        simulator.reset(folder / ".simulator" / "jetson" / "cluster")


def stack(registry: Registry) -> Json:
    settings = changed(jetson(), "kai.chart", {"source": str(simulator.chart_path("kai-scheduler"))})
    settings = changed(settings, "kai.images.registry", f"{registry.host}/kai")
    return changed(settings, "kai.image_tag", TAG)


def deployment(image: str) -> Any:  # noqa: ANN401 (lightkube's)
    name = toolchain.name_of(image)
    pod = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": image}]}}
    return codecs.from_dict(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": pod},
        }
    )


def available(client: Client) -> set[str]:
    return {
        deployment.metadata.name
        for deployment in client.list(Deployment, namespace="default")
        if deployment.metadata
        and deployment.metadata.name
        and deployment.status
        and deployment.status.availableReplicas
    }


def executables(folder: Path) -> dict[str, list[str]]:
    """The command lines of what runs out of the cache, by the program's name."""
    programs = {}
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or [""]
        if Path(command[0]).is_relative_to(folder):
            programs[Path(command[0]).name] = command[1:]
    return programs


def test_the_programs_of_the_images_run_on_a_new_simulator_and_on_the_same_later(
    registry: Registry, checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_target("jetson") as target:
        assert target.runs_kai
        assert "by the programs of their images" in target.simulated[0]
    said = capsys.readouterr().err
    assert f"KAI's programs run, out of their images at {registry.host}/kai." in said
    assert "KAI is emulated" not in said
    with api.client(Path(str(target.settings.cluster.kubeconfig))) as client:
        for name in NAMES:
            client.create(deployment(f"{registry.host}/kai/{name}:{TAG}"))
        eventually(lambda: available(client) == set(NAMES), within_seconds=60)
    assert executables(tmp_path / "cache") == {name: ["infinity"] for name in NAMES}

    registry.asked.clear()
    registry.status = 500
    with open_target("jetson") as target:
        assert target.runs_kai, "as the last time"
    assert registry.asked == []
    assert "KAI" not in capsys.readouterr().err
    assert checkout.joinpath(".simulator").is_dir()


def test_where_one_image_is_missing_kai_is_emulated(
    registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del registry.content[f"/v2/kai/scheduler/manifests/{TAG}"]
    new = simulator.status(tmp_path / "none")
    assert choose(parse(stack(registry)), new, official_chart=True) is None
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(
        f"KAI is emulated: the programs of its images can't be had, {registry.host} has no such image"
    )
    assert said.endswith(simulator.NOT_CHECKED)
