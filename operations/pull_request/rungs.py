"""How much of its board each node's reservation pods get, read from the objects that give it to them.

What is read may come from anybody: what is not of our form gives nothing, and no error.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from config.reservation import Privilege
from manifests.admission import NAME as ADMISSION_SERVER
from manifests.node_labels import PLATFORM, PLATFORM_TEGRA
from manifests.reservation import NODES_OF_THE_RUNG, OVERRIDES
from operations.pull_request.labelled import labelled
from operations.pull_request.values import at, mapping, text

Resource: TypeAlias = tuple[str, Mapping[str, object]]
"""A resource's type and inputs."""

# No name of a node has brackets: read from each of many lists to the end, a hostile text would take hours.
_NODES = re.compile(r"params\.metadata\.name in (\[[^][]*\])")


def rungs(resources: Iterable[Resource]) -> dict[str, Privilege]:
    """The rung of each Tegra node whose reservation pods are changed, whoever carries the change.

    Args:
        resources: all of a stack, at one time.
    """
    listed = list(resources)
    nodes = [
        node
        for kind, inputs in listed
        for node, labels in labelled(kind, inputs).items()
        if labels.get(PLATFORM) == PLATFORM_TEGRA
    ]
    rung_by_node: dict[str, Privilege] = {}
    for kind, inputs in listed:
        name = text(at(inputs, "metadata", "name"))
        if kind.endswith(":MutatingAdmissionPolicy") and (name == OVERRIDES or name.startswith(f"{OVERRIDES}-")):
            rung_by_node |= _of_policy(inputs, nodes)
        if kind.endswith(":ConfigMap") and name.startswith(ADMISSION_SERVER):
            rung_by_node |= _of_document(text(at(inputs, "data", "settings.json")), nodes)
    return {node: rung for node, rung in rung_by_node.items() if node in nodes}


def _of_policy(policy: Mapping[str, object], nodes: Iterable[str]) -> dict[str, Privilege]:
    mutations, conditions = at(policy, "spec", "mutations"), at(policy, "spec", "matchConditions")
    given = "".join(
        text(at(mapping(mutation), "applyConfiguration", "expression"))
        for mutation in (mutations if isinstance(mutations, list) else ())
    )
    rung = _rung(privileged="privileged: true" in given, mounts="volumes: [" in given)
    for condition in conditions if isinstance(conditions, list) else ():
        if at(mapping(condition), "name") == NODES_OF_THE_RUNG:
            named = _NODES.search(text(at(mapping(condition), "expression")))
            listed = _json(named[1]) if named else []
            return {node: rung for node in listed if isinstance(node, str)} if isinstance(listed, list) else {}
    return dict.fromkeys(nodes, rung)


def _of_document(document: str, nodes: Iterable[str]) -> dict[str, Privilege]:
    mutation = mapping(at(mapping(_json(document)), "mutations", "reservation"))
    by_name = {
        name: _rung(
            privileged=at(mapping(fragment), "securityContext", "privileged") is True,
            mounts=bool(at(mapping(fragment), "volumes")),
        )
        for name, fragment in mapping(mutation.get("fragments")).items()
    }
    by_node = mapping(mutation.get("byNode"))
    if by_node:
        return {node: by_name[name] for node, name in by_node.items() if isinstance(name, str) and name in by_name}
    return dict.fromkeys(nodes, by_name[""]) if "" in by_name else {}


def _rung(*, privileged: bool, mounts: bool) -> Privilege:
    if privileged:
        return Privilege.PRIVILEGED
    return Privilege.DEVICES if mounts else Privilege.NONE


def _json(document: str) -> object:
    try:
        return json.loads(document) if document else None
    except (ValueError, RecursionError):
        return None
