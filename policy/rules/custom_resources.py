"""No custom resource makes an operator start privileged pods."""

from collections.abc import Iterator

from policy.findings import Told, Violation
from policy.interpreter import is_true
from policy.reading import Hole, dict_of, text_of
from policy.rule import Rule
from policy.stack_platform import StackFacts
from policy.workloads import Document

_KAI_WHY = "KAI gives these fields to the reservation pods of every node, x86 nodes with many GPUs included"
_KAI_REMEDY = "leave KAI's defaults: on Tegra nodes the admission policy adds what they need"


def _check(document: Document, _: StackFacts) -> Iterator[Violation]:
    for context in document.fields("reservationContainerSecurityContext", "reservationPodSecurityContext"):
        for key, value in dict_of(context.value).items():
            if _weakens(key, value):
                yield Violation((*context.path, key), value, _KAI_WHY, _KAI_REMEDY)
    for field in document.fields("psa"):
        enabled = dict_of(field.value).get("enabled")
        if is_true(enabled):
            yield Violation(
                (*field.path, "enabled"),
                enabled,
                "the GPU Operator then labels its namespace privileged by itself",
                "leave it off; the namespace and its label are registered by the stack",
            )
        elif enabled is Hole.UNKNOWN:
            yield Violation((*field.path, "enabled"), enabled)
    if _group(document, "Plan", "upgrade.cattle.io"):
        yield Violation(
            document.path,
            Told("kind Plan"),
            "the system-upgrade controller runs the plan's image on nodes as root, with the host's files and processes",
            "upgrade nodes outside of this program, or accept this plan as an exception",
        )
    if _group(document, "NVIDIADriver", "nvidia.com"):
        yield Violation(
            document.path,
            Told("kind NVIDIADriver"),
            "the operator then starts privileged pods that load kernel modules",
            "install the driver on the host",
        )


def _group(document: Document, kind: str, group: str) -> bool:
    """Whether this is a kind of a group; the token alone may say the kind."""
    return document.is_kind(kind) and text_of(document.root.get("apiVersion")).startswith(f"{group}/")


def _weakens(key: str, value: object) -> bool:
    match key:
        case "privileged" | "allowPrivilegeEscalation":
            return is_true(value)
        case "runAsUser" | "runAsGroup":
            return value == 0 and value is not False
        case "runAsNonRoot":
            return value is False
        case _:
            return False


RULE = Rule(
    name="custom-resources",
    title="No custom resource of KAI or the GPU Operator makes operators start pods with more privilege.",
    why="an operator would start the privileged pods that nobody here wrote",
    remedy="remove it",
    reads=frozenset(
        {
            "reservationContainerSecurityContext",
            "reservationPodSecurityContext",
            "psa",
            "Config:spec.binder",
            "binder.resourceReservation",
        }
    ),
    check=_check,
)
