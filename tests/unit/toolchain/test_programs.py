"""The table of programs, versions and recipes."""

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from toolchain.programs import (
    CHARTS,
    CONTAINERD_VERSION,
    CRANE_VERSION,
    DOCKERD_VERSION,
    ENGINE,
    ETCD_VERSION,
    HELM_VERSION,
    HOSTS,
    KUBERNETES_PROVIDER_VERSION,
    KUBERNETES_VERSION,
    KWOK_VERSION,
    LANGUAGE_HOST_BUILT_VERSION,
    LANGUAGE_YAML_BUILT_VERSION,
    LANGUAGES,
    MONITORING,
    NFD_VERSION,
    NODE,
    NVIDIA_CTK_VERSION,
    OLDER,
    OLDER_KUBERNETES_VERSION,
    PACKAGES,
    PROMETHEUS_VERSION,
    PULUMI_VERSION,
    RECIPES,
    REGISTRIES,
    SIMULATOR,
    VERSION_CHECKS,
    Program,
    VersionRange,
    parse_version,
)

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
    for program, check in VERSION_CHECKS.items():
        version = parse_version(RECIPES[program].version)
        assert version is not None
        # Docker's Go module does not have Docker's numbers.
        assert (version in check.accepted) is (program is not Program.DOCKERD), program


def test_the_groups_cover_every_program_once() -> None:
    assert sorted(
        (*ENGINE, *SIMULATOR, *OLDER, *LANGUAGES, *PACKAGES, *HOSTS, *NODE, *CHARTS, *REGISTRIES, *MONITORING)
    ) == sorted(Program)


@pytest.mark.parametrize(
    ("folder", "module", "version"),
    [
        ("pulumi", "github.com/pulumi/pulumi/pkg/v3", f"v{PULUMI_VERSION}"),
        ("pulumi", "github.com/pulumi/pulumi/sdk/v3", f"v{PULUMI_VERSION}"),
        ("language-python", "github.com/pulumi/pulumi/sdk/v3", f"v{LANGUAGE_HOST_BUILT_VERSION}"),
        ("language-hosts", "github.com/pulumi/pulumi/pkg/v3", f"v{PULUMI_VERSION}"),
        ("language-hosts", "github.com/pulumi/pulumi/sdk/v3", f"v{PULUMI_VERSION}"),
        ("language-yaml", "github.com/pulumi/pulumi-yaml", f"v{LANGUAGE_YAML_BUILT_VERSION}"),
        ("etcd", "go.etcd.io/etcd/server/v3", f"v{ETCD_VERSION}"),
        ("kubernetes", "k8s.io/kubernetes", f"v{KUBERNETES_VERSION}"),
        ("kubernetes-1.34", "k8s.io/kubernetes", f"v{OLDER_KUBERNETES_VERSION}"),
        ("kwok", "sigs.k8s.io/kwok", f"v{KWOK_VERSION}"),
        ("node-feature-discovery", "sigs.k8s.io/node-feature-discovery", f"v{NFD_VERSION}"),
        ("pod-security-fixtures", "k8s.io/pod-security-admission", f"v0.{KUBERNETES_VERSION.removeprefix('1.')}"),
        ("nvidia-container-toolkit", "github.com/NVIDIA/nvidia-container-toolkit", f"v{NVIDIA_CTK_VERSION}"),
        ("containerd", "github.com/containerd/containerd/v2", f"v{CONTAINERD_VERSION}"),
        ("helm", "helm.sh/helm/v4", f"v{HELM_VERSION}"),
        ("crane", "github.com/google/go-containerregistry", f"v{CRANE_VERSION}"),
        ("docker", "github.com/moby/moby/v2", f"v{DOCKERD_VERSION}"),
        ("prometheus", "github.com/prometheus/prometheus", f"v0.3{PROMETHEUS_VERSION.removeprefix('3.')}"),
    ],
)
def test_the_go_modules_pin_the_versions_that_the_table_names(folder: str, module: str, version: str) -> None:
    pinned = (_REPOSITORY / "toolchain" / folder / "go.mod").read_text(encoding="utf-8")
    assert re.search(rf"^(require |\t){re.escape(module)} {re.escape(version)}( |$)", pinned, re.MULTILINE)


def test_the_plugin_has_the_version_of_the_python_sdk() -> None:
    project = tomllib.loads((_REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"pulumi-kubernetes=={KUBERNETES_PROVIDER_VERSION}" in project["dependencies"]


def test_packages_built_together_are_named_like_their_programs() -> None:
    for recipe in RECIPES.values():
        if len(recipe.packages) > 1:
            assert all(package.rpartition("/")[2] == program for program, package in recipe.packages)


def test_a_better_estimate_keeps_the_cache_entry_and_another_variable_does_not() -> None:
    recipe = RECIPES[Program.ETCD]
    assert replace(recipe, minutes=99, go_cache_mib=99, result_mib=99).entry == recipe.entry
    assert replace(recipe, variables=(("main.version", "2"),)).entry != recipe.entry
    assert replace(recipe, tags=("no_zfs",)).entry != recipe.entry
    assert replace(recipe, cgo=True).entry != recipe.entry


def test_the_cache_entry_names_the_version_and_differs_between_recipes() -> None:
    entries = {recipe.name: recipe.entry for recipe in RECIPES.values()}
    assert len(set(entries.values())) == len(entries)
    assert re.fullmatch(rf"etcd-{re.escape(ETCD_VERSION)}-[0-9a-f]{{12}}", entries["etcd"])
