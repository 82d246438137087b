"""The pods of a file of Kubernetes manifests, grouped as KAI groups them. Pure.

KAI v0.17.0 pkg/podgrouper/podgrouper/plugins; a Deployment is one group from v0.18.0 on (KAI #2109).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from reprlib import Repr
from typing import Any

import yaml
from pydantic import BaseModel, Field, ValidationError

from cluster.access.answers.nodes import tolerated
from config.gvirtus import FRONTEND_ALLOWED
from config.kai import DEFAULT_QUEUE
from config.yaml_text import reason
from gpu_sharing.model import Pod, Workload
from gpu_sharing.queues import QUEUE_LABEL, Queue
from gpu_sharing.request import SCHEDULER, RequestError, pod_request
from manifests.kai import PRIORITY_CLASSES
from operations.errors import OperationError
from operations.plan.machines import Machine

PRIORITY_LABEL = "priorityClassName"
PREEMPTIBILITY_LABEL = "kai.scheduler/preemptibility"
MIN_MEMBER = ("kai.scheduler/min-member", "kai.scheduler/batch-min-member")
NOT_PREEMPTIBLE = 100
"""From this priority on nothing interrupts a pod."""
TRAIN, INFERENCE = "train", "inference"
_KINDS = ("Pod", "Deployment", "ReplicaSet", "StatefulSet", "Job")
_MOST_PODS = 10_000
_BEGINNING = Repr()
"""Of what a file holds, for a message: YAML's aliases make gigabytes of ten lines."""
_BEGINNING.maxlevel = 2


class _Loader(yaml.SafeLoader):
    """Refuses a number that Python reads in hexadecimal and never writes: every message that shows it would fail."""

    def number(self, node: yaml.ScalarNode) -> int:
        number: int = self.construct_yaml_int(node)
        str(number)
        return number


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.number)


class _Read(BaseModel, extra="ignore", frozen=True, strict=True):
    """What is read of a manifest, with the types that the API server insists on; it may hold more."""


class _Metadata(_Read):
    name: str | None = None
    generate_name: str | None = Field(default=None, alias="generateName")
    namespace: str = "default"
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Resources(_Read):
    limits: dict[str, str | int | float] | None = None
    requests: dict[str, str | int | float] | None = None


class _Container(_Read):
    name: str
    resources: _Resources | None = None
    restart_policy: str | None = Field(default=None, alias="restartPolicy")


class _PodSpec(_Read):
    containers: list[_Container] = Field(min_length=1)
    init_containers: list[_Container] | None = Field(default=None, alias="initContainers")
    overhead: dict[str, str | int | float] | None = None
    resources: _Resources | None = None
    scheduler_name: str = Field(default="default-scheduler", alias="schedulerName")
    priority_class: str | None = Field(default=None, alias="priorityClassName")
    node_selector: dict[str, str] | None = Field(default=None, alias="nodeSelector")
    tolerations: list[dict[str, str | int | None]] | None = None
    affinity: dict[str, Any] | None = None

    def as_manifest(self) -> dict[str, Any]:
        return self.model_dump(by_alias=True, exclude_none=True, exclude={"affinity"})


class _Template(_Read):
    metadata: _Metadata = _Metadata()
    spec: _PodSpec


class _WorkloadSpec(_Read):
    template: _Template
    replicas: int | None = Field(default=None, ge=0, le=_MOST_PODS)
    parallelism: int | None = Field(default=None, ge=0, le=_MOST_PODS)
    completions: int | None = Field(default=None, ge=0)
    suspend: bool | None = None

    def count(self, kind: str) -> int:
        """How many pods run at once."""
        if kind != "Job":
            return 1 if self.replicas is None else self.replicas
        if self.suspend:
            return 0
        parallel = 1 if self.parallelism is None else self.parallelism
        return parallel if self.completions is None else min(parallel, self.completions)


class _Object(_Read):
    kind: str
    metadata: _Metadata = _Metadata()


class _Owner(_Read):
    spec: _WorkloadSpec


@dataclass(frozen=True)
class PodsOfFile:
    """The workloads of a file.

    Attributes:
        workloads: in the file's order.
        remarks: what a person should know.
    """

    workloads: tuple[Workload, ...]
    remarks: tuple[str, ...]


def read_workloads(text: str, file: str, machines: Sequence[Machine], queues: Sequence[Queue]) -> PodsOfFile:
    """The pods that a file would make.

    Args:
        text: the file's content, one or more documents.
        file: its name, for messages.
        machines: the nodes, by which node selectors and tolerations are judged.
        queues: all of them; without any, the workloads keep to no queue.

    Raises:
        OperationError: if anything in it can't be planned; the text says where and why.
    """
    workloads: list[Workload] = []
    remarks: list[str] = []
    for document in _documents(text, file):
        where = f"{file}: {document.get('kind', 'an object without a kind')} {_name(document)}"
        try:
            planned = _workload(document, where, machines, queues)
        except ValidationError as error:
            problem = error.errors()[0]
            place = ".".join(map(str, problem["loc"]))
            raise OperationError(
                f"{where}: {place}: {problem['msg']}; found {_BEGINNING.repr(problem['input'])}."
            ) from error
        except RequestError as error:
            raise OperationError(f"{where}: {error}") from error
        if planned is not None:
            workloads += planned.workloads
            remarks += planned.remarks
    if not workloads:
        lines = "".join(f"\n{remark}" for remark in remarks)
        raise OperationError(f"{file} has no pods for KAI. Kinds that have: {', '.join(_KINDS)}.{lines}")
    return PodsOfFile(tuple(workloads), tuple(dict.fromkeys(remarks)))


def distinct(workloads: Sequence[Workload], taken: Iterable[str]) -> tuple[Workload, ...]:
    """The same under names of their own: of a `generateName` there may be two, and what a file has may run already.

    Args:
        workloads: of a file.
        taken: the names of other pods.
    """
    seen = Counter(taken)

    def renamed(pod: Pod) -> Pod:
        seen[pod.name] += 1
        return pod if seen[pod.name] == 1 else replace(pod, name=f"{pod.name} ({seen[pod.name]})")

    return tuple(replace(workload, pods=tuple(map(renamed, workload.pods))) for workload in workloads)


def _documents(text: str, file: str) -> Iterator[Mapping[str, Any]]:
    try:
        for document in yaml.load_all(text, _Loader):
            is_list = isinstance(document, dict) and document.get("kind") == "List"
            items = document.get("items") or () if is_list else (document,)
            for listed in items if isinstance(items, Sequence) else (items,):
                if isinstance(listed, dict):
                    yield listed
                elif listed is not None:
                    raise OperationError(f"{file} holds {_BEGINNING.repr(listed)}, which is no Kubernetes object.")
    # PyYAML itself raises others for what is none of its kind, as `!!bool maybe`, and where mappings are in each other
    # too deep.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise OperationError(f"{file} is not YAML: {reason(error)}") from error


def _name(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata")
    fields = metadata if isinstance(metadata, dict) else {}
    return str(fields.get("name") or fields.get("generateName") or "without a name")


def _workload(
    document: Mapping[str, Any], where: str, machines: Sequence[Machine], queues: Sequence[Queue]
) -> PodsOfFile | None:
    owner = _Object.model_validate(document)
    if owner.kind not in _KINDS:
        if _names_kai(document):
            raise OperationError(f"{where}: this kind can't be planned. Those that can: {', '.join(_KINDS)}.")
        return None
    if owner.kind == "Pod":
        template, count = _Template.model_validate(document), 1
    else:
        spec = _Owner.model_validate(document).spec
        template, count = spec.template, spec.count(owner.kind)
    if template.spec.scheduler_name != SCHEDULER:
        remark = f"{where} is left out: its schedulerName is {template.spec.scheduler_name}, not {SCHEDULER}."
        return PodsOfFile((), (remark,))
    remarks = []
    if template.spec.affinity:
        remarks.append(f"{where}: its affinity is not looked at.")
    manifest = {
        "metadata": {"annotations": template.metadata.annotations or {}},
        "spec": template.spec.as_manifest(),
    }
    request = pod_request(manifest)
    nodes, unknown = accepted(template.spec.node_selector or {}, template.spec.tolerations or (), machines)
    if unknown:
        remarks.append(f"{where}: nodeSelector {', '.join(unknown)} is not looked at: the nodes' labels are not known.")
    labels = {**(template.metadata.labels or {}), **(owner.metadata.labels or {})}
    priority_class = labels.get(PRIORITY_LABEL) or template.spec.priority_class
    usual = INFERENCE if owner.kind == "Deployment" else TRAIN
    if priority_class is not None and priority_class not in PRIORITY_CLASSES:
        remarks.append(
            f"{where}: PriorityClass {priority_class} is not one of KAI's, so {usual} is taken, as KAI does without it."
        )
    priority = PRIORITY_CLASSES.get(priority_class or usual, PRIORITY_CLASSES[usual])
    name = _name(document)
    names = [name] if owner.kind == "Pod" else [f"{name}-{number}" for number in range(1, count + 1)]
    if owner.metadata.namespace != "default":
        names = [f"{owner.metadata.namespace}/{pod_name}" for pod_name in names]
    workload = Workload(
        pods=tuple(Pod(pod_name, request, nodes) for pod_name in names),
        queue=labels.get(QUEUE_LABEL, DEFAULT_QUEUE) if queues else None,
        priority=priority,
        preemptible=is_preemptible(labels.get(PREEMPTIBILITY_LABEL, ""), priority),
        min_member=_min_member(owner, where),
    )
    return PodsOfFile((workload,), tuple(remarks))


def _names_kai(document: Mapping[str, Any]) -> bool:
    """Whether a pod in it names KAI as its scheduler, at any depth. KAI's own Config names it too, and is no pod."""
    left: list[object] = [document]
    seen: set[int] = set()  # what YAML's aliases repeat is looked at once
    while left:
        value = left.pop()
        if not isinstance(value, dict | list) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, list):
            left += value
        elif value.get("schedulerName") == SCHEDULER and "containers" in value:
            return True
        else:
            left += value.values()
    return False


def is_preemptible(preemptibility: str, priority: int) -> bool:
    """Whether pods may be interrupted (KAI v0.17.0 pkg/common/podgroup/preemptible.go).

    Args:
        preemptibility: the label `kai.scheduler/preemptibility` or the pod group's field; empty where nothing is said.
        priority: of the PriorityClass, which decides then.
    """
    return preemptibility.lower() == "preemptible" if preemptibility else priority < NOT_PREEMPTIBLE


def _min_member(owner: _Object, where: str) -> int:
    for annotation in MIN_MEMBER:
        if (minimum := (owner.metadata.annotations or {}).get(annotation)) is not None:
            if not re.fullmatch(r"0*[1-9][0-9]{0,8}", minimum):
                raise OperationError(f"{where}: {annotation} is '{minimum}': give a whole number above 0.")
            return int(minimum)
    return 1


def accepted(
    selector: Mapping[str, str], tolerations: Sequence[Mapping[str, Any]], machines: Sequence[Machine]
) -> tuple[frozenset[str] | None, list[str]]:
    """The nodes that a pod accepts, by its nodeSelector and tolerations.

    A frontend's GPUs are for pods that select frontends: a cluster with frontends keeps all others away.

    Returns:
        Their names, None for all; and the labels that it selects by and that are not known of some node.
    """
    names, unknown = set(), set()
    for machine in machines:
        missing = {key for key in selector if key not in machine.labels}
        if not machine.all_labels:
            unknown |= missing
            missing = set()
        matches = all(machine.labels.get(key, value) == value for key, value in selector.items())
        if machine.is_frontend and FRONTEND_ALLOWED not in selector:
            continue
        if matches and not missing and all(tolerated(taint, tolerations) for taint in machine.taints):
            names.add(machine.node.name)
    return (None if len(names) == len(machines) else frozenset(names)), sorted(unknown)
