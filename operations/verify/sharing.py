"""A workload that shares the GPUs of one node: as many pods run as the plan says, and one more does not."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cluster.access.answers.nodes import Node
from cluster.access.answers.pods import Pod
from cluster.errors import ClusterUnreachableError
from cluster.pending import said_of
from cluster.snapshot import Snapshot, read_snapshot
from config.stack import StackSettings
from gpu_sharing.model import Pod as PlannedPod
from gpu_sharing.model import Reason, Why, Workload
from gpu_sharing.placement import place
from gpu_sharing.queues import QUEUE_LABEL
from gpu_sharing.request import GPU_MEMORY, SCHEDULER, MemoryShare, PodRequest
from manifests.node_labels import GPU_MEMORY as MEMORY_LABEL
from manifests.objects import Manifest
from operations import scratch
from operations.plan.live import scene_of_cluster
from operations.plan.machines import Scene
from operations.plan.workloads import PRIORITY_LABEL, TRAIN
from operations.scratch import STUCK, Scratch
from operations.verify.reserved_gpus import Reserved, reserved_gpus
from operations.verify.steps import Outcome, Step

NAME = "sharing"
LABEL = "kai-anywhere.io/verify"
IMAGE = "registry.k8s.io/pause:3.10"
"""What the pods run: nothing. They allocate no GPU memory, so no board is asked for more than it has."""
LEAST_FREE_MIB = 400
_HOSTNAME = "kubernetes.io/hostname"
_SHARES = 4
"""Of a GPU's free memory; with one pod more than fits, KAI has to say no once."""
_MOST_GPUS = 4
_OF_QUEUES = frozenset({Reason.QUEUE_LIMIT, Reason.QUEUE_QUOTA})
WITHIN_SECONDS = 180.0
"""How long KAI and the kubelet may take, images included."""


@dataclass(frozen=True)
class Trial:
    """Equal pods with a share of a GPU each, on one node.

    Attributes:
        node: its name.
        hostname: its label, by which pods choose it.
        request_mib: what each asks for.
        count: how many.
        running: how many of them run by KAI's arithmetic, beside what is there.
        queue_says: why their queue has no room for more, though the GPUs have; empty where the GPUs decide.
    """

    node: str
    hostname: str
    request_mib: int
    count: int
    running: int
    queue_says: str = ""


def planned(snapshot: Snapshot, settings: StackSettings, node: str, queue: str) -> Trial | str:
    """What to try on a node beside what runs there, or why nothing can be tried.

    Raises:
        OperationError: the nodes or pods could not be read.
    """
    if why := next((_left_out(live) for live in snapshot.nodes if live.name == node), ""):
        return why
    scene = scene_of_cluster(snapshot, settings, None)
    packing = place([machine.node for machine in scene.machines], _running(scene), (), scene.strategy)
    use = next((use for use in packing.nodes if use.node.name == node), None)
    if use is None:
        return "KAI places no pod there: it is in another node pool, time-sliced, or has no memory label."
    if use.node.shared_mib is None:
        return f"KAI places no pod with {GPU_MEMORY} there: the node has no label {MEMORY_LABEL}."
    free = max((gpu.free_mib for gpu in use.gpus if gpu.whole is None), default=0)
    if free < LEAST_FREE_MIB:
        return f"{free} MiB of its GPU memory are free; {LEAST_FREE_MIB} are needed."
    request = free // _SHARES
    most = _SHARES * min(len(use.gpus), _MOST_GPUS) + 1
    running, refused = _fitting(scene, node, request, most, queue)
    if not running:
        return f"by KAI's arithmetic no pod would run. {refused[0].text}"
    queue_says = next((why.text for why in refused if why.reason in _OF_QUEUES), "")
    hostname = next(machine.labels.get(_HOSTNAME, node) for machine in scene.machines if machine.node.name == node)
    return Trial(node, hostname, request, min(most, running + 1), min(most, running), queue_says)


def _left_out(node: Node) -> str:
    """Why nothing is tried on a node, though the pods tolerate every taint; empty for no reason."""
    if node.unschedulable:
        return f"left out: the node is cordoned. Once it is back: kubectl uncordon {node.name}."
    if node.conditions.get("Ready", "True") != "True":
        return "left out: the node is not Ready, so no pod starts there."
    return ""


def _running(scene: Scene) -> list[Workload]:
    """What runs already; what waits for another reason does not take the room."""
    return [workload for workload in scene.workloads if any(pod.node for pod in workload.pods)]


def _fitting(scene: Scene, node: str, request_mib: int, most: int, queue: str) -> tuple[int, list[Why]]:
    """How many of the pods run, and why no more of them."""
    pods = [
        PlannedPod(f"verify-{number}", PodRequest(MemoryShare(request_mib)), frozenset({node}))
        for number in range(most)
    ]
    queue_exists = any(candidate.name == queue for candidate in scene.queues)
    own = [Workload((pod,), queue if queue_exists else None) for pod in pods]
    packing = place(
        [machine.node for machine in scene.machines],
        [*_running(scene), *own],
        scene.queues if queue_exists else (),
        scene.strategy,
    )
    names = {pod.name for pod in pods}
    refused = [pending.why for pending in packing.pending if pending.pod.name in names]
    return sum(placed.pod.name in names for placed in packing.placed), refused


def manifest(trial: Trial, number: int, namespace: str, image: str, queue: str) -> Manifest:
    """One of the pods. It may run in a namespace of the Pod Security level `restricted`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"sharing-{number}",
            "namespace": namespace,
            # What may be interrupted may use more than its queue's quota.
            "labels": {LABEL: "true", QUEUE_LABEL: queue, PRIORITY_LABEL: TRAIN},
            "annotations": {GPU_MEMORY: str(trial.request_mib)},
        },
        "spec": {
            "schedulerName": SCHEDULER,
            "nodeSelector": {_HOSTNAME: trial.hostname},
            "tolerations": [{"operator": "Exists"}],
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
        },
    }


@dataclass(frozen=True)
class Sharing:
    """Tries it on one node.

    Attributes:
        scratch: the namespace, made and empty.
        settings: of the stack.
        image: what the pods run.
        queue: theirs.
        report: is told what happens, a line each.
        logs: whether pods have logs; a simulator's are records.
    """

    scratch: Scratch
    settings: StackSettings
    image: str
    queue: str
    report: Callable[[str], None]
    logs: bool = True

    def verify(self, node: str) -> Step:
        """Create the pods, wait for KAI's decisions, compare with the plan, and remove the pods.

        Raises:
            OperationError: the nodes or pods can't be read, or the pods do not go.
            ClusterError: the API server can't be asked.
        """
        trial = planned(read_snapshot(self.scratch.cluster, whole=True), self.settings, node, self.queue)
        if isinstance(trial, str):
            return Step(name=NAME, place=node, outcome=Outcome.SKIPPED, says=trial)
        self.report(
            f"{node}: {trial.count} pods of {trial.request_mib} MiB; by the plan {trial.running} run, "
            f"{trial.count - trial.running} stay Pending"
        )
        pods = [manifest(trial, number, self.scratch.name, self.image, self.queue) for number in range(trial.count)]
        for pod in pods:
            if refused := self.scratch.cluster.create(pod):
                says = "the cluster refuses pods with a share of a GPU."
                self._remove(pods)
                return Step(name=NAME, place=node, outcome=Outcome.FAILED, says=says, evidence=(refused.message,))
        trial_pods = self._decided(trial)
        running = [pod for pod in trial_pods if _runs(pod)]
        reserved = reserved_gpus(self.scratch.cluster, running, logs=self.logs)
        self._remove(pods)
        return judged(trial, trial_pods, reserved)

    def _decided(self, trial: Trial) -> Sequence[Pod]:
        deadline = time.monotonic() + WITHIN_SECONDS
        while True:
            try:
                pods = self.scratch.cluster.pods(namespace=self.scratch.name)
                decided = all(_runs(pod) or why_not(pod) for pod in pods) and len(pods) == trial.count
                if decided and sum(map(_runs, pods)) == trial.running:
                    return pods
            except ClusterUnreachableError:
                # Away for a moment: that only costs time.
                if time.monotonic() > deadline:
                    raise
            else:
                if time.monotonic() > deadline:
                    return pods
            time.sleep(scratch.POLL_SECONDS)

    def _remove(self, pods: Sequence[Manifest]) -> None:
        for pod in pods:
            self.scratch.cluster.delete(pod)
        self.scratch.until_gone("pods", lambda: not self.scratch.cluster.pods(namespace=self.scratch.name))


def judged(trial: Trial, pods: Sequence[Pod], reserved: Reserved) -> Step:
    """What came of it: as many run as planned, on GPUs that are named, and each other one has KAI's reason."""
    running = [pod for pod in pods if _runs(pod)]
    counts = f"{len(running)} of {trial.count} pods of {trial.request_mib} MiB run"
    evidence = (*map(_line, sorted(pods, key=lambda pod: (not _runs(pod), pod.name))), *reserved.evidence)
    if len(running) != trial.running:
        says = f"{counts}; by the plan {trial.running} should. Ask why: kai-anywhere doctor."
        return Step(name=NAME, place=trial.node, outcome=Outcome.FAILED, says=says, evidence=evidence)
    if elsewhere := [pod.name for pod in running if pod.node != trial.node]:
        says = f"pods run on another node than the one they name: {', '.join(elsewhere)}."
        return Step(name=NAME, place=trial.node, outcome=Outcome.FAILED, says=says, evidence=evidence)
    if reserved.missing:
        says = f"{counts}, and not on GPUs that are named: {'; '.join(reserved.missing)}. Ask why: kai-anywhere doctor."
        return Step(name=NAME, place=trial.node, outcome=Outcome.FAILED, says=says, evidence=evidence)
    says = f"{counts}, as planned. {trial.queue_says}".rstrip()
    return Step(name=NAME, place=trial.node, outcome=Outcome.HELD, says=says, evidence=evidence)


def _line(pod: Pod) -> str:
    if _runs(pod):
        return f"{pod.name}: Running on {pod.node}"
    return f"{pod.name}: Pending: {why_not(pod) or 'no reason is given'}"


def why_not(pod: Pod) -> str:
    """Why a pod is not scheduled, in the scheduler's words, or why it does not start; empty while nothing is said."""
    final = (
        statement.words
        for statement in said_of(pod)
        if statement.by != "kubelet" or statement.words.partition(":")[0] in STUCK
    )
    return next(final, "")


def _runs(pod: Pod) -> bool:
    return pod.phase == "Running"
