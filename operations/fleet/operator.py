"""The objects with which the Pulumi Kubernetes Operator updates the sites. Pure.

Its kind Stack of pulumi.com/v1, as version 2 of the operator has it. What is not written there is the operator's
default; above all `destroyOnFinalize` is not: who deletes an object leaves the site as it is.
"""

import shlex
from collections.abc import Sequence
from typing import Any

from config.bases import PROJECT
from config.model import is_object_name
from operations.errors import OperationError
from operations.fleet.file import Operator
from operations.fleet.order import Step

_FOLDER = "/var/run/kai-anywhere"
_KUBECONFIG, _PASSPHRASE = "kubeconfig", "passphrase"
_CONTAINER = "pulumi"
"""The container of a workspace's pod in which Pulumi runs."""
_LONGEST_MANAGER = 128
"""Letters that the API server takes of a field manager's name."""


def objects(operator: Operator, project: str, every: Sequence[Step], commit: str) -> list[dict[str, Any]]:
    """A Stack for each site; a site waits until all of the wave before it are at the same commit.

    Args:
        operator: where it finds what it updates.
        project: by whose name pulumi keeps the sites' states.
        every: all waves.
        commit: of the repository.

    Raises:
        OperationError: if a site's name can't be that of an object.
    """
    stacks = []
    before: Sequence[str] = ()
    for step in every:
        stacks += [_stack(operator, site, step.name, before, project=project, commit=commit) for site in step.sites]
        before = step.sites
    return stacks


def how_to_apply(operator: Operator) -> str:
    """How the objects come into a cluster, as comments of YAML.

    The names are those of sites alone, and two fleets may have a site of the same name. Applied by the server, in the
    name of its fleet, an object is refused where another fleet has it; by the client, it would take the other one over.
    """
    return (
        "# The API server refuses it where another fleet has an object of the same name: docs/fleets.md.\n"
        f"# kubectl apply --server-side --field-manager={shlex.quote(field_manager(operator))} -f FILE\n"
    )


def field_manager(operator: Operator) -> str:
    """By whose name the API server keeps what a fleet has applied."""
    return _fleet(operator)[-_LONGEST_MANAGER:]


def _fleet(operator: Operator) -> str:
    """The place of the stacks' files, which no two fleets have in common."""
    return operator.repository if operator.folder is None else f"{operator.repository} {operator.folder}"


def object_name(site: str) -> str:
    """The name of a site's Stack, and of the Secret with its credentials.

    Raises:
        OperationError: if it can't be one.
    """
    name = f"{PROJECT}-{site}"
    if not is_object_name(name):
        raise OperationError(
            f"The site '{site}' can't be the name of a Kubernetes object: lower-case letters, digits, '-' and '.'. "
            f"Rename its stack: pulumi stack rename, and its file."
        )
    return name


def _stack(  # noqa: PLR0913 - what differs from site to site, and what does not
    operator: Operator, site: str, wave: str, before: Sequence[str], *, project: str, commit: str
) -> dict[str, Any]:
    name = object_name(site)
    spec: dict[str, Any] = {
        "stack": f"{operator.organization}/{project}/{site}",
        "projectRepo": operator.repository,
        "commit": commit,
        "backend": operator.backend,
        "serviceAccountName": operator.service_account,
        "envRefs": {
            "KUBECONFIG": {"type": "Literal", "literal": {"value": f"{_FOLDER}/{_KUBECONFIG}"}},
            "PULUMI_CONFIG_PASSPHRASE": {"type": "Secret", "secret": {"name": name, "key": _PASSPHRASE}},
        },
        "workspaceTemplate": {"spec": _workspace(operator, name)},
    }
    if operator.folder is not None:
        spec["repoDir"] = operator.folder
    if before:
        # Without a requirement: the operator then wants their last update to have succeeded on the object as it is now,
        # so on this commit (isRequirementSatisfied, v2.9.0).
        spec["prerequisites"] = [{"name": object_name(site)} for site in before]
    labels = {"app.kubernetes.io/part-of": PROJECT, "kai-anywhere.io/wave": wave}
    return {
        "apiVersion": "pulumi.com/v1",
        "kind": "Stack",
        "metadata": {
            "name": name,
            "namespace": operator.namespace,
            "labels": labels,
            # A value that no two fleets have in common: without one, the API server sees no conflict between objects of
            # which one only says more, such as its folder.
            "annotations": {"kai-anywhere.io/fleet": _fleet(operator)},
        },
        "spec": spec,
    }


def _workspace(operator: Operator, secret: str) -> dict[str, Any]:
    """The pod that runs Pulumi: with the site's kubeconfig as a file."""
    items = [{"key": _KUBECONFIG, "path": _KUBECONFIG}]
    pod = {
        "volumes": [{"name": _KUBECONFIG, "secret": {"secretName": secret, "items": items, "defaultMode": 0o440}}],
        "containers": [
            {
                "name": _CONTAINER,
                "volumeMounts": [{"name": _KUBECONFIG, "mountPath": _FOLDER, "readOnly": True}],
            }
        ],
    }
    image = {} if operator.image is None else {"image": operator.image}
    return image | {"podTemplate": {"spec": pod}}
