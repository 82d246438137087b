"""`make bench-policy`: what the policy pack costs per resource, all rules together.

Two times: the rules alone on the SDK's proxies, and the SDK's own `Analyze` around them, which deserialises each
resource once per policy. The goal is about the second, which is what an engine waits for.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf import struct_pb2  # type: ignore[import-untyped]  # it ships no types
from pulumi.runtime import proto
from pulumi_policy import EnforcementLevel
from pulumi_policy.policy import _PolicyAnalyzerServicer  # the only way to the SDK's conversion without a process
from pulumi_policy.proxy import unknown_checking_proxy

from benchmarks.result import Result, rounds, tell
from policy.judge import judge
from policy.pack import PACK_NAME, policies
from policy.rules import RULES
from policy.stack_platform import StackFacts

RESOURCES = 1_000
GOAL_MS = 2.0


def results() -> Iterator[Result]:
    """Measure in this process."""
    resources = list(itertools.islice(itertools.cycle(_resources()), RESOURCES))
    proxies = [(token, unknown_checking_proxy(props)) for token, props in resources]
    stack = StackFacts()
    yield _result("Rules alone", lambda: [judge(token, "one", props, stack, RULES) for token, props in proxies])
    servicer = _PolicyAnalyzerServicer(PACK_NAME, "0", list(policies()), EnforcementLevel.MANDATORY)
    requests = [_request(token, props) for token, props in resources]
    yield _result("Analyze of the SDK, per resource", lambda: _analyze_all(servicer, requests), GOAL_MS)


def _analyze_all(servicer: _PolicyAnalyzerServicer, requests: list[proto.AnalyzeRequest]) -> None:
    for request in requests:
        servicer.Analyze(request, None)  # type: ignore[no-untyped-call]  # the SDK's own


def _result(name: str, work: Callable[[], object], goal_ms: float | None = None) -> Result:
    """Processor time of this process, per resource."""
    times = []
    for _ in range(rounds(5, 2)):
        begin = time.process_time()
        work()
        times.append((time.process_time() - begin) * 1000 / RESOURCES)
    return Result(name, "ms", tuple(times), goal_ms, parts={"resources": str(RESOURCES)})


def _request(token: str, props: dict[str, Any]) -> proto.AnalyzeRequest:
    properties = struct_pb2.Struct()
    properties.update(props)
    return proto.AnalyzeRequest(type=token, properties=properties, urn=f"urn:pulumi:s::p::{token}::one", name="one")


def _resources() -> list[tuple[str, dict[str, Any]]]:
    """Kinds as a stack has them: workloads with two containers, configuration, roles, a release."""
    container = {
        "name": "app",
        "image": "registry.example.com/app:1.2.3",
        "env": [{"name": f"VARIABLE_{number}", "value": "value"} for number in range(8)],
        "ports": [{"containerPort": 8080}],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
        "livenessProbe": {"httpGet": {"path": "/", "port": 8080}},
    }
    spec = {"containers": [container, container], "volumes": [{"name": "cache", "emptyDir": {}}]}
    metadata = {"name": "web", "namespace": "team", "labels": {"app": "web"}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": spec}
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    return [
        ("kubernetes:apps/v1:Deployment", {"kind": "Deployment", "metadata": metadata, "spec": {"template": template}}),
        ("kubernetes:core/v1:Service", {"kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]}}),
        ("kubernetes:core/v1:ConfigMap", {"kind": "ConfigMap", "metadata": metadata, "data": {"a": "b: 1\n" * 100}}),
        ("kubernetes:core/v1:Pod", {"kind": "Pod", "metadata": metadata, "spec": spec}),
        ("kubernetes:rbac.authorization.k8s.io/v1:Role", {"kind": "Role", "metadata": metadata, "rules": [rule] * 10}),
        (
            "kubernetes:helm.sh/v3:Release",
            {"chart": "app", "version": "1.2.3", "values": {f"part{number}": container for number in range(5)}},
        ),
    ]


if __name__ == "__main__":
    tell(results())
