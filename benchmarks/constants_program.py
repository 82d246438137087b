"""A Pulumi program that registers the resources of a stack's state, with the inputs that stand there, and no more.

What a preview of it costs, the engine, the language host and the providers cost. `benchmarks.projects` copies it into a
project of its own, beside the state.
"""

import json
from pathlib import Path

import pulumi

resources = json.loads(Path(__file__).with_name("state.json").read_text(encoding="utf-8"))["deployment"]["resources"]
made: dict[str, pulumi.Resource] = {}
providers: dict[str, pulumi.ProviderResource] = {}
# A state has each resource behind those that it needs.
for state in resources:
    urn, kind = state["urn"], state["type"]
    name = urn.rpartition("::")[2]
    options = pulumi.ResourceOptions(
        parent=made.get(state.get("parent")),
        depends_on=[made[waited] for waited in state.get("dependencies", []) if waited in made],
        provider=providers.get(state.get("provider", "").rpartition("::")[0]),
    )
    if kind in ("pulumi:pulumi:Stack", "pulumi:providers:pulumi"):
        continue  # the engine makes both
    if kind.startswith("pulumi:providers:"):
        made[urn] = providers[urn] = pulumi.ProviderResource(kind.rpartition(":")[2], name, state["inputs"], options)
    elif state["custom"]:
        made[urn] = pulumi.CustomResource(kind, name, state["inputs"], options)
    else:
        made[urn] = pulumi.ComponentResource(kind, name, None, options)
