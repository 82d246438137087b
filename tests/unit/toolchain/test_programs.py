"""The table of programs, versions and recipes."""

import re
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

import toolchain.recipe
from tests.support import programs as of_tests
from tests.support.programs import CONTAINERD, DOCKERD, NFD_MASTER, NVIDIA_CTK, PROMTOOL
from tests.support.programs.fixtures import POD_SECURITY
from toolchain.official import Platform
from toolchain.program import VersionRange, parse_version
from toolchain.programs import (
    ALL,
    CHARTS,
    CRANE,
    ENGINE,
    ETCD,
    ETCD_VERSION,
    HELM,
    KUBE_APISERVER,
    KUBE_APISERVER_1_34,
    KUBERNETES_PROVIDER_VERSION,
    KUBERNETES_VERSION,
    KWOK,
    LANGUAGE_NODEJS,
    LANGUAGE_PYTHON,
    LANGUAGE_YAML,
    LANGUAGES,
    OLDER,
    PACKAGES,
    PULUMI,
    REGISTRIES,
    SIMULATOR,
)
from toolchain.recipe import ModuleFile, Recipe, module_files

EVERY = (*ALL, *of_tests.ALL)
RECIPES = {program.recipe.name: program.recipe for program in EVERY}
_REPOSITORY = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("v3.259.0", (3, 259, 0)),
        ("etcd Version: 3.6.5\nGit SHA: abc\nGo Version: go1.26.8", (3, 6, 5)),
        ("Kubernetes v1.36.3", (1, 36, 3)),
        ("Kubernetes v1.36.0-rc.1+k3s1", (1, 36, 0)),
        ("kwok version v0.8.0 go1.26.8 (linux/amd64)", (0, 8, 0)),
        ("nfd-worker v0.18.3", (0, 18, 3)),
        ("Client Version: v1.32.4-dispatcher\nKustomize Version: v5.5.0", (1, 32, 4)),
        ("go1.26.8 alone is not the program's version", None),
        ('version.BuildInfo{Version:"v4.3.1", GoVersion:"go1.26.8", KubeClientVersion:"v1.37"}', (4, 3, 1)),
        ("0.22.1", (0, 22, 1)),
        ("", None),
    ],
)
def test_a_version_is_read_from_what_each_program_really_prints(
    text: str, version: tuple[int, int, int] | None
) -> None:
    assert parse_version(text) == version


def test_a_range_holds_its_minimum_and_not_its_end() -> None:
    accepted = VersionRange((3, 6, 0), (4, 0, 0))
    assert (3, 6, 0) in accepted
    assert (3, 99, 9) in accepted
    assert (3, 5, 99) not in accepted
    assert (4, 0, 0) not in accepted
    assert (99, 0, 0) in VersionRange((0, 7, 0))


def test_what_is_built_would_also_be_accepted_on_path() -> None:
    for program in EVERY:
        if program.check is not None:
            version = parse_version(program.recipe.version)
            assert version is not None
            # Docker's Go module does not have Docker's numbers.
            assert (version in program.check.accepted) is (program is not DOCKERD), program


def test_the_groups_cover_every_program_once() -> None:
    groups = (*ENGINE, *SIMULATOR, *OLDER, *LANGUAGES, *PACKAGES, *CHARTS, *REGISTRIES)
    assert len(groups) == len(ALL) == len(set(ALL))
    assert set(groups) == set(ALL)
    assert len({program.name for program in EVERY}) == len(EVERY)


def test_what_a_program_is_named_is_what_its_recipe_makes() -> None:
    for program in EVERY:
        assert program.name in program.recipe.executables
        assert str(program) == program.name


def test_a_module_of_our_own_that_replaces_another_is_built_with_the_program() -> None:
    replaced = 0
    for program in EVERY:
        source = program.recipe.source
        for folder in re.findall(r"=> (\./\S+)", (source / "go.mod").read_text(encoding="utf-8")):
            assert Path(folder, "go.mod") in module_files(source)
            replaced += 1
    assert replaced


@pytest.mark.parametrize(
    ("source", "module", "version"),
    [
        (PULUMI.recipe, "github.com/pulumi/pulumi/pkg/v3", PULUMI.recipe.version),
        (PULUMI.recipe, "github.com/pulumi/pulumi/sdk/v3", PULUMI.recipe.version),
        (LANGUAGE_PYTHON.recipe, "github.com/pulumi/pulumi/sdk/v3", LANGUAGE_PYTHON.recipe.version),
        (LANGUAGE_NODEJS.recipe, "github.com/pulumi/pulumi/pkg/v3", PULUMI.recipe.version),
        (LANGUAGE_NODEJS.recipe, "github.com/pulumi/pulumi/sdk/v3", PULUMI.recipe.version),
        (LANGUAGE_YAML.recipe, "github.com/pulumi/pulumi-yaml", LANGUAGE_YAML.recipe.version),
        (ETCD.recipe, "go.etcd.io/etcd/server/v3", ETCD_VERSION),
        (KUBE_APISERVER.recipe, "k8s.io/kubernetes", KUBERNETES_VERSION),
        (KUBE_APISERVER_1_34.recipe, "k8s.io/kubernetes", KUBE_APISERVER_1_34.recipe.version),
        (KWOK.recipe, "sigs.k8s.io/kwok", KWOK.recipe.version),
        (HELM.recipe, "helm.sh/helm/v4", HELM.recipe.version),
        (CRANE.recipe, "github.com/google/go-containerregistry", CRANE.recipe.version),
        (NFD_MASTER.recipe, "sigs.k8s.io/node-feature-discovery", NFD_MASTER.recipe.version),
        (NVIDIA_CTK.recipe, "github.com/NVIDIA/nvidia-container-toolkit", NVIDIA_CTK.recipe.version),
        (CONTAINERD.recipe, "github.com/containerd/containerd/v2", CONTAINERD.recipe.version),
        (DOCKERD.recipe, "github.com/moby/moby/v2", DOCKERD.recipe.version),
        # Its Go module counts 3.16.0 as 0.316.0.
        (PROMTOOL.recipe, "github.com/prometheus/prometheus", f"0.3{PROMTOOL.recipe.version.removeprefix('3.')}"),
        (POD_SECURITY, "k8s.io/pod-security-admission", f"0.{KUBERNETES_VERSION.removeprefix('1.')}"),
    ],
)
def test_the_go_modules_pin_the_versions_that_the_table_names(
    source: Recipe | ModuleFile, module: str, version: str
) -> None:
    pinned = (source.source / "go.mod").read_text(encoding="utf-8")
    assert re.search(rf"^(require |\t){re.escape(module)} v{re.escape(version)}( |$)", pinned, re.MULTILINE)


def test_the_plugin_has_the_version_of_the_python_sdk() -> None:
    project = tomllib.loads((_REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"pulumi-kubernetes=={KUBERNETES_PROVIDER_VERSION}" in project["dependencies"]


def test_packages_built_together_are_named_like_their_programs() -> None:
    for recipe in RECIPES.values():
        if len(recipe.packages) > 1:
            assert all(package.rpartition("/")[2] == program for program, package in recipe.packages)


def test_a_better_estimate_and_a_faster_build_keep_the_cache_entry_and_another_variable_does_not() -> None:
    recipe = ETCD.recipe
    assert replace(recipe, minutes=99, go_cache_mib=99, result_mib=99).entry == recipe.entry
    assert replace(recipe, plain=("example.com/...",)).entry == recipe.entry
    assert replace(recipe, variables=(("main.version", "2"),)).entry != recipe.entry
    assert replace(recipe, tags=("no_zfs",)).entry != recipe.entry
    assert replace(recipe, cgo=True).entry != recipe.entry


def test_machines_that_share_a_cache_have_entries_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = set()
    for processor in ("amd64", "arm64"):
        monkeypatch.setattr(toolchain.recipe, "this_platform", lambda processor=processor: Platform("linux", processor))
        entries.add(ETCD.recipe.entry)
    assert len(entries) == 2


def test_the_same_pins_in_another_room_keep_the_cache_entry_and_other_pins_do_not(tmp_path: Path) -> None:
    recipe = ETCD.recipe
    moved = replace(recipe, room=tmp_path)
    shutil.copytree(recipe.source, moved.source)
    assert moved.entry == recipe.entry
    (moved.source / "go.sum").write_text("other", encoding="utf-8")
    assert moved.entry != recipe.entry


def test_the_cache_entry_names_the_version_and_differs_between_recipes() -> None:
    entries = {recipe.name: recipe.entry for recipe in RECIPES.values()}
    assert len(set(entries.values())) == len(entries)
    assert re.fullmatch(rf"etcd-{re.escape(ETCD_VERSION)}-[0-9a-f]{{12}}", entries["etcd"])
