"""The cluster's side of the probe: one pod after the other, and nothing left behind."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cluster.access.answers.nodes import Node
from cluster.access.answers.pods import Pod
from cluster.access.answers.server import Objection
from cluster.access.client import Cluster
from cluster.errors import ClusterUnreachableError
from config.stack import StackSettings
from manifests import kai, reservation
from manifests.objects import Manifest
from operations.errors import OperationError
from operations.privilege_probe import access, ladder
from operations.privilege_probe.ladder import (
    ANSWER,
    LABEL,
    NAMESPACE,
    VIDEO,
    Attempt,
    Rung,
    Seen,
    Symptom,
    probe_namespace,
    rights,
)
from operations.privilege_probe.report import Result
from operations.scratch import STUCK, Scratch

POLL_SECONDS = 1.0
_MANAGER = "kai-anywhere-privilege-probe"
_LINES = 12
_RESOURCE = "nvidia.com/gpu"
_CONFLICT = 409
_REFUSALS = frozenset({400, 403, 422})
_GOES = "because it is being terminated"
"""In the API server's words where somebody removed the namespace, which is no refusal of the pod."""
SETTLED_SECONDS = 5.0
"""How long a refusal must stand: admission learns of a namespace's new level and exceptions in its own time."""
_NO_NEWS = frozenset({"ContainerCreating", "PodInitializing"})
_KEY_LABELS = ("toolkit", "driver", "device-plugin")
"""Parts of the node's labels of nvidia.com that tell a version or a configuration."""


@dataclass(frozen=True)
class Probe:
    """A probe of one node.

    Attributes:
        cluster: where it is.
        settings: of the stack that names it.
        node: its name.
        image: KAI's resource reservation.
        groups: of the device files, for the rungs that have them.
        report: is told what happens, a line each.
        host: what the node's host says of what its answer depends on, by name; empty where it was not asked.
    """

    cluster: Cluster
    settings: StackSettings
    node: str
    image: str
    groups: tuple[int, ...]
    report: Callable[[str], None]
    host: Mapping[str, str] = field(default_factory=dict)

    def run(self) -> Result:
        """Climb until a rung holds or none is left; remove everything, also when a signal ends it.

        Raises:
            OperationError: the node can't be probed, or the namespace is somebody else's; nothing was changed then.
            ClusterError: the cluster does not answer or refuses what the probe needs.
        """
        node = self._node()
        self._check_rights()
        self._scratch.stop_at_somebody_elses()
        with self._scratch.clean():
            self._check_free(node)
            attempts = self._climb()
            return Result(self.node, self.settings, self.groups, attempts, self._valid_for(node))

    @property
    def _scratch(self) -> Scratch:
        return Scratch(
            self.cluster,
            NAMESPACE,
            LABEL,
            "probe",
            lambda: [*rights(), *map(ladder.pull_secret, self.settings.kai.images.pull_secrets)],
        )

    def _node(self) -> Node:
        node = self.cluster.nodes().get(self.node)
        if node is None:
            raise OperationError(f"The cluster has no node '{self.node}'. Look at: {self.cluster.kubectl} get nodes")
        if node.conditions.get("Ready") != "True":
            raise OperationError(f"The node '{self.node}' is not Ready, so no pod starts there. Probe it once it is.")
        if not node.gpus:
            raise OperationError(
                f"The node '{self.node}' advertises no {_RESOURCE}: the device plugin does not run there, or finds no "
                "GPU. Install the stack first."
            )
        return node

    def _check_rights(self) -> None:
        """Who may not remove what he makes, or not read what a pod says, makes nothing."""
        if lacking := access.lacking(self.cluster, self.settings):
            raise OperationError(
                f"Context '{self.cluster.context}' may not {', '.join(lacking)}, which the probe needs. Nothing was "
                "changed. Use a context with cluster-admin rights."
            )

    def _check_free(self, node: Node) -> None:
        """A reservation pod of KAI's, or any other with the GPU, is left alone: the probe does not run beside it."""
        holders = [pod for pod in self.cluster.pods(node=self.node) if pod.gpus and not pod.ended]
        if sum(pod.gpus for pod in holders) >= node.gpus:
            names = ", ".join(f"{pod.namespace}/{pod.name}" for pod in holders)
            raise OperationError(
                f"The node '{self.node}' has no free GPU; it is held by {names}. End the pods that use it, and probe "
                "again."
            )

    def _climb(self) -> list[Attempt]:
        attempts: list[Attempt] = []
        while rung := ladder.next_rung(attempts):
            self._prepare(rung, first=not attempts)
            self.report(f"{rung.name}: a pod with {rung.adds}")
            attempt = self._attempt(rung)
            self.report(f"{rung.name}: {attempt.symptom.value}")
            attempts.append(attempt)
        return attempts

    def _prepare(self, rung: Rung, *, first: bool) -> None:
        if not first:
            self.cluster.apply(probe_namespace(rung), manager=_MANAGER)
            return
        for manifest in (probe_namespace(rung), *self._pull_secrets(), *rights()):
            self._create(manifest)

    def _pull_secrets(self) -> Iterator[Manifest]:
        """What the node pulls KAI's image with. One that is missing may not matter, and the kubelet tells of it."""
        for name in self.settings.kai.images.pull_secrets:
            if secret := self.cluster.pull_secret(reservation.NAMESPACE, name):
                yield ladder.pull_secret(name, secret.type, secret.data)

    def _create(self, manifest: Manifest) -> None:
        objection = self.cluster.create(manifest)
        if objection is not None:
            raise _not_taken(manifest, objection)

    def _attempt(self, rung: Rung) -> Attempt:
        manifest = ladder.pod(self.settings, rung, self.node, self.image, self.groups)
        since = time.monotonic()
        while objection := self.cluster.create(manifest):
            if objection.code not in _REFUSALS or _GOES in objection.message:
                raise _not_taken(manifest, objection)
            if time.monotonic() - since >= SETTLED_SECONDS:
                return Attempt(rung, Symptom.REFUSED, (objection.message,))
            time.sleep(POLL_SECONDS)
        name = manifest["metadata"]["name"]
        symptom, seen = self._watch(name)
        self.cluster.delete(manifest)
        self._scratch.until_gone(f"pod '{name}'", lambda: self.cluster.pod(NAMESPACE, name) is None)
        return Attempt(rung, symptom, seen.evidence)

    def _watch(self, name: str) -> tuple[Symptom, Seen]:
        since, started = time.monotonic(), False
        while True:
            try:
                pod = self.cluster.pod(NAMESPACE, name)
                if pod is None:
                    raise OperationError(
                        f"Somebody removed the probe's pod '{name}' while it ran. Probe again, one node at a time."
                    )
                if not started and _started(pod):
                    since, started = time.monotonic(), True
                seen = self._look(pod, started=started, seconds=time.monotonic() - since)
                if symptom := ladder.read(seen):
                    return symptom, seen
            except ClusterUnreachableError:
                # Away for a moment: that only costs time.
                if time.monotonic() - since >= ladder.START_SECONDS:
                    raise
            time.sleep(POLL_SECONDS)

    def _look(self, pod: Pod, *, started: bool, seconds: float) -> Seen:
        states = [(kind, state) for status in pod.statuses for kind, state in status.state.items()]
        reasons = [(pod.reason, pod.message), *((state.reason, state.message) for _, state in states)]
        lines = [": ".join(filter(None, pair)) for pair in reasons if any(pair) and pair[0] not in _NO_NEWS]
        if not started:
            lines += self.cluster.warnings(NAMESPACE, pod.name)
        return Seen(
            answer=pod.annotations.get(ANSWER, ""),
            ended=pod.ended or any(kind == "waiting" and state.reason in STUCK for kind, state in states),
            started=started,
            log=self.cluster.log(NAMESPACE, pod.name, lines=_LINES) if started else "",
            messages=tuple(dict.fromkeys(lines)),
            seconds=seconds,
        )

    def _valid_for(self, node: Node) -> dict[str, str]:
        images = {
            container.image
            for pod in self.cluster.pods(node=self.node)
            for container in pod.containers
            if "device-plugin" in container.image
        }
        return {
            "kernel": node.kernel,
            "os_image": node.os_image,
            "kubelet": node.kubelet,
            "container_runtime": node.container_runtime,
            "device_plugin_image": ", ".join(sorted(images)) or "not found on the node",
            "kai_image": self.image,
            **self.host,
        } | {
            label: value
            for label, value in sorted(node.labels.items())
            if label.startswith("nvidia.com/") and any(part in label for part in _KEY_LABELS)
        }


def check_stack(settings: StackSettings, node: str) -> None:
    """Refuse what no cluster has to be asked for.

    Raises:
        OperationError: the stack is of x86, or does not name the node.
    """
    jetsons = settings.platform.jetsons
    if not jetsons:
        raise OperationError(
            "This is an x86 stack: its reservation pods get nothing beyond what KAI gives them, so there is nothing to "
            "probe. Choose a Jetson stack with STACK=name."
        )
    if node not in jetsons:
        raise OperationError(
            f"The node '{node}' is not listed under platform.tegra_nodes. There are: {', '.join(sorted(jetsons))}. "
            "Correct the name, or list the node."
        )


def kai_image(settings: StackSettings) -> str:
    """The image of KAI's reservation pods in this stack.

    Raises:
        OperationError: the settings do not tell its tag.
    """
    image = kai.image(settings, "resourcereservation")
    if image is None:
        raise OperationError(
            "The settings do not tell the tag of KAI's images: kai.chart is a local chart, or its version is no single "
            "release. Name the image: --image REGISTRY/resourcereservation:TAG"
        )
    return image


def device_groups(settings: StackSettings, named: Sequence[int]) -> tuple[int, ...]:
    """The groups that were named, else those of the settings, else `video`."""
    return tuple(named or settings.reservation.supplemental_groups or [VIDEO])


def _not_taken(manifest: Manifest, objection: Objection) -> OperationError:
    what = f"{manifest['kind']} '{manifest['metadata']['name']}'"
    other = objection.code == _CONFLICT or _GOES in objection.message
    also = " Somebody else probes, or took the name." if other else ""
    return OperationError(f"The cluster does not take the probe's {what}: {objection.message}.{also}")


def _started(pod: Pod) -> bool:
    return any(kind in {"running", "terminated"} for status in pod.statuses for kind in status.state)
