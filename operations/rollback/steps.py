"""Does what a plan says, one step after the other, each with a check; what is done stays done."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cluster.access.answers.objects import HelmRevision
from cluster.going import ways_out_of_namespace
from cluster.ownership.giving_back import give_back_values
from cluster.ownership.leftovers import GROUPS, Leftover, OwnLabels, definitions
from manifests.ownership import BEFORE, FIELD_MANAGER
from operations import engine
from operations.errors import OperationError
from operations.rollback.reading import HalfDone, Leftovers, StackInCluster, objects_in_words
from operations.scratch import GONE_SECONDS, POLL_SECONDS


@dataclass
class Rollback:
    """A rollback at work.

    Attributes:
        stack: what is undone.
        say: is told what happens, a line each.
        step: what it is at, in words.
        done: what was done.
        left: what should have gone and has not, and why.
    """

    stack: StackInCluster
    say: Callable[[str], None]
    step: str = ""
    done: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def take_over(self) -> None:
        """Make sure that no other run is at work, by the state's lock, and let the state forget what one had begun.

        Raises:
            OperationError: another run is at work, or was since the plan was shown.
        """
        self._begin("ask the state's lock whether another run is at work")
        remembered = self.stack.remembered
        engine.settle_pending(self.stack.target, remembered)
        now = engine.checkpoint(self.stack.target)
        if {resource.urn for resource in now.resources} != {resource.urn for resource in remembered.resources}:
            raise OperationError("Another run changed the state since the plan was shown. Look at it again.")
        if remembered.pending:
            self._did("the state forgot what a killed run had begun")

    def heal(self, half_done: Sequence[HalfDone]) -> None:
        """Take back half-done Helm revisions, with what their hooks left.

        Raises:
            OperationError: a revision changed since it was shown, or something can't be deleted.
        """
        if not half_done:
            return
        self._begin("heal")
        for unfinished in half_done:
            revision = unfinished.revision
            self._remove_hooks(unfinished)
            place = f"/api/v1/namespaces/{revision.namespace}/secrets/{revision.secret}"
            still = revision.resource_version
            if objection := self.stack.cluster.remove(place, uid=revision.uid, resource_version=still):
                raise OperationError(_not_deleted(revision, objection.message))
            self._did(f"took back revision {revision.version} of Helm release '{revision.release}'")
        again, _ = self.stack.half_done()
        if again:
            names = ", ".join(unfinished.revision.release for unfinished in again)
            raise OperationError(f"Half done again: {names}. Somebody installs at this moment.")

    def _remove_hooks(self, half_done: HalfDone) -> None:
        """Before the Secret, which alone says what they are; if nobody wrote there since."""
        revision, cluster = half_done.revision, self.stack.cluster
        if not half_done.hooks:
            return
        if revision not in cluster.helm_revisions(*half_done.release):
            raise OperationError(_not_deleted(revision, "it is not as it was shown."))
        for hook in half_done.hooks:
            if objection := cluster.remove(hook.path, uid=hook.uid):
                raise OperationError(f"{hook.name}, which a hook left, was not deleted: {objection.message}")
            self._did(f"removed {hook.name}, which a hook left")

    def remove_temporary(self) -> None:
        """Remove the namespaces of `verify` and the privilege probe."""
        for scratch in self.stack.temporary():
            self._begin(f"remove the namespace {scratch.name}")
            try:
                scratch.remove()
            except OperationError as error:
                self.left.append(str(error))
            else:
                self._did(f"removed Namespace/{scratch.name}")

    def remove(self, leftovers: Leftovers) -> None:
        """Remove what the state does not know: custom resources first, namespaces last; give back what was adopted."""
        if not leftovers.objects and not leftovers.labels:
            return
        self._begin("remove what pulumi destroy can't see")
        cluster = self.stack.cluster
        for labels in leftovers.labels:
            self._release(labels)
        objects = sorted(leftovers.objects, key=_order)
        for leftover in objects:
            if leftover.ours is not None:
                give_back_values(cluster, leftover.ours)
                self._did(f"gave back {leftover.name}")
            elif objection := cluster.remove(leftover.path, uid=leftover.uid):
                self.left.append(f"{leftover.name}: {objection.message}")
            else:
                self._did(f"removed {leftover.name}")
        removed = {leftover.uid for leftover in objects if leftover.ours is None}
        self._until_gone(
            lambda: [leftover.name for leftover in self.stack.beside_state().objects if leftover.uid in removed]
        )

    def destroy(self) -> None:
        """`pulumi destroy`, and a check that the state is empty.

        Raises:
            OperationError: pulumi fails, or leaves something in the state.
        """
        if not self.stack.remembered.resources:
            return
        self._begin("pulumi destroy")
        engine.destroy(self.stack.target, "--yes", "--skip-preview")
        remembered = engine.checkpoint(self.stack.target)
        if remembered.resources:
            names = ", ".join(resource.name for resource in remembered.resources)
            raise OperationError(f"pulumi destroy left in the state: {names}")
        self._did(f"pulumi destroy: {len(self.stack.remembered.resources)} resources")
        self.stack = self.stack.after_destroy(remembered)

    def remove_definitions(self) -> None:
        """Remove the definitions of each group that has no object left, and that Pulumi's releases made."""
        removed: set[str] = set()
        everything = self.stack.definitions()
        for group in GROUPS:
            listed = [pair for pair in everything if pair[0].group == group]
            ours = [definition for definition, _ in listed if definition.by_pulumi]
            if not ours:
                continue
            self._begin(f"remove the definitions of {group}")
            if held := objects_in_words(listed):
                self.left.append(f"the definitions of {group}, which have {held}")
                continue
            for definition in ours:
                if objection := self.stack.cluster.remove(definition.path, uid=definition.uid):
                    self.left.append(f"CustomResourceDefinition/{definition.name}: {objection.message}")
                else:
                    removed.add(definition.uid)
                    self._did(f"removed CustomResourceDefinition/{definition.name}")
        self._until_gone(
            lambda: [
                f"CustomResourceDefinition/{definition.name}"
                for definition in definitions(self.stack.cluster)
                if definition.uid in removed
            ]
        )

    def _release(self, labels: OwnLabels) -> None:
        """Let go of a node's labels; what somebody else owns too stays."""
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": labels.node}}
        if labels.before is None:
            self.stack.cluster.apply(node, manager=labels.manager)
        else:
            annotations = {BEFORE: labels.before, FIELD_MANAGER: labels.manager}
            ours = {"name": labels.node, "labels": dict(labels.labels), "annotations": annotations}
            give_back_values(self.stack.cluster, node | {"metadata": ours})
        self._did(f"let go of the labels of Node/{labels.node}: {', '.join(sorted(labels.labels))}")

    def _until_gone(self, remaining: Callable[[], list[str]]) -> None:
        """Wait for deletions, and note down what is still there when the time is over."""
        since = time.monotonic()
        while names := remaining():
            if time.monotonic() - since >= GONE_SECONDS:
                self.left += [
                    f"{name} is being deleted and is still there after {GONE_SECONDS:.0f} s{self._held(name)}"
                    for name in names
                ]
                return
            time.sleep(POLL_SECONDS)

    def _held(self, name: str) -> str:
        """Why a namespace does not go, and what to do, as the end of a sentence."""
        kind, _, place = name.partition("/")
        live = self.stack.cluster.namespace(place) if kind == "Namespace" else None
        return f": {live.held}. {ways_out_of_namespace(place)}" if live is not None and live.held else ""

    def _begin(self, step: str) -> None:
        self.step = step
        self.say(f"{step} ...")

    def _did(self, what: str) -> None:
        self.done.append(what)
        self.say(f"   {what}")


def _not_deleted(revision: HelmRevision, why: str) -> str:
    return (
        f"The Secret {revision.secret} in namespace '{revision.namespace}' was not deleted: {why}\n"
        "If it changed just now, somebody works on the release."
    )


def _order(leftover: Leftover) -> tuple[int, str]:
    """Custom resources while their operators are there, namespaces once they are empty.

    What Helm notes comes first: of a release without it, a rollback that was killed finds all the rest again.
    """
    if leftover.path.rpartition("/")[2].startswith("sh.helm.release."):
        return (-1, leftover.name)
    if leftover.path.startswith(tuple(f"/apis/{group}/" for group in GROUPS)):
        return (0, leftover.name)
    return (2 if leftover.name.startswith("Namespace/") else 1, leftover.name)
