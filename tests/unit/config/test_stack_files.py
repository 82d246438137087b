"""The two committed stack files are complete, true to the defaults, and valid down to their commented lines."""

import re

import pytest
from pydantic import BaseModel

from manifests.versions import DEVICE_PLUGIN_IMAGE, GPU_OPERATOR, KAI_SCHEDULER
from testbed.stacks import Json, changed, parse, read_stack_file, stack_file
from tests.support.golden import Golden

_COMMENTED_SETTING = re.compile(r"^( *)# ( *[a-z][a-z0-9_-]*:( .*)?)$", re.MULTILINE)

_FILES = pytest.mark.parametrize("name", ["jetson", "x86"])


def _with_comments_opened(name: str) -> Json:
    """The file's settings as if every commented setting were said; k8s-snap alone allows all of them."""
    text = _COMMENTED_SETTING.sub(r"\1\2", stack_file(name))
    return changed(read_stack_file(text), "cluster.distribution", "k8s-snap")


def _only_what_a_user_must_edit(name: str) -> Json:
    full = read_stack_file(stack_file(name))
    edited = {"kind", "tegra_nodes", "unified_memory_nodes"}
    return {
        "cluster": full["cluster"],
        "platform": {key: value for key, value in full["platform"].items() if key in edited},
        "kai": {"queues": full["kai"]["queues"]},
    }


def _never_said(model: BaseModel, path: str) -> set[str]:
    """Settings below a model that its file says nowhere; of several entries of one kind, one must say it."""
    missing = {f"{path}{name}" for name in type(model).model_fields.keys() - model.model_fields_set}
    for name in model.model_fields_set:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            missing |= _never_said(value, f"{path}{name}.")
        elif isinstance(value, dict) and value and all(isinstance(entry, BaseModel) for entry in value.values()):
            missing |= set.intersection(*(_never_said(entry, f"{path}{name}.*.") for entry in value.values()))
    return missing


@_FILES
def test_every_setting_stands_in_the_file_said_or_commented(name: str) -> None:
    assert not _never_said(parse(_with_comments_opened(name)), "")


@_FILES
def test_what_a_user_need_not_edit_is_the_default(name: str) -> None:
    assert parse(read_stack_file(stack_file(name))) == parse(_only_what_a_user_must_edit(name))


@_FILES
def test_the_commented_charts_are_the_pinned_ones(name: str) -> None:
    settings = parse(_with_comments_opened(name))
    for chart, pin in ((settings.gpu_operator.chart, GPU_OPERATOR), (settings.kai.chart, KAI_SCHEDULER)):
        assert (chart.source, chart.version) == (pin.source, pin.version)
    assert settings.kai.image_tag == KAI_SCHEDULER.version


def test_the_defaults_are_the_reviewed_ones(golden: Golden) -> None:
    cluster = {"distribution": "kubeadm"}
    tegra = {"kind": "tegra", "tegra_nodes": {"jetson-1": {"gpu_memory_mib": 30720}}}
    queues: Json = {"queues": {"team": {}}}
    stacks: dict[str, Json] = {
        "tegra": {"cluster": cluster, "platform": tegra, "kai": queues},
        "x86": {"cluster": cluster, "platform": {"kind": "x86"}, "kai": queues},
    }
    golden.check("defaults", {name: parse(stack).model_dump(mode="json") for name, stack in stacks.items()})


@_FILES
def test_the_commented_device_plugin_is_the_pinned_one(name: str) -> None:
    gvirtus = parse(_with_comments_opened(name)).gvirtus
    assert gvirtus is not None
    assert gvirtus.frontends is not None
    assert gvirtus.frontends.device_plugin_image == DEVICE_PLUGIN_IMAGE
