"""CustomResourceDefinitions of the charts that the API server has and does not serve."""

from collections.abc import Iterator

from pydantic import AliasPath, Field

from cluster.access.answers.answer import Answer, Condition
from cluster.access.answers.objects import ObjectMetadata
from cluster.access.client import Cluster
from cluster.ownership.leftovers import DEFINITIONS, GROUPS
from cluster.preflight.findings import Finding


class _Version(Answer):
    served: bool = False


class _Definition(Answer):
    versions: list[_Version] = Field(validation_alias=AliasPath("spec", "versions"))
    conditions: list[Condition] = Field(default=[], validation_alias=AliasPath("status", "conditions"))

    @property
    def is_to_be_served(self) -> bool:
        """Whether the API server would serve it by itself: not where no version is to be, or its names are taken."""
        refused = any(
            condition.type == "NamesAccepted" and condition.status == "False" for condition in self.conditions
        )
        return not refused and any(version.served for version in self.versions)


def read_unserved(cluster: Cluster) -> tuple[str, ...]:
    """The names of those that discovery does not have yet, by which Helm and Pulumi's provider find a kind.

    Symptom: `no matches for kind "NodeFeatureRule"` of an `up` that follows one in which the API server died. An API
    server makes a definition in two steps, and notes each. One that is stopped between them, and started again, takes
    the second step when it next looks at every definition (Kubernetes v1.36 apiextensions-apiserver,
    pkg/apiserver/customresource_handler.go and apiserver.go: every 5 minutes; not reported upstream that we know of).
    Helm waits for the definitions that it makes, and takes those that are there for served.
    """
    listed = cluster.objects(DEFINITIONS, ObjectMetadata, metadata=True)
    made = {definition.name for definition in listed if definition.name.partition(".")[2] in GROUPS}
    if not made:
        return ()
    served = {
        f"{kind.plural}.{group.name}"
        for group in cluster.kinds()
        for version in group.versions
        for kind in version.resources
    }
    return tuple(name for name in sorted(made - served) if _is_to_be_served(cluster, name))


def _is_to_be_served(cluster: Cluster, name: str) -> bool:
    definitions = cluster.objects(DEFINITIONS, _Definition, params={"fieldSelector": f"metadata.name={name}"})
    return any(definition.is_to_be_served for definition in definitions)


def judge_unserved(names: tuple[str, ...]) -> Iterator[Finding]:
    """What is wrong with them."""
    if names:
        yield Finding(
            f"the API server does not serve every CustomResourceDefinition that it has: {', '.join(names)}. Helm would "
            "take them for served. They were made a moment ago, or an API server was stopped while it made them.",
            "Run again: the API server completes them within 5 minutes. If one stays so, see why: kubectl describe "
            f"customresourcedefinition {names[0]}",
        )
