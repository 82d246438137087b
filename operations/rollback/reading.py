"""Reads what there is to undo: the state, and what the cluster has of the stack beside it. Changes nothing."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from cluster.access.answers.objects import HelmRevision
from cluster.access.answers.pods import Pod
from cluster.access.client import Cluster
from cluster.ownership.deployed_state import RELEASE, DeployedState
from cluster.ownership.helm_hooks import Hook, hooks_of, left_by_hooks
from cluster.ownership.kai_config import OF_LAST_HOOK, config_left_of, config_of
from cluster.ownership.leftovers import (
    HELM_OF_PROVIDER,
    Definition,
    Leftover,
    OwnLabels,
    definitions,
    half_done_revisions,
    objects_of,
    of_releases,
    own_labels,
    written_by,
)
from manifests import every_object, kai, reservation
from manifests.objects import Manifest
from manifests.ownership import key, owner, stack_of
from operations.destroying import pods_of_kai, reserves
from operations.engine import Checkpoint
from operations.privilege_probe import ladder
from operations.scratch import Scratch
from operations.status.words import count
from operations.target import Target
from operations.verify import commands as verify
from operations.verify import sharing

Releases = frozenset[tuple[str, str]]
"""Helm releases, each as namespace and name."""
_PROBED = re.compile(r"hosts-(.+)-probe")
"""What asked a host, and gives it back when it is deleted, by its logical name in the program (components/hosts)."""


@dataclass(frozen=True)
class HalfDone:
    """A revision on which Helm was killed.

    Attributes:
        revision: its Secret's metadata.
        settled: the newest revision of the release on which Helm had come to its end, if there is one.
        hooks: what hooks left that Helm ran for this revision. Some a next installation would find in its way.
    """

    revision: HelmRevision
    settled: HelmRevision | None
    hooks: tuple[Leftover, ...] = ()

    @property
    def release(self) -> tuple[str, str]:
        """Namespace and name."""
        return (self.revision.namespace, self.revision.release)


@dataclass(frozen=True)
class Leftovers:
    """What of the stack is in the cluster beside its state.

    Attributes:
        objects: that carry its marks.
        labels: of nodes.
        doubtful: objects that somebody else wrote too, or made; they are left.
        unseen: kinds that could not be looked at.
    """

    objects: tuple[Leftover, ...] = ()
    labels: tuple[OwnLabels, ...] = ()
    doubtful: tuple[Leftover, ...] = ()
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True)
class StackInCluster:
    """A stack, and the cluster that it belongs to.

    Attributes:
        target: the stack and its settings.
        cluster: the connection.
        remembered: its state.
        uid: the cluster's identity.
    """

    target: Target
    cluster: Cluster
    remembered: Checkpoint
    uid: str
    _earlier: "StackInCluster | None" = None

    @cached_property
    def state(self) -> DeployedState:
        """What the state says of the cluster's objects."""
        return self.remembered.state

    @property
    def name(self) -> str:
        """The stack, as project/name."""
        return self.target.qualified_name

    def after_destroy(self, remembered: Checkpoint) -> "StackInCluster":
        """The same with what is remembered now; what was its own is still."""
        return replace(self, remembered=remembered, _earlier=self)

    @cached_property
    def releases(self) -> Releases:
        """The stack's own releases: those of its state, those that a killed run had begun, and what its state lost.

        What a killed run had begun stays in the state until it is told to forget that, and somebody may have installed
        a release of that name since: only one that Pulumi's provider installed is ours. The last are those of its
        names, in a namespace with its marks, that the provider's Helm never came to an end with; and whole ones that it
        installed in a namespace that the stack made. Somebody else installed any other.
        """
        begun = self._begun
        earlier = self._earlier.releases if self._earlier else frozenset()
        still_ours = {place for place in begun if _by_provider(self.cluster.helm_revisions(*place))}
        return frozenset(self.state.releases | still_ours | earlier | set(self._forgotten(begun)))

    @cached_property
    def ended(self) -> Releases:
        """Those that a killed run had begun and Helm came to its end with: the state does not know them."""
        return frozenset(
            place
            for place in self._begun & self.releases - self.state.releases
            if any(not revision.half_done for revision in self.cluster.helm_revisions(*place))
        )

    @property
    def _begun(self) -> set[tuple[str, str]]:
        """What a killed run was making."""
        return {
            (str(operation.resource.inputs.get("namespace")), str(operation.resource.inputs.get("name")))
            for operation in self.remembered.pending
            if operation.resource.type == RELEASE
        }

    def _forgotten(self, begun: set[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        for release in every_object.releases(self.target.settings).values():
            place = (release.namespace, release.name)
            if place in self.state.releases or place in begun:
                continue
            for marked in written_by(self.cluster, [_namespace(release.namespace)], self.name):
                revisions = self.cluster.helm_revisions(*place)
                # In a namespace that was adopted, another program of Pulumi's may have installed it.
                is_made = marked.ours is None and not marked.doubt
                if _by_provider(revisions) and (is_made or all(revision.half_done for revision in revisions)):
                    yield place

    @cached_property
    def doubtful_releases(self) -> Releases:
        """Whole releases of the stack's names that Pulumi's provider installed, where nothing says whose they are.

        As after the state was lost, in a namespace that had been there before the stack.
        """
        if self._earlier:
            return self._earlier.doubtful_releases
        names = {(release.namespace, release.name) for release in every_object.releases(self.target.settings).values()}
        return frozenset(
            place
            for place in names - self.releases
            if (settled := [revision for revision in self.cluster.helm_revisions(*place) if not revision.half_done])
            and _by_provider(settled)
            and not self._is_another_stacks(place[0])
        )

    def _is_another_stacks(self, namespace: str) -> bool:
        live = self.cluster.find_object(_namespace(namespace))
        stacks = {stack_of(manager) for manager in live.managers} if live else set()
        return not stacks <= {None, stack_of(owner(self.name))}

    @cached_property
    def gone(self) -> Releases:
        """Releases of the stack's names of which Helm has no note any more; something of them may be left.

        Such as where the last hook never ran, or where the state was told to forget a namespace that others have now.
        """
        if self._earlier:
            return self._earlier.gone
        names = {(release.namespace, release.name) for release in every_object.releases(self.target.settings).values()}
        return frozenset(
            place
            for place in names - self.releases
            if not self.cluster.helm_revisions(*place) and not self._is_another_stacks(place[0])
        )

    def half_done(self) -> tuple[list[HalfDone], list[HelmRevision]]:
        """The half-done revisions of the stack's own releases, and everybody else's."""
        ours, others = [], []
        for revision in half_done_revisions(self.cluster):
            if (revision.namespace, revision.release) not in self.releases:
                others.append(revision)
                continue
            revisions = self.cluster.helm_revisions(revision.namespace, revision.release)
            settled = max((candidate for candidate in revisions if not candidate.half_done), key=_version, default=None)
            # What hooks of an earlier revision made may be in use.
            since = revision.created if settled else ""
            hooks = left_by_hooks(self.cluster, hooks_of(self.cluster, revision), since=since)
            ours.append(HalfDone(revision, settled, hooks))
        return ours, others

    def beside_state(self) -> Leftovers:
        """What the state does not know, and `pulumi destroy` therefore does not see."""
        unknown = self.releases - self.state.releases
        marked, unseen = of_releases(self.cluster, unknown, self.gone)
        written = written_by(self.cluster, self._manifests(), self.name)
        objects = {leftover.name: leftover for leftover in (*self._notes(unknown), *marked)}
        objects |= {leftover.name: leftover for leftover in written if leftover.name not in self.state.objects}
        if self._earlier:
            objects |= {leftover.name: leftover for leftover in self.kept_hooks()}
        kai_release = (self.target.settings.kai.namespace, kai.RELEASE)
        if kai_release in unknown | self.gone:
            find = config_of if kai_release in unknown else config_left_of
            config = find(self.cluster, self.target.settings.kai.namespace)
            objects |= {config.name: config} if config else {}
        if kai_release in self.gone:
            objects |= {leftover.name: leftover for leftover in left_by_hooks(self.cluster, OF_LAST_HOOK)}
        labels = [
            node_labels
            for node_labels in own_labels(self.cluster.nodes().values(), self.name)
            if f"Node/{node_labels.node}" not in self.state.objects
        ]
        certain = tuple(leftover for leftover in objects.values() if not leftover.doubt)
        doubtful = tuple(leftover for leftover in objects.values() if leftover.doubt)
        return Leftovers(certain, tuple(labels), doubtful, tuple(unseen))

    def _notes(self, releases: Releases) -> Iterator[Leftover]:
        """What Helm notes of releases itself: in a namespace that stays, it would take them for installed.

        Half-done revisions are healed.
        """
        for namespace, release in sorted(releases):
            for revision in self.cluster.helm_revisions(namespace, release):
                if not revision.half_done:
                    path = f"/api/v1/namespaces/{namespace}/secrets/{revision.secret}"
                    yield Leftover(f"Secret/{namespace}/{revision.secret}", path, revision.uid)

    def kept_hooks(self) -> tuple[Leftover, ...]:
        """What hooks of the stack's releases made and Helm keeps: it removes them with no release."""
        return left_by_hooks(self.cluster, self._hooks)

    @cached_property
    def _hooks(self) -> tuple[Hook, ...]:
        """Of every revision; known still once these are gone."""
        if self._earlier:
            return self._earlier._hooks  # noqa: SLF001 - of the same class
        revisions = [revision for place in sorted(self.releases) for revision in self.cluster.helm_revisions(*place)]
        return tuple(hook for revision in revisions for hook in hooks_of(self.cluster, revision))

    def users(self) -> list[Pod]:
        """Pods that KAI schedules, and those of others in the namespace of reservation pods; none without our KAI."""
        if not any(name == kai.RELEASE for _, name in self.releases):
            return []
        own = {scratch.name for scratch in self.temporary()}
        return [pod for pod in pods_of_kai(self.cluster) if pod.namespace not in own]

    def reservation_pods(self) -> int:
        """How many pods hold GPUs for others."""
        return sum(map(reserves, self.cluster.pods(namespace=reservation.NAMESPACE)))

    def temporary(self) -> list[Scratch]:
        """The namespaces that `verify` and the privilege probe made, and could not remove."""
        pulls = [ladder.pull_secret(name) for name in self.target.settings.kai.images.pull_secrets]
        scratches = [
            Scratch(self.cluster, verify.NAMESPACE, sharing.LABEL, "verification"),
            Scratch(self.cluster, ladder.NAMESPACE, ladder.LABEL, "probe", lambda: [*ladder.rights(), *pulls]),
        ]
        return [
            scratch
            for scratch in scratches
            if (namespace := self.cluster.namespace(scratch.name)) is not None and scratch.label in namespace.labels
        ]

    def definitions(self) -> list[tuple[Definition, int | None]]:
        """The charts' CustomResourceDefinitions, each with the number of its objects; None where that is not known."""
        return [(definition, objects_of(self.cluster, definition)) for definition in definitions(self.cluster)]

    def hosts(self) -> list[str]:
        """Hosts that get their files back when their resource is deleted."""
        commands = [
            resource.name
            for resource in self.remembered.resources
            if resource.type.startswith("command:") and not resource.retained
        ]
        return sorted(match[1] for match in map(_PROBED.fullmatch, commands) if match)

    def _manifests(self) -> Iterator[Manifest]:
        """Every object that the stack may have made: what its settings say, what it remembers, what it had begun."""
        checkpoint = self._earlier.remembered if self._earlier else self.remembered
        resources = (*checkpoint.resources, *(operation.resource for operation in checkpoint.pending))
        manifests = [*every_object.objects(self.target.settings).values(), *(resource.inputs for resource in resources)]
        whole = [manifest for manifest in manifests if {"apiVersion", "kind", "metadata"} <= manifest.keys()]
        # Nodes are not made; their labels are looked at apart.
        yield from {key(manifest): manifest for manifest in whole if manifest["kind"] != "Node"}.values()


def objects_in_words(listed: Iterable[tuple[Definition, int | None]]) -> str:
    """How many objects some definitions have; empty where none has any."""
    listed = list(listed)
    if hidden := [definition.name for definition, number in listed if number is None]:
        return f"an unknown number of objects, since the API server does not serve {', '.join(hidden)}"
    objects = sum(number or 0 for _, number in listed)
    return count(objects, "object") if objects else ""


def _namespace(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _version(revision: HelmRevision) -> int:
    return revision.version


def _by_provider(revisions: Sequence[HelmRevision]) -> bool:
    """Whether Pulumi's provider noted any of them, or Helm has none any more."""
    return not revisions or any(
        entry.manager == HELM_OF_PROVIDER for revision in revisions for entry in revision.owners
    )
