"""What the engine remembers of this stack's last `up`, read before anything is registered."""

import time
from dataclasses import replace
from typing import Any

import pulumi
from pydantic import BaseModel

from cluster.ownership.deployed_state import DeployedState, is_of_this_program

_TRIES = 20
_PAUSE_SECONDS = 0.25


class _Resource(BaseModel, extra="ignore", frozen=True):
    type: str
    outputs: dict[str, object]


def read_stack_state() -> DeployedState:
    """Whether the stack has resources of this program, and the identity of their cluster.

    The engine answers from the stack's own checkpoint (`readStackResourceOutputs`, a function of its built-in
    provider); nothing is registered by asking.
    """
    answer = _ask(_this_stack())
    resources = {
        urn: _Resource.model_validate(resource)
        for urn, resource in answer["outputs"].items()
        if is_of_this_program(urn)
    }
    state = DeployedState.of((resource.type, resource.outputs) for resource in resources.values())
    return replace(state, urns=frozenset(resources))


def read_deployed_names() -> frozenset[str]:
    """Logical names of everything that the stack's last `up` made, read as `read_stack_state` does."""
    return frozenset(urn.rsplit("::", 1)[-1] for urn in _ask(_this_stack())["outputs"])


def _this_stack() -> str:
    return f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"


def _ask(stack: str) -> Any:  # noqa: ANN401 - validated by the caller
    """Ask, again while the engine is writing the checkpoint that it reads.

    Symptom: `failed to load checkpoint: EOF`, now and then, at the start of an `up`. The file backend replaces the
    checkpoint at once, but empties the file of attributes beside it (`.json.attrs`) before it writes that (pulumi
    3.259, gocloud.dev/blob/fileblob `setAttrs`; described in git-pkgs/proxy's pull request 328, not reported upstream
    that we know of). With `metadata=skip` in the backend's address there are no attributes, and no symptom.
    """
    for attempt in range(1, _TRIES + 1):
        try:
            return pulumi.runtime.invoke("pulumi:pulumi:readStackResourceOutputs", {"stackName": stack}).value
        except Exception as error:
            if "failed to load checkpoint" not in str(error) or attempt == _TRIES:
                raise
            time.sleep(_PAUSE_SECONDS)
    raise AssertionError("unreachable: the last attempt returns or raises")
