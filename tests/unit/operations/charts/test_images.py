"""The images of a stack, from objects to the lock file; tests/engine/charts has them of whole charts."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from config.stack import StackSettings
from operations.__main__ import app
from operations.charts import commands
from operations.charts.helm import Helm
from operations.charts.images import Image, lock, named, table, with_digests
from operations.charts.registry import Content
from operations.errors import OperationError
from operations.init.files import TEMPLATES
from testbed.stacks import STACK_FILES, jetson, parse

_DIGEST = "sha256:" + "a" * 64


def test_containers_of_every_kind_and_depth_are_found() -> None:
    pod = {"initContainers": [{"name": "i", "image": "r/init:1"}], "containers": [{"name": "c", "image": "r/main:1"}]}
    job = {"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": pod}}}}}
    assert sorted(named([job, {"kind": "Pod", "spec": pod}])) == ["r/init:1", "r/init:1", "r/main:1", "r/main:1"]


def _policy(**parts: object) -> dict[str, object]:
    return {"kind": "ClusterPolicy", "spec": parts}


def test_operands_of_the_cluster_policy_are_found_unless_they_are_off() -> None:
    toolkit = {"repository": "nvcr.io/k8s", "image": "toolkit", "version": "v1"}
    assert list(named([_policy(toolkit=toolkit)])) == ["nvcr.io/k8s/toolkit:v1"]
    assert list(named([_policy(toolkit=toolkit | {"version": _DIGEST})])) == [f"nvcr.io/k8s/toolkit@{_DIGEST}"]
    assert list(named([_policy(toolkit=toolkit | {"enabled": False})])) == []
    assert list(named([_policy(driver={"enabled": False, "manager": toolkit})])) == []
    assert list(named([_policy(toolkit=toolkit | {"version": ""})])) == []


def test_operands_for_virtual_machines_count_only_where_there_are_any() -> None:
    manager = {"enabled": True, "repository": "r", "image": "vfio", "version": "v1"}
    assert list(named([_policy(vfioManager=manager)])) == []
    assert list(named([_policy(vfioManager=manager, sandboxWorkloads={"enabled": True})])) == ["r/vfio:v1"]


def test_services_of_kais_config_are_found_unless_they_are_off() -> None:
    image = {"repository": "r", "name": "binder", "tag": "v1"}
    part = {"service": {"enabled": True, "image": image}, "resourceReservation": {"image": image | {"name": "pod"}}}
    config = {"kind": "Config", "spec": {"binder": part}}
    assert list(named([config])) == ["r/binder:v1", "r/pod:v1"]
    off = {"kind": "Config", "spec": {"binder": part | {"service": {"enabled": False, "image": image}}}}
    assert list(named([off])) == []


def test_a_definition_names_no_image() -> None:
    schema = {"repository": "r", "image": "i", "version": "v"}
    assert list(named([{"kind": "CustomResourceDefinition", "spec": schema}])) == []


def test_what_a_registry_tells_stands_in_table_and_lock_file() -> None:
    contents = {
        "r.io/a/one:v1": Content(_DIGEST, ("amd64", "arm64")),
        "r.io/a/two:v1": Content(problem="r.io can't be asked: no route"),
        f"r.io/three:v1@{_DIGEST}": Content(_DIGEST, ("arm64",)),
    }
    result = with_digests([Image(name, ("kai-scheduler",)) for name in contents], contents.__getitem__)
    shown = table(result).splitlines()
    assert shown[0].split() == ["IMAGE", "ARCHITECTURES", "USED", "BY", "DIGEST"]
    assert shown[1].split() == ["r.io/a/one:v1", "amd64", "arm64", "kai-scheduler", _DIGEST]
    assert shown[2].split() == ["r.io/a/two:v1", "not", "told", "kai-scheduler", "not", "told"]
    assert shown[3].split() == [f"r.io/three:v1@{_DIGEST}", "arm64", "kai-scheduler", _DIGEST]
    assert shown[4:] == ["without digest: r.io/a/two:v1: r.io can't be asked: no route"]
    content = json.loads(lock("jetson", result))
    assert content["stack"] == "jetson"
    assert [image["name"] for image in content["images"]] == ["one:v1", "two:v1", "three:v1"]
    assert content["images"][0] == {
        "image": "r.io/a/one:v1",
        "used_by": ["kai-scheduler"],
        "digest": _DIGEST,
        "architectures": ["amd64", "arm64"],
        "problem": None,
        "pinned": f"r.io/a/one@{_DIGEST}",
        "name": "one:v1",
    }


def test_what_is_copied_is_named_by_its_digest_alone() -> None:
    pinned = {
        "registry.example.com:5000/a/b:v1": f"registry.example.com:5000/a/b@{_DIGEST}",
        "registry.example.com:5000/a/b": f"registry.example.com:5000/a/b@{_DIGEST}",
        f"r.io/a/b:v1@{_DIGEST}": f"r.io/a/b@{_DIGEST}",
        "ubuntu:24.04": f"ubuntu@{_DIGEST}",
    }
    assert {name: Image(name, (), _DIGEST).pinned for name in pinned} == pinned
    assert Image("r.io/a/b:v1", ()).pinned == "r.io/a/b:v1"


def test_a_lock_file_that_can_not_be_written_is_told_before_any_chart_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "read_settings", lambda _: parse(jetson()))
    monkeypatch.setattr(Helm, "installed", lambda: pytest.fail("the work began"))
    done = CliRunner().invoke(app, ["images", "--lock", str(tmp_path / "gone" / "lock.json")])
    assert isinstance(done.exception, OperationError)
    assert str(done.exception).endswith("there is no such folder. Choose another one with --lock.")


def test_charts_of_a_teams_stack_are_sought_in_its_own_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the program of that stack seeks them: its files are copied into the checkout, and its charts are not."""
    checkout, theirs = tmp_path / "checkout", tmp_path / "theirs"
    shutil.copytree(STACK_FILES, checkout)
    shutil.copytree(TEMPLATES / "component", theirs)
    (checkout / ".project").symlink_to(theirs)
    for module in ("charts.commands", "target"):
        monkeypatch.setattr(f"operations.{module}.ROOT", checkout)
    sought: list[Path] = []

    def images(_settings: StackSettings, _charts: Iterable[Path], root: Path, _helm: Helm) -> tuple[Image, ...]:
        sought.append(root)
        return ()

    monkeypatch.setattr(Helm, "installed", lambda: None)
    monkeypatch.setattr("operations.charts.commands.stack_images.images", images)
    done = CliRunner().invoke(app, ["images", "--no-digests"], catch_exceptions=False)
    assert done.exit_code == 0
    assert sought == [theirs]
    assert (checkout / "images.jetson.lock.json").is_file()
