"""The whole program of a stack as the recording monitor sees it."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from cluster.access.binding import NO_CLUSTER
from components.kai_anywhere import KaiAnywhere, KaiAnywhereArgs
from testbed.stacks import Json, changed, parse
from tests.support.recording_monitor import Graph, record

PROVIDER = "kubernetes:kai-anywhere-cluster"
CLUSTER_UID = "a-cluster"
KUBECONFIG = "~/.kai-anywhere/clusters/a-cluster"


def preview(
    stack: Json,
    *,
    cluster_uid: str | None = CLUSTER_UID,
    deployed: bool = False,
    adopted: Mapping[str, Mapping[str, Any]] | None = None,
) -> Graph:
    """A preview of a stack; most tests ask for the same few."""
    return _recorded(json.dumps([stack, adopted or {}]), cluster_uid, deployed=deployed)


@cache
def _recorded(stack_and_adopted: str, cluster_uid: str | None, *, deployed: bool) -> Graph:
    stack, adopted = json.loads(stack_and_adopted)
    return record(_program(stack, cluster_uid, adopted), deployed=deployed)


def up(stack: Json, config_path: str) -> Graph:
    """An `up` of a stack on the cluster behind a kubeconfig."""
    return record(_program(changed(stack, "cluster.kubeconfig", config_path), CLUSTER_UID, {}), preview=False)


def _program(stack: Json, cluster_uid: str | None, adopted: Mapping[str, Mapping[str, Any]]) -> Callable[[], None]:
    settings = parse(stack)
    kubeconfig = KUBECONFIG if cluster_uid else NO_CLUSTER

    def program() -> None:
        KaiAnywhere("kai-anywhere", KaiAnywhereArgs(settings, cluster_uid, kubeconfig, adopted=adopted))

    return program
