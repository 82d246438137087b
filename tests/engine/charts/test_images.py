"""`make images` with the stand-ins: every image that a chart's values name is in the list, and nothing that is off."""

import json
import os
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests import kai
from manifests.versions import DEVICE_PLUGIN_IMAGE
from operations.charts.helm import Helm
from operations.charts.images import images
from operations.errors import OperationError
from testbed.stacks import ROOT, STACKS, changed, jetson, parse, webhook
from tests.support.checkout import fresh, shell
from tests.support.docs import blocks

CHARTS = tuple(ROOT / "simulator" / "charts" / name for name in ("gpu-operator", "kai-scheduler"))
# Not started: the driver is the host's, these are off by default, and nothing scales the cluster.
OFF = {"driver", "dcgm", "nodescaleadjuster", "scalingpod", "numa-placement-exporter"}


@pytest.fixture(scope="module")
def helm() -> Helm:
    """The program."""
    return Helm.installed()


def _names(values: object) -> Iterator[str]:
    """The last part of each image that values name, in either chart's way."""
    if isinstance(values, Mapping):
        for key, value in values.items():
            if key == "image" and isinstance(value, str):
                yield value
            elif key.lower().endswith("image") and isinstance(value, Mapping):
                yield value["name"] if "name" in value else value["repository"].rpartition("/")[2]
            else:
                yield from _names(value)


def test_every_image_of_the_charts_values_is_in_the_list(helm: Helm) -> None:
    listed = images(parse(jetson()), CHARTS, ROOT, helm)
    values: list[Any] = [yaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8")) for chart in CHARTS]
    expected = {name for value in values for name in _names(value)}
    assert len(expected) > 15, "the values name images"
    assert {image.name.partition(":")[0] for image in listed} == expected - OFF
    assert {by for image in listed for by in image.used_by} == {"gpu-operator", "kai-scheduler"}
    assert all(image.name.partition(":")[2] for image in listed), "each has a tag"


def test_the_settings_of_a_mirror_reach_every_image(helm: Helm) -> None:
    stack = jetson()
    for section in ("gpu_operator", "kai"):
        stack = changed(stack, f"{section}.images.registry", f"registry.example.com:5000/{section}")
    listed = images(parse(stack), CHARTS, ROOT, helm)
    assert listed
    assert [image.image for image in listed if not image.image.startswith("registry.example.com:5000/")] == []


@pytest.mark.parametrize("name", sorted(STACKS))
def test_a_stacks_own_images_are_in_the_list(helm: Helm, name: str) -> None:
    settings = parse(STACKS[name]())
    charts = CHARTS if settings.gpu_operator.install else CHARTS[1:]
    names = {image.image for image in images(settings, charts, ROOT, helm) if "kai-anywhere" in image.used_by}
    expected: set[str] = set()
    if settings.gvirtus is not None:
        expected |= {backend.image for backend in settings.gvirtus.backends.values()}
        if settings.gvirtus.frontends is not None:
            expected.add(settings.gvirtus.frontends.device_plugin_image or DEVICE_PLUGIN_IMAGE)
    if name == "webhook":
        expected.add(webhook()["admission"]["image"])
    if name in {"jetson", "x86"}:
        assert names == set()
    assert expected <= names


@pytest.mark.skipif(shutil.which("jq") is None, reason="the guide's command needs jq")
def test_the_guide_copies_every_image(helm: Helm, tmp_path: Path) -> None:
    """What docs/air-gapped.md says, where no registry can be asked."""
    skopeo = tmp_path / "bin" / "skopeo"
    skopeo.parent.mkdir()
    skopeo.write_text('#!/bin/sh\necho "$@" >> copied\n', encoding="utf-8")
    skopeo.chmod(0o755)
    environment = {"PATH": f"{skopeo.parent}:{os.environ['PATH']}", "HTTPS_PROXY": "http://127.0.0.1:1"}
    listing, copying = (
        next(block.text for block in blocks(ROOT / "docs" / "air-gapped.md") if block.first_line.startswith(first))
        for first in ("make images ", "jq ")
    )
    with fresh(tmp_path / "kai-anywhere") as checkout:
        for chart in CHARTS:
            with tarfile.open(checkout / f"{chart.name}.tgz", "w:gz") as archive:
                archive.add(chart, arcname=chart.name)
        said = shell(listing, checkout, environment)
        locked = checkout / "images.jetson.lock.json"
        content = json.loads(locked.read_text(encoding="utf-8"))
        # One that both charts have, of which each says its own registry.
        both = "docker.io/library/busybox:1.37"
        shared = {"pinned": both, "used_by": sorted(chart.name for chart in CHARTS), "name": "busybox:1.37"}
        locked.write_text(json.dumps({"images": [*content["images"], shared]}), encoding="utf-8")
        shell(copying, checkout, environment)
        copied = [line.split() for line in (checkout / "copied").read_text(encoding="utf-8").splitlines()]
    expected = {
        image.image: f"{image.used_by[0]}/{image.name}" for image in images(parse(jetson()), CHARTS, ROOT, helm)
    }
    places = [*expected.items(), *((both, f"{chart.name}/busybox:1.37") for chart in CHARTS)]
    assert sorted((line[-2].removeprefix("docker://"), line[-1]) for line in copied) == sorted(
        (image, f"docker://registry.example.com:5000/{name}") for image, name in places
    )
    assert {image["image"] for image in content["images"]} == expected.keys()
    assert all(image["digest"] is None and "can't be asked" in image["problem"] for image in content["images"])
    assert said.count("without digest: ") == len(expected)


def test_a_chart_that_the_stack_does_not_have_is_refused(helm: Helm, tmp_path: Path) -> None:
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: nginx\nversion: 1.0.0\n", encoding="utf-8")
    (tmp_path / "values.yaml").write_text("", encoding="utf-8")
    with pytest.raises(OperationError, match="The stack has no chart nginx; it has gpu-operator, kai-scheduler"):
        images(parse(jetson()), [tmp_path], ROOT, helm)


def test_a_chart_that_can_not_be_fetched_says_what_to_do(helm: Helm) -> None:
    stack = changed(jetson(), "kai.chart", {"source": "oci://127.0.0.1:1/charts/kai-scheduler", "version": "v9.9.9"})
    with pytest.raises(OperationError, match="make images CHARTS=path"):
        images(parse(stack), CHARTS[:1], ROOT, helm)


def test_a_chart_on_this_machine_needs_no_network(helm: Helm) -> None:
    stack = changed(jetson(), "kai.chart", {"source": "./simulator/charts/kai-scheduler"})
    listed = images(parse(stack), CHARTS[:1], ROOT, helm)
    assert any(image.image.startswith(f"{kai.REGISTRY}/binder:") for image in listed)
