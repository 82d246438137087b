"""What a team chooses: the platform that CI says, a rule's own level, and exceptions as data of its own repository."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from pulumi_policy import (
    PolicyResource,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.proxy import unknown_checking_proxy

from operations.policy_check import PACK
from operations.policy_check.configuration import configured, levels
from policy import own_exceptions
from policy.pack import ADVICE, policies
from policy.stack_platform import UNKNOWN_PROGRAMS, stack_facts
from testbed.stacks import ROOT
from tests.policy.objects import UNKNOWN, Json, changed, pod
from tests.support.full_disk import room_for

POD = "kubernetes:core/v1:Pod"
_TEGRA = {"platform": {"kind": "tegra", "tegra_nodes": {"jetson-1": {}}}}
_PRIVILEGED = changed(pod(), "spec.containers.0.securityContext.privileged", True)
_HOST_PATH = changed(pod(), "spec.volumes.0", {"name": "cache", "hostPath": {"path": "/proc"}})
_UNKNOWN_IMAGE = changed(pod(), "spec.containers.0.image", UNKNOWN)


def _day(days: int) -> str:
    return str(datetime.now(UTC).date() + timedelta(days=days))


def _exception(**changes: object) -> Json:
    entry = {
        "rule": "host-paths",
        "kind": "Pod",
        "namespace": "team",
        "name": "web",
        "value": "/proc",
        "who": "team a",
        "why": "reads the node's load",
        "until": _day(0),
    }
    return {key: value for key, value in (entry | changes).items() if value is not None}


def _messages(props: Json, config: Json, token: str = POD, stack: str = "prod") -> dict[str, list[str]]:
    """What each policy reports of one resource, as the first line of each message."""
    messages: dict[str, list[str]] = {}
    urn = f"urn:pulumi:{stack}::p::{token}::web"
    proxy = unknown_checking_proxy(props)
    for policy in policies():
        if isinstance(policy, ResourceValidationPolicy):
            args: ResourceValidationArgs | StackValidationArgs
            args = ResourceValidationArgs(token, proxy, urn, "web", None, None, config)  # type: ignore[arg-type]
        else:
            resource = PolicyResource(token, proxy, urn, "web", None, None, None, [], {})  # type: ignore[arg-type]
            args = StackValidationArgs([resource], config)
        assert isinstance(policy, ResourceValidationPolicy | StackValidationPolicy)

        def report(message: str, _urn: str | None = None, name: str = policy.name) -> None:
            messages.setdefault(name, []).append(message)

        policy.validate(args, report)  # type: ignore[arg-type]
    return messages


class TestPlatform:
    """The pack's configuration wins over the stack's file."""

    def test_a_stack_can_not_talk_the_pack_into_another_platform(self) -> None:
        facts = stack_facts(json.dumps(_TEGRA), {"platform": {"kind": "x86"}})
        assert not facts.grants
        assert facts.problem == (
            "the stack's file and the pack's configuration differ in platform; the configuration applies"
        )

    def test_what_both_say_alike_is_no_contradiction(self) -> None:
        said = {"platform": {"kind": "tegra", "tegra_nodes": {"jetson-1": {"gpu_memory_mib": 1024}}}}
        facts = stack_facts(json.dumps(said), _TEGRA)
        assert facts.tegra_nodes == {"jetson-1"}
        assert facts.problem is None

    def test_a_stack_that_turns_its_overrides_on_against_the_configuration_is_found(self) -> None:
        facts = stack_facts(
            json.dumps(_TEGRA | {"reservation": {"overrides": "auto"}}), {"reservation": {"overrides": "never"}}
        )
        assert not facts.grants
        assert "differ in reservation" in str(facts.problem)

    def test_the_stacks_file_applies_where_the_configuration_says_nothing(self) -> None:
        assert stack_facts(json.dumps(_TEGRA), {"levels": {"images": "advisory"}}).grants
        assert stack_facts(None, {"stack": _TEGRA}).grants

    def test_a_contradiction_is_a_finding_of_an_executable_pack_too(self, tmp_path: Path) -> None:
        chosen = tmp_path / "ci.json"
        chosen.write_text(json.dumps({key: {"platform": {"kind": "x86"}} for key in PACK.canaries()}), encoding="utf-8")
        pack = type(PACK)(PACK.name, PACK.executable, PACK.canary, chosen)
        config = json.loads(configured(pack, _TEGRA, tmp_path).read_text(encoding="utf-8"))
        [message] = _messages(pod(), config["exceptions-in-use"])["exceptions-in-use"]
        assert "differ in platform" in message

    @pytest.mark.parametrize("weak", [{"all": "advisory"}, {"privilege": "disabled"}, []])
    def test_a_configuration_is_handed_over_as_it_is_but_for_that(self, tmp_path: Path, weak: object) -> None:
        (tmp_path / "ci.json").write_text(json.dumps(weak), encoding="utf-8")
        pack = type(PACK)(PACK.name, PACK.executable, PACK.canary, tmp_path / "ci.json")
        assert json.loads(configured(pack, _TEGRA, tmp_path).read_text(encoding="utf-8")) == weak

    def test_a_full_disk_leaves_no_half_of_it_and_is_told_with_the_file(self, tmp_path: Path) -> None:
        with room_for(10), pytest.raises(OSError, match="File too large") as refused:
            configured(PACK, _TEGRA, tmp_path)
        assert refused.value.filename == str(tmp_path / "policy-config.json")
        assert list(tmp_path.iterdir()) == []


class TestLevels:
    """Each rule has a level of its own."""

    def test_a_finding_is_mandatory_unless_its_rule_is_lowered_by_name(self) -> None:
        assert list(_messages(_PRIVILEGED, {})) == ["privilege"]
        assert list(_messages(_PRIVILEGED, {"levels": {"privileged": "advisory"}})) == [ADVICE]
        assert _messages(_PRIVILEGED, {"levels": {"privileged": "disabled"}}) == {}
        assert list(_messages(_HOST_PATH, {"levels": {"privileged": "disabled"}})) == ["privilege"]

    @pytest.mark.parametrize(
        ("token", "props", "field"),
        [
            (POD, _UNKNOWN_IMAGE, "spec.containers[0].image"),
            (POD, changed(pod(), "spec.containers.0.args", UNKNOWN), "spec.containers[0].args"),
            ("command:remote:Command", {"create": UNKNOWN}, "create"),
            ("kubernetes:yaml/v2:ConfigGroup", {"yaml": UNKNOWN}, "yaml"),
        ],
    )
    def test_an_image_command_or_manifest_that_is_unknown_is_one_advisory(
        self, token: str, props: Json, field: str
    ) -> None:
        messages = _messages(props, {}, token)
        assert list(messages) == [ADVICE]
        [message] = messages[ADVICE]
        assert f": {field}\n" in message
        assert "unknown until the update runs" in message

    def test_it_is_mandatory_by_choice(self) -> None:
        assert list(_messages(_UNKNOWN_IMAGE, {"levels": {UNKNOWN_PROGRAMS: "mandatory"}})) == ["privilege"]
        assert _messages(_UNKNOWN_IMAGE, {"levels": {UNKNOWN_PROGRAMS: "disabled"}}) == {}

    def test_another_field_that_is_unknown_stays_mandatory(self) -> None:
        unknown = changed(pod(), "spec.containers.0.securityContext.privileged", UNKNOWN)
        assert list(_messages(unknown, {})) == ["privilege"]

    def test_a_rule_that_is_none_is_a_finding(self) -> None:
        [message] = _messages(pod(), {"levels": {"privilege": "advisory"}})["exceptions-in-use"]
        assert "there is no rule privilege" in message

    def test_a_configuration_tells_which_rules_it_lowers(self, tmp_path: Path) -> None:
        file = tmp_path / "c.json"
        file.write_text(json.dumps({"privilege": {"levels": {"images": "advisory"}}, "all": "x"}), encoding="utf-8")
        assert levels(file) == {"images": "advisory"}


class TestExceptions:
    """Findings that a team accepts."""

    @pytest.mark.parametrize(
        ("changes", "props"),
        [
            ({}, _HOST_PATH),
            ({"field": "spec.volumes[0].hostPath"}, _HOST_PATH),
            ({"value": {"path": "/proc"}}, _HOST_PATH),
            ({"stacks": ["prod", "lab"]}, _HOST_PATH),
            ({"rule": "privileged", "value": True}, _PRIVILEGED),
        ],
    )
    def test_one_value_of_one_object_is_accepted(self, changes: Json, props: Json) -> None:
        assert _messages(props, {"exceptions": [_exception(**changes)]}) == {}

    @pytest.mark.parametrize(
        ("changes", "props"),
        [
            ({"value": "/sys"}, _HOST_PATH),
            ({"value": 1, "rule": "privileged"}, _PRIVILEGED),
            ({"namespace": "other"}, _HOST_PATH),
            ({"namespace": ""}, _HOST_PATH),
            ({"name": "other"}, _HOST_PATH),
            ({"kind": "DaemonSet"}, _HOST_PATH),
            ({"rule": "privileged"}, _HOST_PATH),
            ({"field": "spec.volumes[1].hostPath"}, _HOST_PATH),
        ],
    )
    def test_nothing_else_is_and_the_exception_is_found_unused(self, changes: Json, props: Json) -> None:
        messages = _messages(props, {"exceptions": [_exception(**changes)]})
        assert list(messages) == ["privilege", "exceptions-in-use"]
        [message] = messages["exceptions-in-use"]
        assert "is not needed by this stack" in message

    def test_one_that_is_over_covers_nothing_and_is_a_finding(self) -> None:
        messages = _messages(_HOST_PATH, {"exceptions": [_exception(until=_day(-1))]})
        assert list(messages) == ["privilege", "exceptions-in-use"]
        assert f"ended on {_day(-1)}" in messages["exceptions-in-use"][0]

    def test_one_for_another_stack_is_neither_in_force_nor_unused(self) -> None:
        assert list(_messages(_HOST_PATH, {"exceptions": [_exception(stacks=["lab"])]})) == ["privilege"]

    def test_a_hidden_value_is_accepted_by_itself_and_not_by_what_is_shown(self) -> None:
        props = changed(pod(), "spec.containers.0.env.0", {"name": "DB_PASSWORD", "value": "not-one"})
        rule = {"rule": "secrets-and-host-commands"}
        assert _messages(props, {"exceptions": [_exception(**rule, value="not-one")]}) == {}
        shown = _exception(**rule, value="(hidden: it may be a secret)")
        assert "privilege" in _messages(props, {"exceptions": [shown]})

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"why": None}, "0.why"),
            ({"who": ""}, "0.who"),
            ({"until": "soon"}, "0.until"),
            ({"rule": "host-path"}, "the rules are"),
            ({"reason": "x"}, "0.reason"),
        ],
    )
    def test_a_wrong_one_is_a_finding_and_none_is_in_force(self, changes: Json, says: str) -> None:
        messages = _messages(_HOST_PATH, {"exceptions": [_exception(), _exception(**changes)][::-1]})
        assert list(messages) == ["privilege", "exceptions-in-use"]
        assert says in messages["exceptions-in-use"][0]

    def test_they_are_read_from_the_programs_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(own_exceptions.PROGRAM_FOLDER, str(tmp_path))
        own_exceptions.of_file.cache_clear()
        assert list(_messages(_HOST_PATH, {})) == ["privilege"]
        file = tmp_path / own_exceptions.FILE
        file.write_text(yaml.safe_dump([_exception(until=datetime.now(UTC).date())]), encoding="utf-8")
        own_exceptions.of_file.cache_clear()
        assert _messages(_HOST_PATH, {}) == {}
        assert list(_messages(_HOST_PATH, {"exceptions": []})) == ["privilege"]

    @pytest.mark.parametrize(
        ("project", "accepted"), [("", True), ("src", False)], ids=["a project with main", "another project"]
    )
    def test_they_are_read_beside_the_projects_file_where_main_names_a_folder_below(
        self, project: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, accepted: bool
    ) -> None:
        (tmp_path / "src").mkdir()
        (tmp_path / "Pulumi.yaml").touch()
        (tmp_path / project / "Pulumi.yml").touch()
        (tmp_path / own_exceptions.FILE).write_text(yaml.safe_dump([_exception()]), encoding="utf-8")
        monkeypatch.setenv(own_exceptions.PROGRAM_FOLDER, str(tmp_path / "src"))
        own_exceptions.of_file.cache_clear()
        messages = _messages(_HOST_PATH, {})
        own_exceptions.of_file.cache_clear()
        assert list(messages) == ([] if accepted else ["privilege"])

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("a: [", "line 1"),
            # Python's own words, which are others from 3.14 on.
            ("- until: 2027-02-30", "range"),
            ("- until: !!bool soon", "'soon'"),
            ("- {until: 2027-06-30,\n   until: 2028-06-30}", "key 'until' in line 2 stands twice: remove one"),
            ("[" * 3000, "maximum recursion depth"),
        ],
        ids=["no YAML", "no date", "no truth", "a key twice", "too deep"],
    )
    def test_a_file_that_says_nothing_or_two_things_is_a_finding_that_names_the_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
    ) -> None:
        monkeypatch.setenv(own_exceptions.PROGRAM_FOLDER, str(tmp_path))
        (tmp_path / own_exceptions.FILE).write_text(text, encoding="utf-8")
        own_exceptions.of_file.cache_clear()
        [message] = _messages({}, {})["exceptions-in-use"]
        own_exceptions.of_file.cache_clear()
        assert f"{own_exceptions.FILE} can't be read as YAML: " in message
        assert says in message

    def test_the_exception_of_the_page_covers_what_it_says(self) -> None:
        page = (ROOT / "docs/policy.md").read_text(encoding="utf-8")
        [block] = re.findall(r"(?ms)^```yml\n(.*?)^```$", page)
        [entry] = yaml.safe_load(block)
        spec = _HOST_PATH["spec"]
        metadata = {"name": "node-exporter", "namespace": "monitoring"}
        exporter = {"kind": "DaemonSet", "metadata": metadata, "spec": {"template": {"spec": spec}}}
        config = {"exceptions": [entry | {"until": _day(0)}]}
        assert _messages(exporter, config, "kubernetes:apps/v1:DaemonSet") == {}
