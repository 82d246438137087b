"""`make update` by rendering: what a chart does not read any more is found, whatever it was."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest
import yaml

from manifests import gpu_operator, kai
from manifests.objects import HelmRelease
from operations.charts.files import Chart, read_chart
from operations.charts.helm import Helm
from operations.charts.update import check, with_every_option
from operations.charts.values import Reading, ValuePath, leaves
from operations.errors import OperationError
from operations.stack_file import read_stack_file, settings_of
from testbed.stacks import ROOT, STACK_FILES, STACKS, Json, parse
from toolchain.programs import KUBERNETES_VERSION

CHARTS = ROOT / "simulator" / "charts"
FACTS = ROOT / "tests" / "data" / "charts"
RELEASES = {"kai-scheduler": kai.release, "gpu-operator": gpu_operator.release}


_CONTENTS = {file.name: read_stack_file(file) for file in sorted(STACK_FILES.glob("Pulumi.*.yaml"))}
SETTINGS = {name: settings_of(content, name) for name, content in _CONTENTS.items()}
EVERY_OPTION = {name: settings_of(with_every_option(content), name) for name, content in _CONTENTS.items()}
"""The same stacks, with all values that they may pass: to render a chart for each of them takes seconds."""


def _passed(name: str) -> dict[ValuePath, HelmRelease]:
    """Every value path, with a release that passes it."""
    releases = [RELEASES[name](settings) for settings in EVERY_OPTION.values()]
    return {path: release for release in releases for path, _ in leaves(release.values)}


@pytest.fixture(scope="session")
def helm() -> Helm:
    """The program."""
    return Helm.installed()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """KAI's chart, to be changed."""
    return _copy(tmp_path, "kai-scheduler")


def _copy(into: Path, name: str) -> Path:
    shutil.copytree(CHARTS / name, into / name)
    return into / name


def _rename(folder: Path, path: ValuePath, number: int) -> None:
    """Give one value of the chart another name: the old one is read by no template."""
    *above, key = path
    file = folder / "values.yaml"
    values = yaml.safe_load(file.read_text(encoding="utf-8"))
    place: Json = values
    for part in above:
        place = place.get(part, {})
    if key in place:
        place[f"{key}Renamed"] = place.pop(key)
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    # The templates stay as they are, and read the new name all the same: helm renders the deepest files first, and what
    # these change is seen by all others.
    first = folder.joinpath("templates", *"abcdef", f"rename-{number}.yaml")
    first.parent.mkdir(parents=True, exist_ok=True)
    names = " ".join(json.dumps(key) for key in above)
    first.write_text(
        f"""{{{{- $place := .Values }}}}
{{{{- range (list {names}) }}}}
{{{{- $place = get $place . | default dict }}}}
{{{{- end }}}}
{{{{- $_ := unset $place "{key}" }}}}
{{{{- if hasKey $place "{key}Renamed" }}}}
{{{{- $_ := set $place "{key}" (get $place "{key}Renamed") }}}}
{{{{- end }}}}
""",
        encoding="utf-8",
    )


@pytest.mark.parametrize("name", RELEASES)
def test_the_stand_in_fits_and_has_every_value(helm: Helm, name: str) -> None:
    report = check(read_chart(CHARTS / name), EVERY_OPTION, FACTS, helm)
    assert (report.refused, report.missing, report.absent) == ((), (), ())
    assert f"It has what the stacks pass to it: {len(_passed(name))} values" in report.text()
    assert [change for change in report.changes if not change.endswith(" is gone")] == [], (
        "stand-ins have less, no more"
    )


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("name", RELEASES)
def test_every_value_that_is_renamed_is_found(helm: Helm, tmp_path: Path, name: str, first: int) -> None:
    """Every second one at once, so that what stands beside it in the same section is read as before."""
    passed = _passed(name)
    renamed = sorted(passed)[first::2]
    folder = _copy(tmp_path, name)
    for number, path in enumerate(renamed):
        _rename(folder, path, number)
    chart = read_chart(folder)
    readings: dict[int, Reading] = {}
    problems: dict[str, str | None] = {}
    for path in renamed:
        release = passed[path]
        reading = readings.setdefault(id(release), Reading(helm, chart, release, KUBERNETES_VERSION))
        problems[".".join(path)] = reading.problem(path)
    assert problems == {".".join(path): "nothing that the chart renders depends on it" for path in renamed}


@pytest.mark.parametrize("name", RELEASES)
def test_the_values_of_every_stack_are_among_those_that_are_tried(name: str) -> None:
    every = {path for make in STACKS.values() for path, _ in leaves(RELEASES[name](parse(make())).values)}
    # Flags are handed through as they are.
    assert {path for path in every if path[:2] != ("scheduler", "args")} <= _passed(name).keys()


def test_what_is_renamed_in_a_template_is_reported_with_its_stack(helm: Helm, folder: Path) -> None:
    for file in (folder / "values.yaml", folder / "templates" / "defaults.yaml"):
        text = file.read_text(encoding="utf-8")
        assert "placementStrategy" in text
        file.write_text(
            text.replace(".placementStrategy", ".placement").replace("  placementStrategy: b", "  placement: b")
        )
    report = check(read_chart(folder), {"jetson": SETTINGS["Pulumi.jetson.yaml"]}, FACTS, helm)
    assert report.missing == (
        "scheduler.placementStrategy: nothing that the chart renders depends on it (stack jetson)",
    )
    assert "scheduler.placementStrategy is gone" in report.changes
    assert "scheduler.placement is new (string)" in report.changes
    assert not report.fits
    assert "Do not pin it" in report.text()


def test_a_field_that_the_definition_drops_is_no_effect(helm: Helm, folder: Path) -> None:
    definitions = folder / "crds" / "kai.scheduler.yaml"
    documents = list(yaml.safe_load_all(definitions.read_text(encoding="utf-8")))
    shard = next(document for document in documents if document["spec"]["names"]["kind"] == "SchedulingShard")
    schema = shard["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    schema.pop("x-kubernetes-preserve-unknown-fields", None)
    schema.setdefault("properties", {}).pop("placementStrategy", None)
    definitions.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    release = kai.release(SETTINGS["Pulumi.jetson.yaml"])
    reading = Reading(helm, read_chart(folder), release, KUBERNETES_VERSION)
    assert reading.problem(("scheduler", "placementStrategy")) == "nothing that the chart renders depends on it"
    assert reading.problem(("binder", "runtimeClassName")) is None


def test_a_checksum_of_all_values_and_a_random_password_prove_nothing(helm: Helm, folder: Path) -> None:
    (folder / "templates" / "secret.yaml").write_text(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: made\n  annotations:\n"
        "    checksum: {{ toYaml .Values.scheduler | sha256sum }}\n    all: {{ toYaml .Values | sha256sum }}\n"
        "stringData:\n  password: {{ randAlphaNum 20 }}\n",
        encoding="utf-8",
    )
    release = kai.release(SETTINGS["Pulumi.jetson.yaml"])
    intact = Reading(helm, read_chart(folder), release, KUBERNETES_VERSION)
    assert intact.problem(("scheduler", "placementStrategy")) is None
    file = folder / "templates" / "defaults.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace(".Values.scheduler.placementStrategy", '"binpack"'))
    reading = Reading(helm, read_chart(folder), release, KUBERNETES_VERSION)
    assert reading.problem(("scheduler", "placementStrategy")) == "nothing that the chart renders depends on it"


def test_a_value_that_the_chart_judges_itself_is_read(helm: Helm, folder: Path) -> None:
    (folder / "templates" / "judge.yaml").write_text(
        '{{- if ne .Values.mode "exact" }}{{ fail "mode is exact, nothing else" }}{{ end }}', encoding="utf-8"
    )
    release = HelmRelease("kai", "kai", kai.release(SETTINGS["Pulumi.jetson.yaml"]).source, {"mode": "exact"}, 60)
    assert Reading(helm, read_chart(folder), release, KUBERNETES_VERSION).problem(("mode",)) is None


def test_a_value_behind_one_of_two_switches_that_exclude_each_other_is_read(helm: Helm, folder: Path) -> None:
    with (folder / "values.yaml").open("a", encoding="utf-8") as values:
        values.write("\nfirst: false\nother: false\n")
    (folder / "templates" / "switches.yaml").write_text(
        '{{- if and .Values.first .Values.other }}{{ fail "first or other" }}{{ end }}\n'
        "{{- if .Values.first }}\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: map}\n"
        "data: {text: '{{ .Values.behind }}'}\n{{- end }}\n",
        encoding="utf-8",
    )
    release = HelmRelease("kai", "kai", kai.release(SETTINGS["Pulumi.jetson.yaml"]).source, {"behind": "it"}, 60)
    assert Reading(helm, read_chart(folder), release, KUBERNETES_VERSION).problem(("behind",)) is None


def test_values_that_helm_refuses_are_told_with_helms_words(helm: Helm, folder: Path) -> None:
    (folder / "templates" / "judge.yaml").write_text('{{ fail "this release needs a licence" }}', encoding="utf-8")
    report = check(read_chart(folder), {"jetson": SETTINGS["Pulumi.jetson.yaml"]}, FACTS, helm)
    [refused] = report.refused
    assert refused.endswith("this release needs a licence (stack jetson)")
    assert not report.fits
    assert "  refused: " in report.text()


def test_a_kind_and_a_field_that_the_chart_does_not_define_any_more_are_absent(helm: Helm, folder: Path) -> None:
    definitions = folder / "crds" / "scheduling.run.ai.yaml"
    text = definitions.read_text(encoding="utf-8")
    assert "kind: Queue," in text
    definitions.write_text(text.replace("kind: Queue,", "kind: Line,"), encoding="utf-8")
    report = check(read_chart(folder), {"jetson": SETTINGS["Pulumi.jetson.yaml"]}, FACTS, helm)
    assert report.absent == ("Queue of scheduling.run.ai/v2: the chart defines no such kind",)


def test_an_archive_is_rendered_as_its_folder_is(helm: Helm, folder: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "chart.tgz", "w:gz") as archive:
        archive.add(folder, "kai-scheduler")
    release = kai.release(SETTINGS["Pulumi.jetson.yaml"])
    reading = Reading(helm, read_chart(tmp_path / "chart.tgz"), release, KUBERNETES_VERSION)
    assert reading.problem(("binder", "runtimeClassName")) is None
    assert reading.definitions().serves("scheduling.run.ai/v2", "Queue")


def test_a_value_of_a_sub_chart_is_tried_there(helm: Helm, tmp_path: Path) -> None:
    below = tmp_path / "outer" / "charts" / "inner"
    (below / "templates").mkdir(parents=True)
    (tmp_path / "outer" / "Chart.yaml").write_text("apiVersion: v2\nname: outer\nversion: 1.0.0\n", encoding="utf-8")
    (below / "Chart.yaml").write_text("apiVersion: v2\nname: inner\nversion: 1.0.0\n", encoding="utf-8")
    (tmp_path / "outer" / "values.yaml").write_text("", encoding="utf-8")
    (below / "values.yaml").write_text("read: 1\nunread: 1\n", encoding="utf-8")
    (below / "templates" / "map.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: map}\ndata: {number: '{{ .Values.read }}'}\n",
        encoding="utf-8",
    )
    source = kai.release(SETTINGS["Pulumi.jetson.yaml"]).source
    release = HelmRelease("outer", "outer", source, {"inner": {"read": 1, "unread": 1}}, 60)
    reading = Reading(helm, read_chart(tmp_path / "outer"), release, KUBERNETES_VERSION)
    assert reading.problem(("inner", "read")) is None
    assert reading.is_default(("inner", "read"))
    assert reading.problem(("inner", "unread")) == "nothing that the chart renders depends on it"


def test_another_chart_is_refused_with_those_that_are_used(helm: Helm, tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="'nginx'; this program uses gpu-operator and kai-scheduler"):
        check(Chart(tmp_path, "nginx", "1.0.0", {}, ""), SETTINGS, FACTS, helm)
