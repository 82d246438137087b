"""Every version that Renovate shall move is found by the expression in renovate.json."""

import json
import re

import pytest

from manifests.versions import DEVICE_PLUGIN_IMAGE, GPU_OPERATOR, KAI_SCHEDULER
from testbed.stacks import ROOT
from tests.support.programs import CONTAINERD_VERSION
from toolchain import programs

SETTINGS = json.loads((ROOT / "renovate.json").read_text(encoding="utf-8"))
[MANAGER] = SETTINGS["customManagers"]
# Renovate's expressions name a group as JavaScript does.
[EXPRESSION] = [text.replace("(?<", "(?P<") for text in MANAGER["matchStrings"]]

_OF_TESTS = "tests/support/programs/__init__.py"


def _versions_in(file: str) -> dict[str, str]:
    text = (ROOT / file).read_text(encoding="utf-8")
    matches = re.finditer(EXPRESSION, text)
    versions = {match["depName"]: match["currentValue"] for match in matches}
    assert len(versions) == text.count("# renovate:"), "a marker without a version below it"
    return versions


def test_the_charts_and_images_are_found() -> None:
    assert _versions_in("manifests/versions.py") == {
        "kai-scheduler/KAI-Scheduler": KAI_SCHEDULER.version,
        "NVIDIA/gpu-operator": GPU_OPERATOR.version,
        "ghcr.io/squat/generic-device-plugin": DEVICE_PLUGIN_IMAGE.partition("@")[0].rpartition(":")[2],
    }


def test_the_programs_are_found() -> None:
    versions = _versions_in("toolchain/programs.py")
    assert versions["k8s.io/kubernetes"] == programs.KUBERNETES_VERSION
    assert versions["github.com/pulumi/pulumi/pkg/v3"] == programs.PULUMI_VERSION
    assert _versions_in(_OF_TESTS)["github.com/containerd/containerd/v2"] == CONTAINERD_VERSION


@pytest.mark.parametrize("file", ["manifests/versions.py", "toolchain/programs.py", _OF_TESTS])
def test_the_files_with_markers_are_looked_at(file: str) -> None:
    assert any(re.search(pattern.strip("/"), file) for pattern in MANAGER["managerFilePatterns"])
