"""Makes a plan of what was read."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from cluster.access.answers.objects import HelmRevision
from cluster.access.kubeconfig import for_its_cluster
from cluster.ownership.deployed_state import RELEASE
from cluster.ownership.leftovers import GROUPS
from operations.destroying import WITHOUT_KAI, used_by
from operations.engine import Checkpoint, Resource
from operations.rollback.plan import Blocker, Healing, Plan, shown
from operations.rollback.reading import HalfDone, Leftovers, StackInCluster, objects_in_words
from operations.status.words import count


@dataclass(frozen=True)
class Choice:
    """What was asked for.

    Attributes:
        only_heal: nothing is removed.
        leave_pods: go on though pods use KAI.
        definitions: remove the charts' CustomResourceDefinitions too.
        cluster: the cluster's UID, where the person named it.
    """

    only_heal: bool = False
    leave_pods: bool = False
    definitions: bool = False
    cluster: str | None = None


@dataclass(frozen=True)
class Planned:
    """A plan, and what its steps need.

    Attributes:
        plan: what is shown.
        half_done: the stack's Helm revisions to take back.
        leftovers: what the state does not know.
    """

    plan: Plan
    half_done: tuple[HalfDone, ...]
    leftovers: Leftovers


def make_plan(stack: StackInCluster, choice: Choice) -> Planned:
    """Read the cluster, and say what would be done. Changes nothing.

    Raises:
        ClusterError: if the cluster can't be asked, or refuses.
    """
    half_done, others = stack.half_done()
    leftovers = Leftovers() if choice.only_heal else stack.beside_state()
    plan = Plan(
        stack=stack.target.stack,
        server=stack.cluster.server,
        context=stack.cluster.context,
        cluster_uid=stack.uid,
        only_heal=choice.only_heal,
        heals=[_healing(unfinished) for unfinished in half_done],
        pending=[f"{operation.resource.name} ({operation.type})" for operation in stack.remembered.pending],
        stays=list(_others(others)),
    )
    if choice.only_heal:
        plan = plan.model_copy(update={"blockers": list(_ended(stack))})
    else:
        plan = _with_removal(plan, stack, choice, leftovers)
    blockers = [*plan.blockers, *_binding(plan, stack, choice)]
    return Planned(plan.model_copy(update={"blockers": blockers}), tuple(half_done), leftovers)


def _with_removal(plan: Plan, stack: StackInCluster, choice: Choice, leftovers: Leftovers) -> Plan:
    beside = [
        *(f"Namespace/{scratch.name} of the {scratch.owner}" for scratch in stack.temporary()),
        *(
            f"labels of Node/{node_labels.node}: {', '.join(sorted(node_labels.labels))}"
            for node_labels in leftovers.labels
        ),
        *(f"{leftover.name}{' (given back)' if leftover.ours else ''}" for leftover in leftovers.objects),
    ]
    gone = {name for healing in plan.heals for name in healing.hooks} | set(beside)
    kept = [hook.name for hook in stack.kept_hooks() if hook.name not in gone]
    definitions = list(_definitions(stack))
    changes = {
        "removes_before": beside,
        "destroys": _counts(stack.remembered),
        "gives_back": sorted(stack.state.adopted),
        "hosts": stack.hosts(),
        "reservation_pods": stack.reservation_pods(),
        "removes_after": [*kept, *(definitions if choice.definitions else [])],
        "stays": [
            *plan.stays,
            *_doubtful(leftovers),
            *_doubtful_releases(stack),
            *_stays(stack, [] if choice.definitions else definitions),
        ],
        "unseen": leftovers.unseen,
        "blockers": list(_blockers(stack, choice)),
    }
    return plan.model_copy(update=changes)


def _healing(unfinished: HalfDone) -> Healing:
    revision, settled = unfinished.revision, unfinished.settled
    return Healing(
        namespace=revision.namespace,
        release=revision.release,
        status=revision.status,
        since=revision.created,
        secret=revision.secret,
        then=f"revision {settled.version} ({settled.status}) is the newest again."
        if settled
        else "the next up installs the release anew.",
        hooks=[hook.name for hook in unfinished.hooks],
    )


def _others(others: list[HelmRevision]) -> Iterator[str]:
    for revision in others:
        yield (
            f"Helm release {revision.release} in namespace {revision.namespace} is {revision.status} since "
            f"{revision.created}: it is not this stack's."
        )


def _doubtful(leftovers: Leftovers) -> Iterator[str]:
    for leftover in leftovers.doubtful:
        yield f"{leftover.name}, {leftover.doubt}. If nobody needs it, delete it by hand."


def _doubtful_releases(stack: StackInCluster) -> Iterator[str]:
    for namespace, release in sorted(stack.doubtful_releases):
        remedy = f"helm uninstall {release} --namespace {namespace}"
        yield (
            f"Helm release {release} in namespace {namespace}: Pulumi installed it, and nothing says for whom. If the "
            f"state of this stack was lost, and it is its own: {for_its_cluster(remedy, stack.cluster.chosen)}"
        )


def _counts(remembered: Checkpoint) -> dict[str, int]:
    """How many of each kind, the most first."""
    kinds = Counter(_kind(resource) for resource in remembered.resources if _is_deleted(resource))
    return dict(sorted(kinds.items(), key=lambda item: (-item[1], item[0])))


def _is_deleted(resource: Resource) -> bool:
    return resource.custom and not resource.type.startswith("pulumi:")


def _kind(resource: Resource) -> str:
    if resource.type == RELEASE:
        return "Helm release"
    last = resource.type.rsplit(":", 1)[-1]
    return {"NodePatch": "node's labels", "ManyNodeLabels": "labels of many nodes", "Command": "command of a host"}.get(
        last, last
    )


def _definitions(stack: StackInCluster) -> Iterator[str]:
    listed = stack.definitions()
    for group in GROUPS:
        ours = [definition for definition, _ in listed if definition.group == group and definition.by_pulumi]
        if ours:
            held = objects_in_words(pair for pair in listed if pair[0].group == group) or "0 objects"
            yield f"{count(len(ours), 'CustomResourceDefinition')} of {group}, with {held} now"


def _stays(stack: StackInCluster, definitions: list[str]) -> Iterator[str]:
    if definitions:
        yield from definitions
        option = "--remove-definitions" + ("" if stack.state.cluster_uid else f" --cluster {stack.uid}")
        yield f"   Helm never deletes these. {option} does, of each group in which no object is left."
    for definition, objects in stack.definitions():
        if not definition.by_pulumi:
            held = objects_in_words([(definition, objects)]) or "0 objects"
            yield f"CustomResourceDefinition {definition.name}, with {held}: no release of Pulumi's made it."


def _blockers(stack: StackInCluster, choice: Choice) -> Iterator[Blocker]:
    if (pods := stack.users()) and not choice.leave_pods:
        yield Blocker(
            what=used_by(pods), remedy=f"{WITHOUT_KAI} End them, or say --leave-pods: then they are left as they are."
        )
    if protected := [resource.name for resource in stack.remembered.resources if resource.protect]:
        yield Blocker(
            what=f"somebody protected {', '.join(shown(protected))}, so pulumi destroy refuses.",
            remedy=f"Ask who did, then: pulumi state unprotect --all --stack {stack.target.stack}",
        )


def _ended(stack: StackInCluster) -> Iterator[Blocker]:
    """Releases whose making the state would forget, and that would be nobody's then."""
    for namespace, release in sorted(stack.ended):
        yield Blocker(
            what=f"Helm came to its end with release {release} in namespace {namespace} while its run was killed: the "
            "state does not know it, and there is nothing to heal.",
            remedy=f"Undo what that run made, and run it again: kai-anywhere rollback --stack {stack.target.stack}",
        )


def _binding(plan: Plan, stack: StackInCluster, choice: Choice) -> Iterator[Blocker]:
    """Names alone don't prove whose things are: another installation of the same stack has the same ones."""
    if stack.state.cluster_uid is None and choice.cluster is None and not plan.empty:
        yield Blocker(
            what=f"stack '{plan.stack}' does not remember its cluster: it was never deployed, is removed already, or "
            "its state is another one.",
            remedy=f"If all of this is its own, name the cluster: --cluster {plan.cluster_uid}",
        )
