"""KAI's images, made of programs that were built from its sources: a container each, as in those that it publishes."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import yaml

import toolchain
from testbed.stacks import Json, changed
from tests.support.pods.images import Builder, copy_with_libraries
from tests.support.pods.stand_ins_image import copy_program
from toolchain.programs import KUBECTL

PROGRAMS = (
    "admission",
    "binder",
    "operator",
    "podgroupcontroller",
    "podgrouper",
    "queuecontroller",
    "scheduler",
    "resourcereservation",
)
"""Each image's name, and its program's in the folder."""
_REGISTRY = "registry.example.com/kai"
_USER = "65532:65532"
_HOOKS = "crd-upgrader"
"""The image of the chart's hooks: `kubectl` and a shell."""


def build(builder: Builder, programs: Path, chart: Path) -> Iterator[Path]:
    """Build the images of a chart's version; their archives, one after the other.

    Args:
        builder: to build them with.
        programs: the folder of `PROGRAMS`.
        chart: KAI's own.
    """
    tag = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"]
    for program in PROGRAMS:
        root = _root(builder, program)
        copy_with_libraries([programs / program], root)
        yield _archive(builder, f"{program}:{tag}", root, "--entrypoint", json.dumps([str(programs / program)]))
    root = _root(builder, _HOOKS)
    for shell in ("bash", "sh"):
        copy_program(shell, root)
    shutil.copy(toolchain.install((KUBECTL,))[KUBECTL], root / "bin/kubectl")
    shutil.copytree(chart / "crds", root / "crds")
    command = ["kubectl", "apply", "--server-side=true", "--force-conflicts", "--filename", "/crds"]
    yield _archive(builder, f"{_HOOKS}:{tag}", root, "--cmd", " ".join(command), "--env", "HOME=/tmp")


def settings_of(stack: Json, chart: Path) -> Json:
    """A stack's settings with that chart and these images, and without the GPU Operator, whose images are not had."""
    stack = changed(stack, "kai.chart", {"source": str(chart)})
    stack = changed(stack, "kai.images", {"registry": _REGISTRY, "pull_policy": "Never"})
    return changed(stack, "gpu_operator.install", False)


def _root(builder: Builder, name: str) -> Path:
    root = builder.folder / name
    (root / "tmp").mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    return root


def _archive(builder: Builder, name: str, root: Path, *config: str) -> Path:
    image = f"{_REGISTRY}/{name}"
    builder.image(image, "scratch", root, *config, "--user", _USER, "--env", "PATH=/bin")
    return builder.archive(image)
