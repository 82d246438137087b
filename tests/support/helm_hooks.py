"""A hook of a chart in which Helm waits until somebody kills it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

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
_POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
_BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


def write_hook(chart: Path, when: str, *, delete: str = "before-hook-creation,hook-succeeded", more: str = "") -> None:
    """Give a chart a Job as hook.

    Args:
        chart: its folder.
        when: such as `post-install`: Helm has made the release's objects then.
        delete: when Helm removes the Job.
        more: other documents, before it.
    """
    text = more + _JOB.format(name=NAME, when=when, delete=delete)
    (chart / "templates" / "hook-of-a-test.yaml").write_text(text, encoding="utf-8")


def with_hooks(settings: Json, folder: Path) -> Json:
    """The stack with copies of both releases' charts, each with a hook after its objects."""
    for release, section in (("gpu-operator", "gpu_operator"), ("kai-scheduler", "kai")):
        chart = shutil.copytree(simulator.chart_path(release), folder / release)
        write_hook(chart, "post-install")
        settings = changed(settings, f"{section}.chart.source", str(chart))
    return settings


@contextmanager
def held(api: httpx2.Client, job: str = NAME) -> Iterator[None]:
    """No pod of the hook, or of another Job, comes to be meanwhile, so that Helm waits for it."""
    metadata = {"name": NAME}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    expression = f"!object.metadata.?generateName.orValue('').startsWith('{job}')"
    policy = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": expression}]}
    binding = {"policyName": NAME, "validationActions": ["Deny"]}
    api.post(_POLICIES, json={"metadata": metadata, "spec": policy}).raise_for_status()
    api.post(_BINDINGS, json={"metadata": metadata, "spec": binding}).raise_for_status()
    try:
        yield
    finally:
        for path in (_BINDINGS, _POLICIES):
            api.delete(f"{path}/{NAME}").raise_for_status()
