"""What `pulumi destroy` leaves undone: way for the hooks of charts, a word while it waits, and what a hook is for."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cluster.access.answers.objects import API_SERVICES, ApiService
from cluster.access.answers.pods import Pod
from cluster.access.client import Cluster
from cluster.errors import ClusterError
from cluster.going import Held, held_up
from cluster.ownership.deployed_state import DeployedState
from cluster.ownership.helm_hooks import hooks_of, left_by_hooks
from cluster.ownership.kai_config import OF_LAST_HOOK, config_of, schedulers
from cluster.ownership.leftovers import Leftover
from manifests import kai, reservation
from manifests.wording import first_of
from operations.status.words import count
from toolchain.progress import duration

LOOK_SECONDS = 10.0
"""Between two looks at what a destroy waits for. Most are done before the first one."""
AGAIN_SECONDS = 60.0
"""After which the same is told again."""
WITHOUT_KAI = (
    "They would run on without a scheduler, and without what holds their GPUs for them. KAI deletes them when it is "
    "installed again."
)


@dataclass(frozen=True)
class Destroying:
    """The end of a stack in its cluster.

    Attributes:
        cluster: the connection.
        state: what the stack remembers.
        say: is told what happens, a line each.
    """

    cluster: Cluster
    state: DeployedState
    say: Callable[[str], None]

    def in_the_way(self) -> tuple[Leftover, ...]:
        """What hooks of an uninstallation left that was killed, and that Helm would fail at when it makes it again.

        Raises:
            ClusterError: if the cluster can't be asked.
        """
        revisions = [
            revision for place in sorted(self.state.releases) for revision in self.cluster.helm_revisions(*place)
        ]
        hooks = [hook for revision in revisions for hook in hooks_of(self.cluster, revision) if hook.is_in_the_way]
        return left_by_hooks(self.cluster, hooks)

    def make_way(self, leftovers: Iterable[Leftover]) -> None:
        """Remove that, while no other run is at work.

        Raises:
            ClusterError: if the cluster can't be asked, or refuses.
        """
        self._remove(leftovers, "a hook of a killed run left in Helm's way")

    def _remove(self, leftovers: Iterable[Leftover], whose: str) -> None:
        for leftover in leftovers:
            if objection := self.cluster.remove(leftover.path, uid=leftover.uid):
                raise ClusterError(f"{leftover.name}, which {whose}, was not deleted: {objection.message}")
            self.say(f"removed {leftover.name}, which {whose}")

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Say what holds the block up, now and then, from its first look on."""
        over = threading.Event()
        teller = threading.Thread(target=self._tell, args=(over,), daemon=True)
        teller.start()
        try:
            yield
        finally:
            over.set()
            teller.join()

    def _tell(self, over: threading.Event) -> None:
        namespaces = [name.removeprefix("Namespace/") for name in self.state.objects if name.startswith("Namespace/")]
        since: dict[str, float] = {}
        said: dict[str, tuple[str, float]] = {}
        waited = 0.0
        while not over.wait(LOOK_SECONDS):
            waited += LOOK_SECONDS
            try:
                held = list(held_up(self.cluster, self.state.releases, namespaces))
            except ClusterError:
                # Pulumi asks the same cluster, and says so.
                continue
            for obstacle in held:
                seconds = waited - since.setdefault(obstacle.what, waited - LOOK_SECONDS)
                if seconds < obstacle.usual_seconds:
                    continue
                why, at = said.get(obstacle.what, ("", -AGAIN_SECONDS))
                if (obstacle.why and not why) or waited - at >= AGAIN_SECONDS:
                    self.say(_waits(obstacle, seconds))
                    if obstacle.what not in said:
                        self.say(obstacle.ways_out)
                    said[obstacle.what] = (obstacle.why, waited)

    def config(self) -> Leftover | None:
        """KAI's Config, where the stack has a KAI: a hook made it, and another one is to delete it.

        Raises:
            ClusterError: if the cluster can't be asked.
        """
        places = [namespace for namespace, release in self.state.releases if release == kai.RELEASE]
        return config_of(self.cluster, places[0]) if places else None

    def take(self, config: Leftover) -> None:
        """Remove KAI's Config if it is still there, and with it KAI's webhook configurations: nobody answers for them.

        The last hook did not do its work then, and what Helm made for it may be there too. That goes first: another run
        knows of it by the Config.

        Raises:
            ClusterError: if the cluster can't be asked, or refuses.
        """
        if self.config() != config:
            return
        self._remove(left_by_hooks(self.cluster, OF_LAST_HOOK), "the last hook of KAI's chart left")
        if objection := self.cluster.remove(config.path, uid=config.uid):
            raise ClusterError(f"{config.name} of this stack's KAI was not deleted: {objection.message}")
        self.say(f"removed {config.name}, which the last hook of KAI's chart had left, and KAI's webhooks with it")

    def without_server(self) -> list[ApiService]:
        """APIs whose server does not answer: no namespace goes while one is so; none where the stack has no namespace.

        Raises:
            ClusterError: if the cluster can't be asked, or refuses.
        """
        if not any(name.startswith("Namespace/") for name in self.state.objects):
            return []
        return [service for service in self.cluster.objects(API_SERVICES, ApiService) if service.unavailable]

    def users(self) -> list[Pod]:
        """Pods that use the stack's KAI; none without one.

        Raises:
            ClusterError: if the cluster can't be asked, or refuses.
        """
        return pods_of_kai(self.cluster) if any(release == kai.RELEASE for _, release in self.state.releases) else []


def pods_of_kai(cluster: Cluster) -> list[Pod]:
    """Pods that KAI schedules, and those of others in the namespace of reservation pods.

    Raises:
        ClusterError: if the API server can't be asked, or refuses.
    """
    names = schedulers(cluster)
    return [
        pod
        for pod in cluster.pods()
        if not pod.ended and (pod.scheduler in names or (pod.namespace == reservation.NAMESPACE and not reserves(pod)))
    ]


def reserves(pod: Pod) -> bool:
    """Whether a pod holds a GPU for others."""
    return pod.labels.get("app") == reservation.APP_LABEL


def used_by(pods: Iterable[Pod]) -> str:
    """That KAI is used, and by whom."""
    names = [f"{pod.namespace}/{pod.name}" for pod in pods]
    return f"KAI is used by {count(len(names), 'pod')}: {first_of(names)}."


def _waits(held: Held, seconds: float) -> str:
    why = f": {held.why}" if held.why else ""
    return f"waiting for {held.what}{why} ({duration(seconds)})"
