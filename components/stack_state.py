"""What the engine remembers of this stack's last `up`, read before anything is registered."""

import pulumi
from pydantic import BaseModel, ConfigDict

from cluster.preflight import DeployedState


class _Resource(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    type: str
    outputs: dict[str, object]


def read_stack_state() -> DeployedState:
    """Whether the stack has resources, and the identity of their cluster.

    The engine answers from the stack's own checkpoint (`readStackResourceOutputs`, a function of its built-in
    provider); nothing is registered by asking.
    """
    name = f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"
    answer = pulumi.runtime.invoke("pulumi:pulumi:readStackResourceOutputs", {"stackName": name}).value
    resources = [_Resource.model_validate(resource) for resource in answer["outputs"].values()]
    return DeployedState.of((resource.type, resource.outputs) for resource in resources)
