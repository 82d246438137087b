"""What a check is: what it asks of the facts, and what it says where the answer is no."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum, unique

from typing_extensions import override

from operations.doctor.facts import Facts, Source

SUPPRESS = "kai-anywhere.io/doctor-suppress"
"""Annotation of an object: the codes, with commas between them, that are not reported of it."""


@unique
class Category(StrEnum):
    """What a check looks at, in the order of causes; a code's first two digits count it."""

    CLUSTER = "cluster"
    KAI = "kai"
    GPU_OPERATOR = "gpu-operator"
    NODES = "nodes"
    RESERVATION = "reservation"
    QUEUES = "queues"
    PODS = "pods"
    GVIRTUS = "gvirtus"
    ADMISSION = "admission"
    HOSTS = "hosts"
    MONITORING = "monitoring"


@unique
class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    """Something does not work."""
    WARNING = "warning"
    """Something will not work, or works less well than it looks."""


@dataclass(frozen=True)
class Subject:
    """The object that a finding speaks of.

    Attributes:
        kind: as kubectl writes it.
        name: of the object.
        namespace: empty where it has none.
        annotations: what the object says of checks.
    """

    kind: str
    name: str
    namespace: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict, compare=False, hash=False, repr=False)

    @override
    def __str__(self) -> str:
        """As a person reads it."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    def suppresses(self, code: str) -> bool:
        """Whether the object's annotation names the code."""
        return code in re.split(r"[,\s]+", self.annotations.get(SUPPRESS, ""))


@dataclass(frozen=True)
class Finding:
    """One object that is not as it must be.

    Attributes:
        subject: the object.
        what: what was seen, in a sentence.
        evidence: what the cluster says, word for word where it is short.
        about: the nodes, pods, groups and workloads that it concerns, as `of_node` and the like name them.
        reach: what it explains, by the same names: findings that concern one of them; None for the whole cluster.
        remedy: in place of the check's, where it depends on what was seen.
    """

    subject: Subject
    what: str
    evidence: tuple[str, ...] = ()
    about: frozenset[str] = frozenset()
    reach: frozenset[str] | None = None
    remedy: str = ""


@dataclass(frozen=True)
class Check:
    """One failure mode.

    Attributes:
        code: stable, `KA` and four digits: its category, and its number there.
        title: what is wrong, in a sentence without an object.
        judge: every finding; pure.
        symptom: what a person sees.
        cause: why it is so.
        remedy: what to do. `{name}` and `{namespace}` stand for the object's, the others for what `Facts.names` has.
        source: where upstream says so: versions, files, issues.
        needs: what has to be readable for it.
        severity: how bad its findings are.
        explains: codes of checks whose findings follow from this one's.
    """

    code: str
    title: str
    judge: Callable[[Facts], Iterable[Finding]]
    _: KW_ONLY
    symptom: str
    cause: str
    remedy: str
    source: str
    needs: AbstractSet[Source]
    severity: Severity = Severity.ERROR
    explains: Collection[str] = ()

    @property
    def category(self) -> Category:
        """What it looks at."""
        return list(Category)[int(self.code[2:4]) - 1]

    def remedy_of(self, finding: Finding, names: Mapping[str, str]) -> str:
        """What to do about a finding.

        Args:
            finding: one of this check's.
            names: what else is named there.
        """
        text = finding.remedy or self.remedy
        return filled_in(text, {"name": finding.subject.name, "namespace": finding.subject.namespace, **names})


def filled_in(remedy: str, values: Mapping[str, str]) -> str:
    """A remedy with its values. Other braces stay: they are of `kubectl -o jsonpath`."""
    for placeholder, value in values.items():
        remedy = remedy.replace(f"{{{placeholder}}}", value)
    return remedy


def of_node(name: str) -> str:
    """A node, for `about`."""
    return f"node/{name}"


def of_pod(namespace: str, name: str) -> str:
    """A pod, for `about`."""
    return f"pod/{namespace}/{name}"


def of_group(name: str) -> str:
    """A GPU group, for `about`."""
    return f"group/{name}"


def of_queue(name: str) -> str:
    """A queue, for `about`."""
    return f"queue/{name}"


def of_deployment(namespace: str, name: str) -> str:
    """A Deployment or DaemonSet, for `about`."""
    return f"workload/{namespace}/{name}"
