"""Which pod a rung has, and which rung follows which symptom."""

from collections.abc import Sequence

import pytest

from config.reservation import Privilege
from manifests.reservation import APP_LABEL, tegra_fragment
from manifests.reservation import NAMESPACE as RESERVATION
from operations.privilege_probe import ladder
from operations.privilege_probe.ladder import (
    ANSWER_SECONDS,
    LABEL,
    LADDER,
    MEANINGS,
    NAMESPACE,
    START_SECONDS,
    Attempt,
    Feature,
    Rung,
    Seen,
    Symptom,
    next_rung,
    probe_namespace,
    read,
    rights,
)
from testbed.stacks import Json, changed, jetson, never, parse

IMAGE = "registry.example.com/kai/resourcereservation:v0.18.6"
BY_NAME = {rung.name: rung for rung in LADDER}


def _pod(name: str, stack: Json | None = None) -> Json:
    return ladder.pod(parse(stack or jetson()), BY_NAME[name], "jetson-1", IMAGE, (44, 104))


def _after(*attempts: tuple[str, Symptom]) -> str | None:
    rung = next_rung([Attempt(BY_NAME[name], symptom) for name, symptom in attempts])
    return rung.name if rung else None


def _seen(log: str = "", *words: str, ended: bool = True, started: bool = True, seconds: float = 1) -> Seen:
    return Seen("", ended, started, log, words, seconds)


@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.name)
def test_every_pod_is_the_probes_own_and_never_kais(rung: Rung) -> None:
    pod = _pod(rung.name)
    assert pod["metadata"]["namespace"] == NAMESPACE != RESERVATION
    assert pod["metadata"]["labels"][LABEL] == "true"
    assert APP_LABEL not in pod["metadata"]["labels"].values()
    [container] = pod["spec"]["containers"]
    assert (pod["spec"]["nodeName"], container["image"]) == ("jetson-1", IMAGE)
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert [variable["name"] for variable in container["env"][:2]] == ["POD_NAME", "POD_NAMESPACE"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert ("privileged" in container["securityContext"]) == (rung.name == "privileged")
    assert (container["securityContext"]["runAsUser"] == 0) == bool({Feature.ROOT} & rung.features)


def test_the_plain_pod_has_nothing_beyond_its_gpu() -> None:
    spec = _pod("plain")["spec"]
    assert spec.keys().isdisjoint({"runtimeClassName", "volumes", "securityContext"})
    assert len(spec["containers"][0]["env"]) == 2
    assert "volumeMounts" not in spec["containers"][0]


@pytest.mark.parametrize("name", ["variables", "libraries", "privileged"])
@pytest.mark.parametrize("stack", [jetson(), never()], ids=["overrides", "never"])
def test_a_rung_of_the_settings_has_what_the_overrides_add(name: str, stack: Json) -> None:
    privilege = BY_NAME[name].privilege
    assert privilege is not None
    given = tegra_fragment(parse(jetson()), privilege)
    pod = _pod(name, stack)
    [container] = pod["spec"]["containers"]
    assert container["env"][2:] == given.env
    assert pod["spec"].get("volumes", []) == given.volumes
    assert container.get("volumeMounts", []) == given.volume_mounts
    assert container["securityContext"].items() >= given.security_context.items()
    assert pod["spec"]["runtimeClassName"] == given.runtime_class_name


def test_the_folders_are_those_of_the_node() -> None:
    stack = changed(jetson(), "platform.tegra_nodes.jetson-1.driver_library_paths", ["/opt/nvml"])
    assert [volume["hostPath"]["path"] for volume in _pod("libraries", stack)["spec"]["volumes"]] == ["/opt/nvml"]


def test_groups_are_those_of_the_probe_on_rungs_that_have_them_alone() -> None:
    for rung in LADDER:
        context = _pod(rung.name)["spec"].get("securityContext")
        assert context == ({"supplementalGroups": [44, 104]} if Feature.GROUPS in rung.features else None)


def test_only_pods_with_folders_of_the_host_get_a_privileged_namespace() -> None:
    for rung in LADDER:
        labels = probe_namespace(rung)["metadata"]["labels"]
        expected = "privileged" if "volumes" in _pod(rung.name)["spec"] else "baseline"
        assert labels["pod-security.kubernetes.io/enforce"] == expected
        assert labels[LABEL] == "true"


def test_the_account_may_get_and_patch_pods_of_the_probes_namespace_and_nothing_else() -> None:
    account, role, binding = rights()
    assert role["kind"] == "Role"
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch"]}]
    assert {manifest["metadata"]["namespace"] for manifest in (account, role, binding)} == {NAMESPACE}
    assert [subject["name"] for subject in binding["subjects"]] == [account["metadata"]["name"]]


LIBRARY = "unable to initialize NVML: ERROR_LIBRARY_NOT_FOUND"


@pytest.mark.parametrize(
    ("text", "symptom"),
    [
        (LIBRARY, Symptom.NO_LIBRARY),
        ("unable to initialize NVML: Driver Not Loaded", Symptom.CLOSED),
        ("unable to get device count: ERROR_NO_PERMISSION", Symptom.CLOSED),
        ("unable to get device count: Insufficient Permissions", Symptom.CLOSED),
        ("CreateContainerError: OCI hook: unsupported device id: GPU-5d41", Symptom.UNKNOWN_ID),
        ("CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=GPU-5d41", Symptom.UNKNOWN_ID),
        ("found 2 devices, 1 was expected", Symptom.SEVERAL),
        ("found 12 devices, 1 was expected", Symptom.SEVERAL),
        ("found 0 devices, 1 was expected", Symptom.CLOSED),
        ("unable to initialize NVML: Unknown Error", Symptom.CLOSED),
        ("the registry answers: unknown error", Symptom.OTHER),
        ("OutOfnvidia.com/gpu: Node didn't have enough resource: nvidia.com/gpu", Symptom.NO_GPU),
        ("UnexpectedAdmissionError: Allocate failed for nvidia.com/gpu", Symptom.NO_GPU),
        ('ImagePullBackOff: Back-off pulling image "x"', Symptom.NO_IMAGE),
        ("could not find pod. dial tcp 10.43.0.1:443: i/o timeout", Symptom.NO_API),
        ('no runtime for "nvidia" is configured', Symptom.NO_RUNTIME),
        ("hostPath type check failed: /x is not a directory", Symptom.NO_FOLDER),
        ("panic: something else", Symptom.OTHER),
    ],
)
def test_a_failure_is_read_from_log_and_state(text: str, symptom: Symptom) -> None:
    assert read(_seen(text)) is symptom
    assert read(_seen("", text)) is symptom


def test_every_symptom_with_a_pattern_is_told_apart() -> None:
    patterns = [meaning.pattern for meaning in MEANINGS.values() if meaning.pattern]
    assert MEANINGS.keys() == set(Symptom)
    assert [bool(pattern.search(LIBRARY)) for pattern in patterns].count(True) == 1


def test_an_answer_counts_whatever_else_was_said() -> None:
    assert read(Seen("GPU-1", ended=True, started=True, log=LIBRARY, messages=(), seconds=0)) is Symptom.HELD


def test_a_pod_that_runs_has_its_time() -> None:
    assert read(_seen("Found 1 GPU devices", ended=False, seconds=ANSWER_SECONDS - 1)) is None
    assert read(_seen("Found 1 GPU devices", ended=False, seconds=ANSWER_SECONDS)) is Symptom.OTHER


def test_the_pull_of_the_image_is_not_taken_from_it() -> None:
    assert read(_seen(ended=False, started=False, seconds=START_SECONDS - 1)) is None
    assert read(_seen(ended=False, started=False, seconds=START_SECONDS)) is Symptom.NOT_STARTED


def test_a_sandbox_that_can_not_come_is_told_at_once() -> None:
    waiting = _seen("", 'no runtime for "nvidia" is configured', ended=False, started=False)
    assert read(waiting) is Symptom.NO_RUNTIME


@pytest.mark.parametrize(
    ("attempts", "following"),
    [
        ([], "plain"),
        ([("plain", Symptom.NO_LIBRARY)], "runtime-class"),
        ([("plain", Symptom.CLOSED)], "runtime-class"),
        ([("runtime-class", Symptom.NO_LIBRARY)], "variables"),
        ([("variables", Symptom.NO_LIBRARY)], "libraries"),
        ([("libraries", Symptom.NO_LIBRARY)], "privileged"),
        ([("runtime-class", Symptom.CLOSED)], "groups"),
        ([("groups", Symptom.CLOSED)], "root"),
        ([("root", Symptom.CLOSED)], "privileged"),
        ([("libraries", Symptom.CLOSED)], "libraries-groups"),
        ([("libraries-groups", Symptom.CLOSED)], "libraries-root"),
        ([("libraries-root", Symptom.CLOSED)], "privileged"),
        ([("privileged", Symptom.CLOSED)], None),
        ([("variables", Symptom.OTHER)], "groups"),
        ([("plain", Symptom.HELD)], "variables"),
        ([("runtime-class", Symptom.HELD)], "variables"),
        ([("root", Symptom.HELD)], "privileged"),
        ([("variables", Symptom.HELD)], None),
        ([("groups", Symptom.HELD)], None),
        ([("plain", Symptom.REFUSED)], None),
        ([("variables", Symptom.NO_LIBRARY), ("libraries", Symptom.REFUSED)], None),
        ([("runtime-class", Symptom.CLOSED), ("groups", Symptom.REFUSED)], None),
        *([([("runtime-class", symptom)], None) for symptom, meaning in MEANINGS.items() if not meaning.helped_by]),
    ],
)
def test_the_symptom_decides_on_the_next_rung(attempts: Sequence[tuple[str, Symptom]], following: str | None) -> None:
    assert _after(*attempts) == following


def test_a_climb_never_ends_before_privilege_while_something_may_help() -> None:
    for symptom in (Symptom.NO_LIBRARY, Symptom.CLOSED, Symptom.OTHER):
        attempts: list[Attempt] = []
        while rung := next_rung(attempts):
            attempts.append(Attempt(rung, symptom))
        assert attempts[-1].rung.name == "privileged"
        assert len({attempt.rung for attempt in attempts}) == len(attempts)


def test_every_setting_has_its_rung() -> None:
    assert {rung.privilege for rung in LADDER} == {*Privilege, None}
