"""What the hooks of the component above everything hold on to."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pulumi
import pytest

from cluster.access.client import Cluster
from components import adoption
from testbed.stacks import parse, x86


def _before_create() -> Any:  # noqa: ANN401 - Pulumi's hook, by its private binding
    options = adoption.sparing("gpus", {}, parse(x86()).cluster)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kai-scheduler"}}
    [transformation] = options.transformations or []
    changed = transformation(
        pulumi.ResourceTransformationArgs(
            resource=Mock(),
            type_="kubernetes:core/v1:Namespace",
            name="n",
            props=namespace,
            opts=pulumi.ResourceOptions(),
        )
    )
    hooks: Any = changed and changed.opts.hooks
    [hook] = hooks.before_create
    return lambda: hook.callback(SimpleNamespace(new_inputs=namespace, name="n"))


def test_all_objects_are_asked_about_over_one_connection_which_is_closed_with_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[object] = []
    opened = Mock()
    finalize = Mock()
    monkeypatch.setattr(Cluster, "connect", Mock(return_value=opened))
    # What calls the second once the first is gone: Pulumi's event loop holds the hook for as long as it runs.
    monkeypatch.setattr(adoption, "weakref", SimpleNamespace(finalize=finalize))
    monkeypatch.setattr(adoption, "refuse_another_stacks", lambda connection, _: asked.append(connection))
    monkeypatch.setattr(adoption, "this_stack", lambda: "project/stack")
    ask = _before_create()
    ask()
    ask()
    assert asked == [opened, opened]
    [closing] = finalize.call_args_list
    assert closing.args[1] is opened.close
