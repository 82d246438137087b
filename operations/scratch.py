"""A namespace for pods that try something out; it is gone afterwards, also after Ctrl-C or a killed run."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from cluster.access.client import Cluster
from cluster.errors import ClusterError, ClusterUnreachableError
from cluster.going import ways_out_of_namespace
from manifests.objects import Manifest
from operations.errors import OperationError
from toolchain.progress import say

POLL_SECONDS = 1.0
GONE_SECONDS = 90.0
"""How long a deleted pod or namespace may take to be gone."""
STUCK = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
"""Reasons of a waiting container that no wait makes good, or only one of hours."""


@dataclass(frozen=True)
class Scratch:
    """The namespace.

    Attributes:
        cluster: where it is.
        name: of the namespace.
        label: that it and everything in it carries: what has it is ours.
        owner: what uses it, as messages call it: `probe`.
        extras: what is made in it beside pods; removed one by one where somebody else's pods keep the namespace.
    """

    cluster: Cluster
    name: str
    label: str
    owner: str
    extras: Callable[[], Sequence[Manifest]] = tuple

    def stop_at_somebody_elses(self) -> None:
        """Refuse a namespace of this name that is not ours.

        Raises:
            OperationError: there is one.
        """
        namespace = self.cluster.namespace(self.name)
        if namespace is not None and self.label not in namespace.labels:
            raise OperationError(
                f"The namespace '{self.name}' exists and is not the {self.owner}'s: it lacks the label {self.label}. "
                f"Nothing was changed. Remove or rename it, and start the {self.owner} again."
            )

    @contextmanager
    def clean(self) -> Iterator[None]:
        """Without what an earlier run left; at the end everything is removed, also when a signal ends it."""
        with _signals_end_it():
            self.remove()
            try:
                yield
            finally:
                _ignore_signals()
                self._remove_at_last()

    def remove(self) -> None:
        """Remove what carries the label: of this run, or of one that was killed.

        Raises:
            OperationError: pods of somebody else's are in the namespace, or it does not go.
        """
        namespace = self.cluster.namespace(self.name)
        if namespace is None or self.label not in namespace.labels:
            return
        pods = self.cluster.pods(namespace=self.name)
        for pod in pods:
            if self.label in pod.labels:
                metadata = {"name": pod.name, "namespace": self.name}
                self.cluster.delete({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
        if others := [pod.name for pod in pods if self.label not in pod.labels]:
            for manifest in self.extras():
                ours = self.cluster.find_object(manifest)
                if ours is not None and self.label in ours.content["metadata"].get("labels", {}):
                    self.cluster.delete(manifest)
            raise OperationError(
                f"The namespace '{self.name}' stays, since pods are in it that are not the {self.owner}'s: "
                f"{', '.join(others)}. Remove them, then the namespace: kubectl delete namespace {self.name}"
            )
        self.cluster.delete({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}})
        self.until_gone(f"namespace '{self.name}'", lambda: self.cluster.namespace(self.name) is None)

    def until_gone(self, what: str, gone: Callable[[], bool]) -> None:
        """Wait for a deletion to be done.

        Raises:
            OperationError: it takes too long.
        """
        since = time.monotonic()
        while not gone():
            if time.monotonic() - since >= GONE_SECONDS:
                stays = f"The {self.owner}'s {what} was deleted and is still there after {GONE_SECONDS:.0f} s"
                namespace = self.cluster.namespace(self.name)
                if namespace is not None and namespace.held:
                    raise OperationError(f"{stays}: {namespace.held}.\n{ways_out_of_namespace(self.name)}")
                raise OperationError(
                    f"{stays}. The next {self.owner} removes it, or: kubectl delete namespace {self.name}"
                )
            time.sleep(POLL_SECONDS)

    @property
    def _may_be_left(self) -> str:
        return (
            f"The namespace '{self.name}' may be left. The next {self.owner} removes it, or: "
            f"kubectl delete namespace {self.name}"
        )

    def _remove_at_last(self) -> None:
        """Remove everything; an API server that is away for a moment only costs time."""
        since = time.monotonic()
        while True:
            try:
                self.remove()
            except ClusterUnreachableError as error:
                if time.monotonic() - since >= GONE_SECONDS:
                    raise OperationError(f"{error}\n{self._may_be_left}") from error
                time.sleep(POLL_SECONDS)
            except ClusterError as error:
                # A login that ended meanwhile, or a refusal. Its pods run on, and may hold the node's GPU.
                raise type(error)(f"{error}\n{self._may_be_left}") from error
            else:
                return


@contextmanager
def _signals_end_it() -> Iterator[None]:
    """SIGINT and SIGTERM end the block by SystemExit, the first of them alone, so that what follows it is not cut."""

    def end(number: int, _: FrameType | None) -> None:
        _ignore_signals()
        say("Interrupted: what was made is being removed.")
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
