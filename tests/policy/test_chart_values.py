"""Values that a chart gets by dotted name are judged as those that stand in its values."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pulumi import FileAsset, RemoteAsset

from policy.own_exceptions import PROGRAM_FOLDER
from policy.reading import Hole
from tests.policy.objects import UNKNOWN, Json, findings

_APPLICATION = "kubernetes:argoproj.io/v1alpha1:Application"
_HELM_CHART = "kubernetes:helm.cattle.io/v1:HelmChart"
_TERRAFORM = "helm:index/release:Release"

PLACES: dict[str, tuple[str, Callable[[dict[str, object]], Json]]] = {
    "Argo CD": (
        _APPLICATION,
        lambda values: {
            "kind": "Application",
            "apiVersion": "argoproj.io/v1alpha1",
            "metadata": {"name": "a"},
            "spec": {"source": {"chart": "a", "targetRevision": "1.2.3", "helm": {"parameters": _list(values)}}},
        },
    ),
    "k3s": (
        _HELM_CHART,
        lambda values: {"metadata": {"name": "a"}, "spec": {"chart": "a", "version": "1.2.3", "set": values}},
    ),
    "Terraform": (_TERRAFORM, lambda values: {"name": "a", "chart": "./a", "sets": _list(values)}),
    "Terraform, secret": (_TERRAFORM, lambda values: {"name": "a", "chart": "./a", "setSensitives": _list(values)}),
}


def _list(values: dict[str, object]) -> list[Json]:
    return [{"name": name, "value": value} for name, value in values.items()]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"hostNetwork": "true"}, "host-access"),
        ({"agent.hostPID": "true"}, "host-access"),
        ({"volumes[0].hostPath.path": "/"}, "host-paths"),
        ({"securityContext.capabilities.add[0]": "SYS_ADMIN"}, "host-access"),
        ({"securityContext.capabilities.add": "{CHOWN,SYS_ADMIN}"}, "host-access"),
        ({"containers[0].env[0].name": "NVIDIA_VISIBLE_DEVICES", "containers[0].env[0].value": "all"}, "devices"),
        ({r"labels.pod-security\.kubernetes\.io/enforce": "privileged"}, "namespaces"),
        ({"rbac.roleRef.name": "cluster-admin"}, "rbac"),
        ({"mode": "fast,hostNetwork=true"}, "host-access"),
        ({"mode=fast,hostNetwork": "true"}, "host-access"),
        ({"mode": "x{,hostNetwork=true,y=}"}, "host-access"),
        ({"mode": "x={,hostNetwork=true,y=}"}, "host-access"),
        ({"mode": "{a,b},hostNetwork=true"}, "host-access"),
        ({"hostNetwork": UNKNOWN}, "host-access"),
    ],
)
def test_a_value_by_its_dotted_name_is_judged(place: str, values: dict[str, object], rule: str) -> None:
    token, made = PLACES[place]
    assert {finding.rule for finding in findings(token, made(values))} == {rule}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "values",
    [
        {"hostNetwork": "false"},
        {"securityContext.capabilities.add": "{CHOWN,KILL}"},
        {"description": "hostNetwork=true"},
        {"list": "{a,hostNetwork=true}"},
        {"braces": "{" * 200_000},
        {"a." * 100_000: "x," * 100_000},
        {"description": r"fast\,hostNetwork=true"},
        {r"a\.hostNetwork": "x", "mode": UNKNOWN},
        {"a..b": "x", "": "x", "[3]": "x", "a[999999999].b": "x", "=": "", "{": "}"},
        {"a": "x", "a.b": "y", "a[0]": "z"},
    ],
)
def test_a_harmless_value_passes_at_once(place: str, values: dict[str, object]) -> None:
    token, made = PLACES[place]
    assert findings(token, made(values)) == ()


def test_a_list_of_set_values_is_one() -> None:
    release = {"name": "a", "chart": "./a", "setLists": [{"name": "a.capabilities.add", "values": ["SYS_ADMIN"]}]}
    assert {finding.rule for finding in findings(_TERRAFORM, release)} == {"host-access"}


@pytest.mark.parametrize("key", ["set", "sets", "parameters"])
def test_what_only_resembles_such_values_hides_nothing(key: str) -> None:
    pod = {"name": "a", "value": "x", "hostNetwork": True, "containers": []}
    for content in ([pod], pod, [{"name": "a", "value": pod}]):
        custom = {"kind": "Thing", "apiVersion": "example.com/v1", "metadata": {"name": "a"}, "helm": {key: content}}
        result = findings("kubernetes:example.com/v1:Thing", custom)
        assert {finding.rule for finding in result} == {"host-access"}
    chart = {"metadata": {"name": "a"}, "spec": {"chart": "a", "version": "1.2.3", "set": {"a": pod}}}
    assert {finding.rule for finding in findings(_HELM_CHART, chart)} == {"host-access"}


def test_a_name_that_is_not_known_hides_no_other() -> None:
    application = PLACES["Argo CD"][1]({"a.hostNetwork": "true"})
    parameters = application["spec"]["source"]["helm"]["parameters"]
    parameters.append({"name": UNKNOWN, "value": "x"})
    assert {finding.rule for finding in findings(_APPLICATION, application)} == {"host-access"}


_RELEASE = "kubernetes:helm.sh/v3:Release"


def _release(asset: object) -> Json:
    return {"name": "a", "chart": "./a", "valueYamlFiles": [asset]}


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program's folder, with two files of values, and one beside it."""
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "good.yaml").write_text("hostNetwork: false\n", encoding="utf-8")
    (folder / "bad.yaml").write_text("hostNetwork: true\n", encoding="utf-8")
    (folder / "binary.yaml").write_bytes(b"\xff\xfe\xfa")
    (folder / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    (tmp_path / "outside.yaml").write_text("a: b\n", encoding="utf-8")
    monkeypatch.setenv(PROGRAM_FOLDER, str(folder))
    return folder


@pytest.mark.parametrize("token", [_RELEASE, "kubernetes:helm.sh/v4:Chart"])
def test_a_file_of_values_in_the_programs_folder_is_judged(program: Path, token: str) -> None:
    for name in ("bad.yaml", str(program / "bad.yaml"), "./bad.yaml"):
        [finding] = findings(token, _release(FileAsset(name)))
        assert (finding.rule, finding.path) == ("host-access", "valueYamlFiles[0](text).hostNetwork")
    assert findings(token, _release(FileAsset("good.yaml"))) == ()


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize(
    "asset",
    [
        *map(FileAsset, ("../outside.yaml", "link.yaml", "missing.yaml", "binary.yaml", ".", "/etc/hostname")),
        RemoteAsset("https://example.com/values.yaml"),
    ],
)
def test_values_from_elsewhere_are_a_finding_that_says_the_way_out(asset: object) -> None:
    [finding] = findings(_RELEASE, _release(asset))
    assert (finding.rule, finding.path, finding.found) == ("helm", "valueYamlFiles[0]", Hole.ELSEWHERE.value)
    assert "put the file into the program's folder" in finding.remedy


def test_a_pack_that_does_not_know_the_programs_folder_reads_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PROGRAM_FOLDER, raising=False)
    [finding] = findings(_RELEASE, _release(FileAsset(__file__)))
    assert finding.rule == "helm"


@pytest.mark.usefixtures("program")
def test_files_that_are_no_chart_values_are_not_read() -> None:
    copied = {"remotePath": "/opt/a.yaml", "source": FileAsset("bad.yaml")}
    assert findings("command:remote:CopyToRemote", copied) == ()
