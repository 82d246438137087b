"""The pack itself: metadata, exceptions, and the whole of it as a process over gRPC, as the engine starts it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path

import grpc
import pytest
import yaml
from google.protobuf import empty_pb2, struct_pb2  # type: ignore[import-untyped]  # it ships no types
from pulumi.runtime import proto
from pulumi.runtime.proto import analyzer_pb2_grpc
from pulumi_policy import (
    EnforcementLevel,
    Policy,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)

from policy.exceptions import Exemption, exemptions
from policy.judge import judge
from policy.pack import ADVICE, policies, unused
from policy.rule import Rule
from policy.rules import RULES
from policy.stack_platform import SECTIONS, StackFacts, stack_facts
from policy.workloads import documents
from testbed.stacks import ROOT, STACKS, gvirtus, gvirtus_webhook, jetson
from tests.policy.objects import UNKNOWN, Json, changed, findings, pod
from tests.unit.components.programs import preview

POLICY = ROOT / "policy"


@pytest.mark.parametrize("policy", policies(), ids=lambda policy: policy.name)
def test_every_policy_is_mandatory_and_says_what_it_is(policy: Policy) -> None:
    usual = EnforcementLevel.ADVISORY if policy.name == ADVICE else EnforcementLevel.MANDATORY
    assert policy.enforcement_level is usual
    assert policy.name.replace("-", "").isalpha()
    assert policy.name.islower()
    assert policy.description.endswith(".")
    assert policy.severity is not None
    assert policy.display_name
    assert policy.remediation_steps
    assert policy.config_schema is not None
    assert policy.config_schema.properties.keys() == {*SECTIONS, "stack", "levels", "exceptions"}


def test_there_are_few_policies_since_each_reads_every_resource_anew() -> None:
    kinds = [type(policy) for policy in policies()]
    assert kinds == [*[ResourceValidationPolicy] * 2, StackValidationPolicy]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_says_what_why_and_what_to_do(rule: Rule) -> None:
    assert rule.name.replace("-", "").isalpha()
    assert rule.title.endswith(".")
    assert rule.why
    assert rule.remedy
    assert rule.reads | rule.programs


def test_every_module_of_rules_is_one_rule_of_the_pack() -> None:
    modules = {path.stem for path in (POLICY / "rules").glob("*.py")} - {"__init__"}
    assert modules == {rule.name.replace("-", "_") for rule in RULES}


@pytest.mark.parametrize(
    "exemption",
    exemptions(StackFacts(remote_gpu_frontends=True)),
    ids=lambda exemption: f"{exemption.rule}-{exemption.name}",
)
def test_every_exception_says_who_what_why_and_where(exemption: Exemption) -> None:
    assert all(
        getattr(exemption, field.name)
        for field in fields(exemption)
        if field.name not in {"due", "namespace", "values"}
    )
    assert exemption.upstream.startswith("https://")


@pytest.mark.parametrize(
    "stack", [jetson(), gvirtus(), gvirtus_webhook()], ids=["jetson", "gvirtus", "gvirtus-webhook"]
)
def test_every_exception_is_used_by_a_stack_of_this_repository(stack: Json) -> None:
    facts = stack_facts(json.dumps(stack), {})
    judgements = [judge(item.type, item.key, item.inputs, facts, RULES) for item in preview(stack).registrations]
    assert {name for judgement in judgements for name in judgement.used} == {*exemptions(facts)}
    assert unused(facts, exemptions(facts), exemptions(facts)) == []


def test_an_exception_that_nothing_needs_is_a_finding() -> None:
    facts = stack_facts(json.dumps(jetson()), {})
    assert unused(facts, [], []) == [*exemptions(facts)]
    assert unused(StackFacts(), [], exemptions(facts)) == [*exemptions(facts)]
    assert unused(StackFacts(), [], []) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.labels.pod-security~kubernetes~io/enforce", "none"),
        ("metadata.name", "gpu-operator-2"),
        ("kind", "ConfigMap"),
    ],
)
def test_an_exception_is_for_one_value_of_one_object(path: str, value: str) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    namespace: Json = {"kind": "Namespace", "metadata": {"name": "gpu-operator", "labels": labels}}
    assert findings("kubernetes:core/v1:Namespace", namespace) == ()
    [finding] = findings("kubernetes:core/v1:Namespace", changed(namespace, path, value))
    assert finding.rule == "namespaces"


def test_an_exception_may_be_for_one_namespace() -> None:
    [exemption] = exemptions(StackFacts())
    here = replace(exemption, kind="DaemonSet", name="plugin", namespace="plugins")
    for namespace, covered in (("plugins", True), ("other", False), ("", False)):
        metadata = {"name": "plugin", "namespace": namespace}
        [document] = documents("kubernetes:apps/v1:DaemonSet", {"kind": "DaemonSet", "metadata": metadata})
        assert here.is_about(document) is covered


def test_the_stack_policy_reports_settings_that_it_can_not_read() -> None:
    [policy] = [policy for policy in policies() if isinstance(policy, StackValidationPolicy)]
    reported: list[str] = []
    args = StackValidationArgs([], {"platform": {"kind": "arm"}})

    def report(message: str, _urn: str | None = None) -> None:
        reported.append(message)

    policy.validate(args, report)
    [message] = reported
    assert "neither tegra nor x86" in message


def test_a_command_lists_the_exceptions() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "policy.exceptions"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for word in ("who:", "what:", "why:", "upstream:", "Namespace gpu-operator"):
        assert word in done.stdout


def test_no_module_of_the_pack_hides_one_of_python() -> None:
    # Started as a folder, the pack's own folder comes first on the path.
    assert not {path.stem for path in POLICY.glob("*.py")} & sys.stdlib_module_names


def test_the_packs_version_is_the_projects() -> None:
    pack = yaml.safe_load((POLICY / "PulumiPolicy.yaml").read_text(encoding="utf-8"))
    assert f'version = "{pack["version"]}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


@contextmanager
def _running(command: list[str], cwd: Path, settings: Json | None = None) -> Iterator[analyzer_pb2_grpc.AnalyzerStub]:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    if settings is not None:
        environment["PULUMI_CONFIG"] = json.dumps({"kai-anywhere:settings": json.dumps(settings)})
    process = subprocess.Popen(command, cwd=cwd, env=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline())
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield analyzer_pb2_grpc.AnalyzerStub(channel)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _analyze(stub: analyzer_pb2_grpc.AnalyzerStub, token: str, props: Json) -> list[proto.AnalyzeDiagnostic]:
    properties = struct_pb2.Struct()
    properties.update(props)
    request = proto.AnalyzeRequest(
        type=token, properties=properties, urn=f"urn:pulumi:test::kai-anywhere::{token}::one", name="one"
    )
    return list(stub.Analyze(request).diagnostics)


def _rules(diagnostics: list[proto.AnalyzeDiagnostic]) -> list[tuple[str, int]]:
    return [(diagnostic.policyName, diagnostic.enforcementLevel) for diagnostic in diagnostics]


def test_the_executable_judges_over_grpc_from_any_folder(tmp_path: Path) -> None:
    bad = changed(pod(), "spec.containers.0.securityContext.privileged", True)
    unknown = changed(bad, "spec.initContainers.0.securityContext.privileged", UNKNOWN)
    with _running([str(POLICY / "run")], tmp_path) as stub:
        info = stub.GetAnalyzerInfo(empty_pb2.Empty())
        assert (info.name, info.supportsConfig) == ("kai-anywhere", True)
        levels = {policy.name: policy.enforcementLevel for policy in info.policies}
        assert levels.pop(ADVICE) == proto.ADVISORY
        assert set(levels.values()) == {proto.MANDATORY}
        assert _analyze(stub, "kubernetes:core/v1:Pod", pod()) == []
        assert _rules(_analyze(stub, "kubernetes:core/v1:Pod", bad)) == [("privilege", proto.MANDATORY)]
        # The SDK alone would answer with one advisory, and drop the violation.
        assert _rules(_analyze(stub, "kubernetes:core/v1:Pod", unknown)) == [("privilege", proto.MANDATORY)] * 2


def test_the_executable_takes_the_platform_from_the_packs_configuration(tmp_path: Path) -> None:
    overrides = preview(jetson()).by_key["MutatingAdmissionPolicy:reservation-policy"]
    with _running([str(POLICY / "run")], tmp_path) as stub:
        assert _rules(_analyze(stub, overrides.type, dict(overrides.inputs))) == [("privilege", proto.MANDATORY)] * 4
        configuration = struct_pb2.Struct()
        configuration.update({"platform": jetson()["platform"]})
        config = proto.PolicyConfig(enforcementLevel=proto.MANDATORY, properties=configuration)
        stub.Configure(proto.ConfigureAnalyzerRequest(policyConfig={policy.name: config for policy in policies()}))
        assert _analyze(stub, overrides.type, dict(overrides.inputs)) == []


@pytest.mark.parametrize("stack", ["jetson", "x86", "gvirtus", "gvirtus-webhook", "monitoring", "monitoring-full"])
def test_the_folder_takes_the_platform_from_the_stacks_settings(stack: str, tmp_path: Path) -> None:
    settings = STACKS[stack]()
    with _running([sys.executable, "-u", str(POLICY)], tmp_path, settings) as stub:
        resources = []
        for item in preview(settings).registrations:
            assert _analyze(stub, item.type, dict(item.inputs)) == [], item.key
            properties = struct_pb2.Struct()
            properties.update(dict(item.inputs))
            urn = f"urn:pulumi:test::kai-anywhere::{item.type}::{item.key}"
            resources.append(proto.AnalyzerResource(type=item.type, properties=properties, urn=urn, name=item.key))
        assert list(stub.AnalyzeStack(proto.AnalyzeStackRequest(resources=resources)).diagnostics) == []
        without_operator = [resource for resource in resources if "gpu-operator-namespace" not in resource.urn]
        [diagnostic] = stub.AnalyzeStack(proto.AnalyzeStackRequest(resources=without_operator)).diagnostics
        assert diagnostic.policyName == "exceptions-in-use"


def test_the_executable_is_a_shell_script_of_two_lines() -> None:
    run = POLICY / "run"
    assert os.access(run, os.X_OK)
    assert len(run.read_text(encoding="utf-8").splitlines()) == 2
    assert shutil.which("sh") is not None
