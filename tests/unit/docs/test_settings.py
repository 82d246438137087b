"""What the documentation tells to write into a stack file is taken by the program."""

import re
import types
import typing
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import pulumi
import pytest
import yaml
from pydantic import BaseModel

from cluster.access.binding import NO_CLUSTER
from components.kai_anywhere import KaiAnywhere, KaiAnywhereArgs
from config.stack import StackConfigError, StackSettings
from testbed.stacks import ROOT, Json, jetson, parse, x86
from tests.support.docs import PAGES, blocks
from tests.support.recording_monitor import record

SECTIONS = frozenset(StackSettings.model_fields)
METRICS = "".join(
    (ROOT / "agents" / file).read_text(encoding="utf-8")
    for file in ("admission/observability.py", "metrics/reader.py", "metrics/samples.py")
)
OTHERS_WORDS = frozenset({"gpu_group", "grafana_dashboard", "honor_labels", "service_account", "host_secrets"})
"""Of our metrics, of Grafana's sidecar, of Prometheus, of fleet.yaml, and an input of the package."""
_BASES = {"jetson": jetson, "x86": x86}

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


def _snippets(page: Path) -> Iterator[tuple[str, Any]]:
    """The yaml blocks of a page, each as text and content."""
    for block in blocks(page, "yaml"):
        yield block.text, yaml.safe_load(block.text)


def _said(page: Path) -> list[tuple[str, Json]]:
    """The blocks that are sections of a stack's settings; every other one must be a Kubernetes object or a workflow.

    Workflows have their home in tests/unit/workflows/test_calls.py, programs in YAML in tests/engine/stack.

    Stack files, bases and the order of a fleet have theirs in tests/unit/docs/test_fleets.py.

    A block that mixes a section with anything else is a section with a mistake, which the model then tells.
    """
    said = []
    for text, content in _snippets(page):
        assert isinstance(content, dict), text
        no_section = {"jobs", "config", "canary", "runtime"}
        if not {"apiVersion", "kind"} <= content.keys() and not no_section & content.keys():
            said.append((text, content))
    return said


def _base(text: str, content: Json) -> Json:
    """The stack file that a block names in its first line; else that of its platform, else Jetson's."""
    named = re.match(r"# Pulumi\.(\w+)\.yaml\n", text)
    kind = {"tegra": "jetson", "x86": "x86"}[content.get("platform", {}).get("kind", "tegra")]
    return _BASES[named[1] if named else kind]()


def _merged(base: Json, content: Json) -> Json:
    """The stack file after a reader wrote the block into it: each setting that it has replaces the file's."""
    return base | {key: {**base.get(key, {}), **value} for key, value in content.items()}


@every_page
def test_every_section_of_settings_is_valid_in_its_stack_file(page: Path) -> None:
    for text, content in _said(page):
        try:
            parse(_merged(_base(text, content), content))
        except StackConfigError as error:
            pytest.fail(f"{page.name}, the block\n{text}\n{error}")


@every_page
def test_the_program_registers_what_every_section_says(page: Path) -> None:
    for text, content in _said(page):
        settings = parse(_merged(_base(text, content), content))
        secrets = {name for host in settings.hosts.values() for name in host.secret_names}

        def program(settings: StackSettings = settings, secrets: set[str] = secrets) -> None:
            given = {name: pulumi.Output.secret("a secret") for name in secrets}
            KaiAnywhere("kai-anywhere", KaiAnywhereArgs(settings, "a-cluster", NO_CLUSTER, given))

        registered = record(program).by_key
        assert "Release:kai-scheduler" in registered, text
        assert {f"Host:hosts-{node}" for node in settings.hosts} <= registered.keys(), text


def test_the_pages_have_such_sections() -> None:
    counts = {page.name: len(_said(page)) for page in PAGES}
    with_settings = {"jetson.md", "distributions.md", "mixed-clusters.md", "air-gapped.md", "upgrade.md", "hosts.md"}
    assert {name for name, count in counts.items() if count} >= with_settings
    assert counts["README.md"] == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kai:\n  cdi_enable: false\n", "Did you mean 'cdi_enabled'?"),
        ("kia:\n  cdi_enabled: false\n", "unknown key 'kia'"),
        ("# Pulumi.x86.yaml\nplatform:\n  tegra_nodes: {jetson-1: {}}\n", "listed in an x86 stack"),
        ("platform:\n  tegra_nodes: {jetson-1: {}}\n", "gpu_memory_mib is required"),
    ],
)
def test_a_wrong_section_is_found(tmp_path: Path, text: str, says: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"- In a list:\n\n  ```yaml\n{re.sub('(?m)^(?=.)', '  ', text)}  ```\n", encoding="utf-8")
    [(line, content)] = _said(page)
    assert line == text
    with pytest.raises(StackConfigError, match=re.escape(says)):
        parse(_merged(_base(line, content), content))


def _inner(annotation: object) -> Iterator[type[BaseModel]]:
    """The models that a field can hold, directly, in a union or as the values of a mapping."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _inner(get_args(annotation)[0])
    elif origin in {typing.Union, types.UnionType}:
        for argument in get_args(annotation):
            yield from _inner(argument)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation


def _is_setting(path: str) -> bool:
    """Whether a dotted path leads to a setting; below a mapping by name, any name will do."""
    models: list[type[BaseModel]] = [StackSettings]
    by_name = free = False
    for part in path.split("."):
        if by_name or free:
            by_name = False
            continue
        annotations = [model.model_fields[part].annotation for model in models if part in model.model_fields]
        if not annotations:
            return False
        models = [model for annotation in annotations for model in _inner(annotation)]
        values = [_mapped(annotation) for annotation in annotations]
        by_name = any(value is not None for value in values)
        models += [model for value in values if value is not None for model in _inner(value)]
        free = by_name and not models
    return True


def _mapped(annotation: object) -> object:
    """What a mapping by name holds, else None."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return get_args(annotation)[1] if get_origin(annotation) is dict else None


def _words(model: type[BaseModel]) -> set[str]:
    """The names of a model's settings and the words of its closed vocabularies, down to the last."""
    words = set(model.model_fields)
    for field in model.model_fields.values():
        annotation = field.annotation
        if get_origin(annotation) is Literal:
            words |= set(get_args(annotation))
        if isinstance(annotation, type) and issubclass(annotation, StrEnum):
            words |= set(annotation)
        for inner in [*_inner(annotation), *_inner(_mapped(annotation))]:
            words |= _words(inner)
    return words


WORDS = _words(StackSettings)
"""Every word that a stack file can hold as a key or as a choice, wherever it stands."""


def _named(page: Path) -> Iterator[str]:
    """What stands in backticks in a page's prose, without a value after a colon."""
    prose = re.sub(r"(?ms)^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"))
    for span in re.findall(r"`([^`\n]+)`", prose):
        yield re.sub(r": \S.*$", "", span)


@every_page
def test_every_setting_that_is_named_exists(page: Path) -> None:
    unknown = []
    for name in _named(page):
        if "." in name and name.partition(".")[0] in SECTIONS and re.fullmatch(r"[\w-]+(\.[\w-]+)+", name):
            if not _is_setting(name):
                unknown.append(name)
        elif name.startswith("kai_anywhere_"):
            if name.removesuffix("_total") not in METRICS:
                unknown.append(name)
        elif re.fullmatch(r"[a-z]+(_[a-z0-9]+)+", name) and name not in WORDS | OTHERS_WORDS:
            unknown.append(name)
    assert unknown == []


def test_the_pages_name_settings() -> None:
    named = {name for page in PAGES for name in _named(page)}
    assert named >= {"platform.tegra_nodes", "kai.cdi_enabled", "driver_library_path", "gpu_memory_reserve_mib"}
    assert {"time_slicing", "webhook", "replicas", "private_key_secret", "kai"} <= WORDS
    assert not WORDS & {"gpu_memory", "timeslicing"}


@pytest.mark.parametrize(
    ("path", "exists"),
    [
        ("kai.cdi_enabled", True),
        ("kai.cdi_enable", False),
        ("hosts.jetson-1.toolkit.mode", True),
        ("hosts.jetson-1.toolkit.moed", False),
        ("platform.tegra_nodes.jetson-1.gpu_memory_mib", True),
        ("platform.tegra_nodes.jetson-1.gpu_memory", False),
        ("gpu_operator.toolkit_env", True),
        ("gvirtus.frontends.device_plugin_image", True),
        ("admission.certificates.issuer", True),
        ("node_profiles.sliced.replica", False),
    ],
)
def test_a_path_is_looked_up_in_the_models(path: str, *, exists: bool) -> None:
    assert _is_setting(path) is exists
