"""Objects of other kinds, as the API server answers: workloads, Helm's revisions, and any kind's metadata."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any

from pydantic import AliasPath, BeforeValidator, Field

from cluster.access.answers.answer import Answer, Condition, FieldOwner, release_of


class LiveObject(Answer):
    """An object of any kind as it is now, and who wrote it."""

    content: dict[str, Any]
    owners: list[FieldOwner] = Field(
        default=[], validation_alias=AliasPath("content", "metadata", "managedFields"), exclude=True
    )
    annotations: dict[str, str] = Field(
        default={}, validation_alias=AliasPath("content", "metadata", "annotations"), exclude=True
    )

    @property
    def managers(self) -> list[str]:
        """Who wrote anything of it but its status, in the order of the API server."""
        return list(dict.fromkeys(owner.manager for owner in self.owners if not owner.subresource))

    @property
    def release(self) -> tuple[str, str] | None:
        """Namespace and name of the Helm release that it came with."""
        return release_of(self.annotations, self.content["metadata"].get("namespace", ""))


class ObjectMetadata(Answer):
    """What an object of any kind is called, and who made it."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    namespace: str = Field(default="", validation_alias=AliasPath("metadata", "namespace"))
    uid: str = Field(default="", validation_alias=AliasPath("metadata", "uid"))
    created: str = Field(default="", validation_alias=AliasPath("metadata", "creationTimestamp"))
    annotations: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "annotations"))
    owners: list[FieldOwner] = Field(default=[], validation_alias=AliasPath("metadata", "managedFields"))

    @property
    def release(self) -> tuple[str, str] | None:
        """Namespace and name of the Helm release that it came with."""
        return release_of(self.annotations, self.namespace)


class Namespace(Answer):
    """A namespace: its metadata, and what its deletion waits for."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    uid: str = Field(validation_alias=AliasPath("metadata", "uid"))
    deleted: datetime | None = Field(default=None, validation_alias=AliasPath("metadata", "deletionTimestamp"))
    """Since when it is being deleted."""
    labels: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "labels"))
    annotations: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "annotations"))
    owners: list[FieldOwner] = Field(default=[], validation_alias=AliasPath("metadata", "managedFields"))
    conditions: list[Condition] = Field(default=[], validation_alias=AliasPath("status", "conditions"))

    @property
    def held(self) -> str:
        """What its deletion waits for, in Kubernetes' words; empty where it says nothing."""
        return held_by(self.conditions)


def held_by(conditions: Iterable[Condition]) -> str:
    """What a namespace's conditions say of its deletion: what is left in it, finalizers, or an API without a server."""
    return "; ".join(
        condition.message.rstrip(". ") for condition in conditions if condition.status == "True" and condition.message
    )


API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
"""Where the API server lists them."""


class ApiService(Answer):
    """A version of an API group, and what serves it: the API server itself, or a Service."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    annotations: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "annotations"))
    service: str = Field(default="", validation_alias=AliasPath("spec", "service", "name"))
    namespace: str = Field(default="", validation_alias=AliasPath("spec", "service", "namespace"))
    conditions: list[Condition] = Field(default=[], validation_alias=AliasPath("status", "conditions"))

    @property
    def unavailable(self) -> str:
        """Why its Service does not answer; empty where it does."""
        words = (f"{condition.reason}: {condition.message}" for condition in self.conditions if self._is_bad(condition))
        return next(words, "") if self.service else ""

    @staticmethod
    def _is_bad(condition: Condition) -> bool:
        return condition.type == "Available" and condition.status == "False"


class Container(Answer):
    """A container of a pod template."""

    image: str = ""


class Installed(Answer):
    """An object that says which Helm release it came with, if it came with one."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    namespace: str = Field(default="", validation_alias=AliasPath("metadata", "namespace"))
    labels: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "labels"))
    annotations: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "annotations"))
    containers: list[Container] = Field(
        default=[], validation_alias=AliasPath("spec", "template", "spec", "containers")
    )

    @property
    def release(self) -> tuple[str, str] | None:
        """Namespace and name of its Helm release."""
        return release_of(self.annotations, self.namespace)


class _Workload(Installed):
    """What has a controller that makes its pods."""

    generation: int = Field(default=0, validation_alias=AliasPath("metadata", "generation"))
    observed: int = Field(default=0, validation_alias=AliasPath("status", "observedGeneration"))
    """The generation that the status speaks of."""

    @property
    def is_observed(self) -> bool:
        """Whether the controller has seen the last change, so that the status speaks of it."""
        return self.observed >= self.generation


class Deployment(_Workload):
    """A Deployment's readiness."""

    desired: int = Field(default=1, validation_alias=AliasPath("spec", "replicas"))
    available: int = Field(default=0, validation_alias=AliasPath("status", "availableReplicas"))
    updated: int = Field(default=0, validation_alias=AliasPath("status", "updatedReplicas"))
    """Replicas of the present template."""
    conditions: list[Condition] = Field(default=[], validation_alias=AliasPath("status", "conditions"))

    @property
    def rolled_out(self) -> bool:
        """Whether all replicas of the present template were available once, whatever became of them since.

        Its controller does not take that reason back before the template changes (Kubernetes v1.36
        pkg/controller/deployment/progress.go), and where that goes back to an older one, not before a replica has it.
        """
        return (
            self.is_observed
            and self.updated >= self.desired
            and any(
                condition.type == "Progressing" and condition.reason == "NewReplicaSetAvailable"
                for condition in self.conditions
            )
        )

    @property
    def refusal(self) -> str:
        """Why the API server refuses a pod of it, in its words; empty where it does not."""
        refusing = (
            condition
            for condition in self.conditions
            if condition.type == "ReplicaFailure" and condition.status == "True"
        )
        return next((condition.message for condition in refusing), "")


class DaemonSet(_Workload):
    """A DaemonSet's readiness."""

    desired: int = Field(default=0, validation_alias=AliasPath("status", "desiredNumberScheduled"))
    """On how many nodes it belongs."""
    ready: int = Field(default=0, validation_alias=AliasPath("status", "numberReady"))
    """On how many of them its pod is ready."""


class Job(Answer):
    """A Job, as far as Helm waits for one."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    namespace: str = Field(default="", validation_alias=AliasPath("metadata", "namespace"))
    deleted: datetime | None = Field(default=None, validation_alias=AliasPath("metadata", "deletionTimestamp"))
    annotations: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "annotations"))
    owners: list[FieldOwner] = Field(default=[], validation_alias=AliasPath("metadata", "managedFields"))
    conditions: list[Condition] = Field(default=[], validation_alias=AliasPath("status", "conditions"))

    @property
    def ended(self) -> bool:
        """Whether it came to its end, well or not."""
        return any(
            condition.type in {"Complete", "Failed"} and condition.status == "True" for condition in self.conditions
        )


def _number(version: object) -> int:
    """Which revision it is; 0 in a Secret that only looks like Helm's, as everybody may make one in his namespace."""
    return int(version) if isinstance(version, str) and version.isdecimal() else 0


class HelmRevision(Answer):
    """One stored revision of a Helm release: the Secret's labels, never its content."""

    secret: str = Field(validation_alias=AliasPath("metadata", "name"))
    namespace: str = Field(default="", validation_alias=AliasPath("metadata", "namespace"))
    release: str = Field(default="", validation_alias=AliasPath("metadata", "labels", "name"))
    version: Annotated[int, BeforeValidator(_number)] = Field(
        default=0, validation_alias=AliasPath("metadata", "labels", "version")
    )
    status: str = Field(default="", validation_alias=AliasPath("metadata", "labels", "status"))
    created: str = Field(default="", validation_alias=AliasPath("metadata", "creationTimestamp"))
    uid: str = Field(default="", validation_alias=AliasPath("metadata", "uid"))
    resource_version: str = Field(default="", validation_alias=AliasPath("metadata", "resourceVersion"))
    owners: list[FieldOwner] = Field(default=[], validation_alias=AliasPath("metadata", "managedFields"))

    @property
    def half_done(self) -> bool:
        """Whether Helm is at work on it, or was killed there: `pending-install`, `-upgrade` or `-rollback`."""
        return self.status.startswith("pending-")

    @property
    def half_removed(self) -> bool:
        """Whether Helm is at work on removing the release, or was killed there."""
        return self.status == "uninstalling"


class PullSecret(Answer):
    """A Secret with the login of a registry, its content included."""

    type: str = ""
    data: dict[str, str] = Field(default={}, repr=False)
