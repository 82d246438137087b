"""The rungs, the pod of each, and what a pod that fails says about the next one. Pure: it knows no cluster."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, unique
from types import MappingProxyType

from config.reservation import Overrides, Privilege
from config.stack import StackSettings
from manifests.objects import RBAC_GROUP, Manifest, namespace
from manifests.reservation import CONTAINER, RUNTIME_CLASS, tegra_fragment

NAMESPACE = "kai-anywhere-privilege-probe"
"""One for every run: the pod guard can be told of it, and the next run finds what a killed one left."""
LABEL = "kai-anywhere.io/privilege-probe"
"""What everything of the probe carries, and nothing else does."""
ACCOUNT = "privilege-probe"
ANSWER = "run.ai/reserve_for_gpu_index"
"""Annotation that the pod writes on itself once NVML told it the GPU (KAI v0.18, pkg/resourcereservation)."""
ANSWER_SECONDS = 40
"""How long KAI lets a reservation pod run without an answer."""
START_SECONDS = 240
"""How long its container may take to start, the pull of its image included."""
VIDEO = 44
"""The group `video` of Ubuntu, so of JetPack."""

_LABELS = {LABEL: "true", "app.kubernetes.io/part-of": "kai-anywhere"}
_GRACE_SECONDS = 5


@unique
class Feature(StrEnum):
    """What a rung adds to KAI's own pod."""

    RUNTIME_CLASS = "the runtime class nvidia"
    VARIABLES = "the variables"
    GROUPS = "the groups of the device files"
    ROOT = "root, without any capability"
    LIBRARIES = "the driver's libraries from the host, read-only"
    PRIVILEGED = "privilege and the host's /dev"


@dataclass(frozen=True)
class Rung:
    """A step of the ladder.

    Attributes:
        name: its name here.
        features: what its pod has beyond a pod with nothing but `nvidia.com/gpu: 1`.
        privilege: what stands for it under `reservation`, or None where nothing does.
    """

    name: str
    features: frozenset[Feature]
    privilege: Privilege | None = None

    @property
    def pod_security(self) -> str:
        """The Pod Security level that its namespace needs."""
        return "privileged" if Feature.LIBRARIES in self.features else "baseline"

    @property
    def adds(self) -> str:
        """Its features in words."""
        return ", ".join(feature.value for feature in Feature if feature in self.features) or "nothing"


_NONE = frozenset({Feature.RUNTIME_CLASS, Feature.VARIABLES})
_GROUPS = _NONE | {Feature.GROUPS}
_DEVICES = _NONE | {Feature.LIBRARIES}

LADDER = (
    Rung("plain", frozenset()),
    Rung("runtime-class", frozenset({Feature.RUNTIME_CLASS})),
    Rung("variables", _NONE, Privilege.NONE),
    Rung("groups", _GROUPS, Privilege.NONE),
    Rung("root", _GROUPS | {Feature.ROOT}),
    Rung("libraries", _DEVICES, Privilege.DEVICES),
    Rung("libraries-groups", _DEVICES | {Feature.GROUPS}, Privilege.DEVICES),
    Rung("libraries-root", _DEVICES | {Feature.GROUPS, Feature.ROOT}),
    Rung("privileged", frozenset(Feature), Privilege.PRIVILEGED),
)
"""From the least power to the most."""


@unique
class Symptom(StrEnum):
    """What a rung's pod told."""

    HELD = "held"
    REFUSED = "refused by admission"
    NO_LIBRARY = "library not found"
    CLOSED = "devices missing or closed"
    UNKNOWN_ID = "unknown device id"
    SEVERAL = "more than one GPU"
    NO_RUNTIME = "no runtime nvidia on the node"
    NO_FOLDER = "a mounted folder is not on the node"
    NO_GPU = "no free GPU"
    NO_IMAGE = "image not pulled"
    NO_API = "the pod does not reach the API server"
    NOT_STARTED = "the pod did not start"
    OTHER = "another failure"


_ANYTHING = frozenset(Feature)


@dataclass(frozen=True)
class Meaning:
    """What a symptom says.

    Attributes:
        means: the likely cause, and what to look at.
        helped_by: what may help; empty where no rung does.
        pattern: how it reads in the pod's log, its state and its events; None where it is told otherwise.
        answers: whether it says something about the board; otherwise the probe itself could not run.
    """

    means: str
    helped_by: frozenset[Feature] = field(default_factory=frozenset)
    pattern: re.Pattern[str] | None = None
    answers: bool = True


def _like(*texts: str) -> re.Pattern[str]:
    return re.compile("|".join(texts), re.IGNORECASE)


MEANINGS: Mapping[Symptom, Meaning] = MappingProxyType(
    {
        Symptom.HELD: Meaning("the pod told the UUID of its GPU", _ANYTHING),
        Symptom.REFUSED: Meaning("admission refuses such a pod, so whether it would hold is not known"),
        # What is sure comes before what other failures may also print.
        Symptom.NO_GPU: Meaning(
            "the kubelet has no GPU left to give: somebody took it meanwhile. Free it, and probe again",
            pattern=_like(
                r"OutOfnvidia\.com/gpu", r"UnexpectedAdmissionError.*nvidia\.com/gpu", r"insufficient nvidia\.com/gpu"
            ),
            answers=False,
        ),
        Symptom.NO_IMAGE: Meaning(
            "the node can't pull KAI's image: import it there, or name another with --image. Of the Secrets under "
            "kai.images.pull_secrets the probe has those of the namespace kai-resource-reservation, as KAI's own pods",
            pattern=_like("ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName"),
            answers=False,
        ),
        Symptom.NO_RUNTIME: Meaning(
            "the node's container runtime does not know NVIDIA's: configure it, and restart it or k3s",
            pattern=_like('no runtime for "?nvidia"? is configured'),
        ),
        Symptom.NO_FOLDER: Meaning(
            "the folder of the driver's libraries, or the one of the devices, is not there: "
            "platform.driver_library_path, driver_library_paths of the node or platform.device_path is wrong",
            pattern=_like("hostPath type check failed"),
        ),
        Symptom.UNKNOWN_ID: Meaning(
            "the device plugin names the GPU by an id that the toolkit does not know, which no rung changes: set "
            "gpu_operator.device_id_strategy to index, or look at the node's CDI specifications",
            pattern=_like("unsupported device id", "unresolvable CDI devices"),
        ),
        Symptom.SEVERAL: Meaning(
            "the driver shows several GPUs where KAI takes exactly one: a discrete GPU beside the integrated one, or "
            "MIG; no rung changes that",
            pattern=_like(r"found (?!0 )\d+ devices, 1 was expected"),
        ),
        Symptom.NO_API: Meaning(
            "the pod ran and could not speak with the API server, before or after it asked for the GPU: look at the "
            "node's pod network and at network policies",
            pattern=_like("could not find pod", "could not get pod", "could not patch pod", "could not create client"),
            answers=False,
        ),
        Symptom.NO_LIBRARY: Meaning(
            "no driver library is in the pod: the toolkit injects none (no CDI specification, empty drivers.csv, or "
            "the plugin passes only a variable)",
            frozenset({Feature.RUNTIME_CLASS, Feature.VARIABLES, Feature.LIBRARIES, Feature.PRIVILEGED}),
            _like("LIBRARY_NOT_FOUND", "NVML Shared Library Not Found"),
        ),
        Symptom.CLOSED: Meaning(
            "the library is there, and the device files are missing, or closed to the pod's user or to its container: "
            "a toolkit up to 1.18, or one that is told not to add their groups",
            frozenset({Feature.RUNTIME_CLASS, Feature.GROUPS, Feature.ROOT, Feature.PRIVILEGED}),
            # The last two were seen of NVIDIA's own NVML (driver 580.159.04): where the container's device cgroup does
            # not have the driver's control device, and where it has this one and not the GPU's.
            _like(
                "Driver Not Loaded",
                "DRIVER_NOT_LOADED",
                "NO_PERMISSION",
                "Insufficient Permissions",
                "NVML: (ERROR_UNKNOWN|Unknown Error)",
                r"found 0 devices, 1 was expected",
            ),
        ),
        Symptom.NOT_STARTED: Meaning(
            "its container did not start in time, and nothing says why: look at the kubelet and at the image's pull",
            answers=False,
        ),
        Symptom.OTHER: Meaning("nothing that this ladder knows: read the lines", _ANYTHING),
    }
)


@dataclass(frozen=True)
class Seen:
    """What there is to see of a rung's pod.

    Attributes:
        answer: its annotation.
        ended: whether it runs no more, or will not start without a change.
        started: whether its container runs or ran.
        log: the end of its log.
        messages: reasons and messages of the pod, its container and its events.
        seconds: since it was made, or since its container ran.
    """

    answer: str
    ended: bool
    started: bool
    log: str
    messages: tuple[str, ...]
    seconds: float

    @property
    def evidence(self) -> tuple[str, ...]:
        """The lines that a person reads."""
        return (*self.messages, *self.log.splitlines())


@dataclass(frozen=True)
class Attempt:
    """A rung that was tried, and what came of it."""

    rung: Rung
    symptom: Symptom
    evidence: tuple[str, ...] = ()


def read(seen: Seen) -> Symptom | None:
    """The symptom, or None while it is too early to tell."""
    if seen.answer:
        return Symptom.HELD
    over = seen.seconds >= (ANSWER_SECONDS if seen.started else START_SECONDS)
    final = {Symptom.NO_RUNTIME, Symptom.NO_FOLDER, Symptom.NO_IMAGE}
    text = "\n".join(seen.evidence)
    for symptom, meaning in MEANINGS.items():
        if meaning.pattern and (seen.ended or over or symptom in final) and meaning.pattern.search(text):
            return symptom
    if seen.ended:
        return Symptom.OTHER
    return (Symptom.OTHER if seen.started else Symptom.NOT_STARTED) if over else None


def next_rung(attempts: Sequence[Attempt]) -> Rung | None:
    """The next one to try, or None where there is an answer or no rung is left that could help.

    It has all of the rung that ran last, and something more that helps against its symptom. A rung that holds and that
    settings can't say is followed by one that they can. What has all of a refused rung would be refused as well.
    """
    if not attempts:
        return LADDER[0]
    if answer(attempts):
        return None
    ran = [attempt for attempt in attempts if attempt.symptom is not Symptom.REFUSED]
    if not ran:
        return None
    last = ran[-1]
    held = any(attempt.symptom is Symptom.HELD for attempt in ran)
    tried = {attempt.rung for attempt in attempts}
    refused = [attempt.rung for attempt in attempts if attempt.symptom is Symptom.REFUSED]
    for rung in LADDER:
        more = rung.features - last.rung.features
        if (
            rung not in tried
            and rung.features > last.rung.features
            and more & MEANINGS[last.symptom].helped_by
            and (rung.privilege is not None or not held)
            and not any(rung.features >= refused_rung.features for refused_rung in refused)
        ):
            return rung
    return None


def answer(attempts: Sequence[Attempt]) -> Rung | None:
    """The lowest rung that held and that settings can say."""
    held = [
        attempt.rung for attempt in attempts if attempt.symptom is Symptom.HELD and attempt.rung.privilege is not None
    ]
    return min(held, key=LADDER.index, default=None)


def probe_namespace(rung: Rung) -> Manifest:
    """The probe's namespace, at the Pod Security level of a rung."""
    made = namespace(NAMESPACE, pod_security=rung.pod_security)
    return made | {"metadata": made["metadata"] | {"labels": made["metadata"]["labels"] | _LABELS}}


def rights() -> list[Manifest]:
    """What lets the pod write its answer on itself: on pods of the probe's namespace, and nothing else."""
    return [
        _object("v1", "ServiceAccount", {"automountServiceAccountToken": True}),
        _object(
            f"{RBAC_GROUP}/v1",
            "Role",
            {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch"]}]},
        ),
        _object(
            f"{RBAC_GROUP}/v1",
            "RoleBinding",
            {
                "roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role", "name": ACCOUNT},
                "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
            },
        ),
    ]


def pull_secret(name: str, kind: str = "", data: Mapping[str, str] = MappingProxyType({})) -> Manifest:
    """A copy of a Secret that KAI's own reservation pods are pulled with."""
    return _object("v1", "Secret", {"type": kind, "data": dict(data)}, name=name)


def pod(settings: StackSettings, rung: Rung, node: str, image: str, groups: Sequence[int]) -> Manifest:
    """The pod of a rung: KAI's own program as KAI starts it, with what the rung adds.

    Without KAI's label and outside of KAI's namespace, so that no override and no guard of reservation pods takes it
    for one. It ends instead of starting anew, so that its log stays.

    Args:
        settings: of a Tegra stack that names the node.
        rung: how much it gets.
        node: where it runs.
        image: KAI's resource reservation.
        groups: of the device files.
    """
    resources = {"nvidia.com/gpu": "1"}
    container: Manifest = {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": settings.kai.images.pull_policy.value,
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.{of}"}}}
            for name, of in (("POD_NAME", "name"), ("POD_NAMESPACE", "namespace"))
        ],
        "resources": {"requests": resources, "limits": resources},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "runAsNonRoot": True,
            "runAsUser": 10000,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    spec: Manifest = {
        "nodeName": node,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "serviceAccountName": ACCOUNT,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
    }
    if secrets := settings.kai.images.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in secrets]
    if Feature.RUNTIME_CLASS in rung.features:
        spec["runtimeClassName"] = RUNTIME_CLASS
    if Feature.GROUPS in rung.features:
        spec["securityContext"] = {"supplementalGroups": [*groups]}
    if Feature.VARIABLES in rung.features:
        given = tegra_fragment(_overridden(settings), _privilege(rung), _folders(settings, node))
        container["env"] += given.env
        container["securityContext"] |= given.security_context
        if given.volumes:
            spec["volumes"] = given.volumes
            container["volumeMounts"] = given.volume_mounts
    if Feature.ROOT in rung.features:
        container["securityContext"] |= {"runAsNonRoot": False, "runAsUser": 0}
    return _object("v1", "Pod", {"spec": spec}, name=f"probe-{rung.name}")


def _object(version: str, kind: str, content: Manifest, *, name: str = ACCOUNT) -> Manifest:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": dict(_LABELS)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata} | content


def _privilege(rung: Rung) -> Privilege:
    """The setting whose additions a rung's pod has; what it has beside them are groups, or root."""
    if Feature.PRIVILEGED in rung.features:
        return Privilege.PRIVILEGED
    return Privilege.DEVICES if Feature.LIBRARIES in rung.features else Privilege.NONE


def _folders(settings: StackSettings, node: str) -> tuple[str, ...]:
    platform = _overridden(settings).overridden_platform
    return platform.library_folders(node) if platform else ()


def _overridden(settings: StackSettings) -> StackSettings:
    """The stack with overrides, which `reservation.overrides: never` leaves out."""
    return settings.model_copy(
        update={"reservation": settings.reservation.model_copy(update={"overrides": Overrides.AUTO})}
    )
