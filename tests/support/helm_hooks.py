"""A hook of a chart in which Helm waits until somebody kills it: without KWOK no pod ends."""

import shutil
from pathlib import Path

import simulator
from testbed.stacks import Json, changed

NAME = "in-the-way"
_JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  annotations:
    helm.sh/hook: {when}
    helm.sh/hook-weight: "1"
    helm.sh/hook-delete-policy: {delete}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: main
          image: registry.example.com/hook@sha256:0000000000000000000000000000000000000000000000000000000000000000
"""


def write_hook(chart: Path, when: str, *, delete: str = "before-hook-creation,hook-succeeded", more: str = "") -> None:
    """Give a chart a Job as hook.

    Args:
        chart: its folder.
        when: such as `post-install`: Helm has made the release's objects then.
        delete: when Helm removes the Job.
        more: other documents, before it.
    """
    text = more + _JOB.format(name=NAME, when=when, delete=delete)
    (chart / "templates" / "hooks.yaml").write_text(text, encoding="utf-8")


def with_hook(settings: Json, folder: Path) -> Json:
    """The stack with a copy of the GPU Operator's chart, which has a hook after its objects."""
    chart = shutil.copytree(simulator.chart_path("gpu-operator"), folder / "gpu-operator")
    write_hook(chart, "post-install")
    return changed(settings, "gpu_operator.chart.source", str(chart))
