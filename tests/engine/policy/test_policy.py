"""The policy pack on the real engine: a tampered stack creates nothing, the guard sees a weak pack.

That ours pass, and that the guard finds our pack in force, is in test_policy_docs.py.
"""

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

import simulator
from operations.errors import OperationError
from operations.policy_check import PACK, Pack, prove
from testbed.engine import Stack
from testbed.inventory import connect, inventory
from testbed.simulated import stack_settings
from testbed.stacks import ROOT, STACKS, Json

_SECTIONS = ("platform", "reservation", "gpu_operator")
_TAMPERED = ROOT / "tests/data/policy/tampered"
_OFFENCES = {
    "Pod default/bad-pod: spec.containers[0].securityContext.privileged": "privileged",
    "Pod default/bad-pod: spec.volumes[0].hostPath": "host-paths",
    "Deployment default/bad-deployment: spec.template.spec.hostNetwork": "host-access",
    'Namespace bad-namespace: metadata.labels["pod-security.kubernetes.io/enforce"]': "namespaces",
    "ClusterRole bad-role: rules[0].verbs[0]": "rbac",
}
_OFFENDERS = (
    "/api/v1/namespaces/default/pods/bad-pod",
    "/apis/apps/v1/namespaces/default/deployments/bad-deployment",
    "/api/v1/namespaces/bad-namespace",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/bad-role",
)


def _configuration(settings: Json, into: Path) -> Path:
    sections = {key: settings[key] for key in _SECTIONS if key in settings}
    file = into / "policy-config.json"
    file.write_text(json.dumps(dict.fromkeys(PACK.canaries(), sections)), encoding="utf-8")
    return file


@pytest.fixture
def api(cluster: simulator.ControlPlane) -> Iterator[httpx2.Client]:
    with connect(cluster) as connected:
        yield connected


class TestOnStacks:
    """Previews and updates."""

    def test_the_jetson_stack_fails_where_the_pack_is_not_told_the_platform(
        self, cluster: simulator.ControlPlane, engine_environment: dict[str, str], tmp_path: Path
    ) -> None:
        settings = stack_settings(STACKS["jetson"](), cluster)
        stack = Stack(tmp_path / "project", settings, engine_environment)
        run = stack.preview("--policy-pack", str(PACK.executable), expect=1)
        assert "rule:   privileged" in run.output
        assert "MutatingAdmissionPolicy kai-anywhere-reservation-overrides" in run.output

    def test_a_tampered_stack_fails_names_every_field_and_creates_nothing(
        self,
        cluster: simulator.ControlPlane,
        api: httpx2.Client,
        engine_environment: dict[str, str],
        tmp_path: Path,
    ) -> None:
        settings = stack_settings(STACKS["jetson"](), cluster)
        stack = Stack(tmp_path / "project", settings, engine_environment, program=_TAMPERED)
        configuration = _configuration(settings, tmp_path)
        options = ("--policy-pack", str(PACK.executable), "--policy-pack-config", str(configuration))
        before = inventory(api)
        # `up` shows its preview first, and stops there.
        previewed = stack.run("up", "--yes", *options, expect=None)
        assert previewed.code != 0
        for field, rule in _OFFENCES.items():
            assert field in previewed.output
            assert f"rule:   {rule}" in previewed.output
        assert previewed.output.count("[mandatory]") == len(_OFFENCES)
        assert inventory(api) == before
        stack.up(*options, expect=None)
        for path in _OFFENDERS:
            assert api.get(path).status_code == 404, f"{path} exists although a policy refuses it"
        stack.destroy()
        assert inventory(api) == before


class TestGuard:
    """What `make policy` asks of a pack before it trusts it."""

    @staticmethod
    def _prove(pack: Pack, configuration: object, environment: dict[str, str], folder: Path) -> str:
        file = folder / "config.json"
        file.write_text(json.dumps(configuration), encoding="utf-8")
        with pytest.raises(OperationError) as caught:
            prove(pack, file, environment, folder)
        return str(caught.value)

    @staticmethod
    def _pack(folder: Path, program: str, name: str = PACK.name) -> Pack:
        """A pack of a program's text, in place of this repository's."""
        made = folder / "pack"
        made.mkdir()
        (made / "PulumiPolicy.yaml").write_text("runtime: python\nversion: 0.1.0\n", encoding="utf-8")
        (made / "pack.py").write_text(program, encoding="utf-8")
        run = made / "run"
        run.write_text(f'#!/bin/sh\nexec "{sys.executable}" -u "{made}/pack.py"\n', encoding="utf-8")
        run.chmod(0o755)
        return Pack(name, run, PACK.canary)

    @pytest.mark.parametrize(
        ("configuration", "policies"),
        [
            ({"all": "disabled"}, {"privilege", "exceptions-in-use"}),
            ({"all": {"enforcementLevel": "advisory"}}, {"privilege", "exceptions-in-use"}),
            (
                {"privilege": "advisory", "exceptions-in-use": {"enforcementLevel": "disabled"}},
                {"privilege", "exceptions-in-use"},
            ),
        ],
    )
    def test_a_configuration_that_weakens_it_is_refused(
        self, engine_environment: dict[str, str], tmp_path: Path, configuration: object, policies: set[str]
    ) -> None:
        message = self._prove(PACK, configuration, engine_environment, tmp_path)
        assert "let pass what it must refuse" in message
        assert set(re.findall(r"(?m)^  ([\w-]+): ", message)) == policies

    def test_a_configuration_that_the_pack_does_not_take_is_refused(
        self, engine_environment: dict[str, str], tmp_path: Path
    ) -> None:
        message = self._prove(PACK, {"privilege": {"platform": 3}}, engine_environment, tmp_path)
        assert "platform" in message

    def test_another_pack_is_refused(self, engine_environment: dict[str, str], tmp_path: Path) -> None:
        program = (
            "from pulumi_policy import EnforcementLevel, PolicyPack, ResourceValidationPolicy\n"
            "policy = ResourceValidationPolicy(name='privilege', description='d', validate=lambda a, r: None)\n"
            "PolicyPack(name='other', enforcement_level=EnforcementLevel.MANDATORY, policies=[policy])\n"
        )
        message = self._prove(self._pack(tmp_path, program), {}, engine_environment, tmp_path)
        assert "The policy pack kai-anywhere 0.1.0 did not run; what ran: other 0.1.0." in message

    def test_a_pack_without_a_rule_is_refused(self, engine_environment: dict[str, str], tmp_path: Path) -> None:
        copied = tmp_path / "copied"
        for folder in ("pod_checks", "policy"):
            shutil.copytree(ROOT / folder, copied / folder)
        rules = copied / "policy/rules/__init__.py"
        text = rules.read_text(encoding="utf-8")
        assert text.count("    host_paths.RULE,\n") == 1
        rules.write_text(text.replace("    host_paths.RULE,\n", ""), encoding="utf-8")
        pack = Pack(PACK.name, copied / "policy/run", PACK.canary)
        message = self._prove(pack, {}, engine_environment, tmp_path)
        assert "privilege: the canary of the rule host-paths (kubernetes:apps/v1:DaemonSet)" in message
        assert "rule privileged" not in message

    def test_a_pack_that_dies_at_its_start_is_told_with_its_last_words(
        self, engine_environment: dict[str, str], tmp_path: Path
    ) -> None:
        message = self._prove(
            self._pack(tmp_path, "raise SystemExit('no module named policy')"), {}, engine_environment, tmp_path
        )
        assert "ended where it must print its port" in message
        assert "no module named policy" in message
