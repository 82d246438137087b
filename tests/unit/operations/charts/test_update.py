"""What `make update` reads of a chart before helm renders it; tests/engine/charts has the rest."""

from dataclasses import replace
from pathlib import Path

import pytest

from manifests.objects import ChartReference, HelmRelease
from manifests.versions import KAI_SCHEDULER
from operations.charts.files import Chart
from operations.charts.helm import Circumstances, Definitions, Helm, RenderingError, fields, objects
from operations.charts.update import Report, with_every_option
from operations.charts.values import Reading, leaves
from operations.errors import OperationError
from operations.stack_file import read_stack_file, settings_of, with_settings
from testbed.stacks import STACK_FILES
from toolchain.programs import KUBERNETES_VERSION


def test_every_option_goes_with_whatever_a_stack_calls_its_nodes() -> None:
    content = read_stack_file(STACK_FILES / "Pulumi.x86.yaml")
    nodes = ["another-node", "node", "sliced"]
    content = with_settings(content, {"node_profiles": {"mine": {"sharing": "kai", "nodes": nodes}}})
    assert settings_of(with_every_option(content), "Pulumi.x86.yaml").node_profiles["mine"].nodes == tuple(nodes)


def test_every_option_goes_with_the_runtime_mode_that_a_stack_chose() -> None:
    content = read_stack_file(STACK_FILES / "Pulumi.x86.yaml")
    content = with_settings(content, {"platform": {"container_runtime_mode": "cdi"}})
    settings_of(content, "Pulumi.x86.yaml")
    assert settings_of(with_every_option(content), "Pulumi.x86.yaml").kai.writes_bare_uuids


def test_values_are_followed_to_their_ends() -> None:
    values = {"a": {"b": 1, "c": {}}, "d": [{"e": 2}]}
    assert list(leaves(values)) == [(("a", "b"), 1), (("a", "c"), {}), (("d",), [{"e": 2}])]


def test_a_value_that_is_the_charts_own_default_needs_no_rendering() -> None:
    chart = Chart(Path("chart"), "kai-scheduler", "1.0.0", {"a": {"b": 1, "c": "1", "d": True}}, "")
    values = {"a": {"b": 1, "c": 1, "d": 1, "e": None}}
    release = HelmRelease("kai-scheduler", "kai-scheduler", ChartReference("unused", None, None), values, 60)
    reading = Reading(Helm(Path("/no/such/helm")), chart, release, KUBERNETES_VERSION)
    assert reading.is_default(("a", "b"))
    for another_type_or_none in "cde":
        with pytest.raises(FileNotFoundError, match="/no/such/helm"):
            reading.is_default(("a", another_type_or_none))


def test_an_object_that_a_config_map_carries_counts_as_itself() -> None:
    result = objects(
        "kind: ConfigMap\nmetadata: {name: m}\ndata:\n"
        "  o.yaml: |\n    apiVersion: a/v1\n    kind: Config\n    spec: {x: 1}\n"
        "  s.sh: |\n    echo apiVersion: none\n"
    )
    assert [manifest["kind"] for manifest in result] == ["ConfigMap", "Config"]
    assert result[0]["data"] == {"s.sh": "echo apiVersion: none\n"}
    assert fields(result[1:])["Config /.spec.x"] == "1"


def test_what_looks_like_a_date_in_what_is_rendered_is_a_text() -> None:
    assert objects("kind: Pod\nmetadata: {labels: {until: 2026-13-45}}") == [
        {"kind": "Pod", "metadata": {"labels": {"until": "2026-13-45"}}}
    ]


@pytest.mark.parametrize("text", ["kind: " + "9" * 5000, "[" * 900 + "]" * 900 + "\n- a"])
def test_what_a_chart_renders_that_can_not_be_read_is_told(text: str) -> None:
    with pytest.raises(OperationError, match="What the chart renders is not YAML"):
        objects(text)


def test_a_definition_keeps_what_it_names_and_drops_the_rest() -> None:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "properties": {
                    "named": {"type": "string"},
                    "free": {"x-kubernetes-preserve-unknown-fields": True},
                    "map": {"additionalProperties": {"properties": {"a": {}}}},
                    "list": {"items": {"properties": {"a": {}}}},
                }
            }
        },
    }
    names = {"kind": "Thing"}
    versions = [
        {"name": "v1", "served": True, "schema": {"openAPIV3Schema": schema}},
        {"name": "v0", "served": False, "schema": {"openAPIV3Schema": schema}},
    ]
    spec = {"group": "example.com", "names": names, "versions": versions}
    definitions = Definitions([{"kind": "CustomResourceDefinition", "spec": spec}])
    assert definitions.serves("example.com/v1", "Thing")
    assert not definitions.serves("example.com/v0", "Thing")
    kept = {"named": "x", "free": {"any": 1}, "map": {"k": {"a": 1}}, "list": [{"a": 1}]}
    more = kept | {"unknown": 1, "map": {"k": {"a": 1, "b": 2}}, "list": [{"a": 1, "b": 2}]}
    head = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}}
    assert definitions.kept({**head, "spec": more}) == {**head, "spec": kept}
    other = {"apiVersion": "v1", "kind": "Secret", "data": {"a": "b"}}
    assert definitions.kept(other) == other


def test_a_report_names_what_is_wrong_and_only_then_says_no() -> None:
    fine = Report(KAI_SCHEDULER, "v9", (), (), (), ("a is new (string)",), 3, ("b",))
    assert fine.fits
    assert fine.text().splitlines() == [
        f"kai-scheduler: pinned {KAI_SCHEDULER.version}, this chart v9",
        "  changed: a is new (string)",
        "  It has what the stacks pass to it: 3 values, 1 of them its defaults.",
    ]
    for report in (replace(fine, refused=("x",)), replace(fine, missing=("x",)), replace(fine, absent=("x",))):
        assert not report.fits
        assert "Do not pin it before these are solved." in report.text()
        assert "It has what" not in report.text()


def test_what_helm_prints_need_not_be_utf_8(tmp_path: Path) -> None:
    program = tmp_path / "helm"
    program.write_text("#!/bin/sh\nprintf 'Error: \\377 is no template\\n' >&2; exit 1\n", encoding="utf-8")
    program.chmod(0o755)
    release = HelmRelease("kai", "kai", ChartReference("kai", None, None), {}, timeout_seconds=1)
    with pytest.raises(RenderingError, match="\N{REPLACEMENT CHARACTER} is no template"):
        Helm(program).render(tmp_path, release, Circumstances("1.36.3"))
