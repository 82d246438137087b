"""What others wrote: kept beside the stack while it changes the object, and given back when it goes."""

import functools
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pulumi

from cluster.access.client import Cluster
from cluster.access.connection import UP_TIMEOUT_SECONDS
from cluster.ownership.another_stack import refuse_another_stacks
from cluster.ownership.giving_back import give_back_values, keep_values_of_others
from components import tokens
from components.kubernetes import this_stack
from config.cluster import ClusterSettings
from manifests.many_nodes import apart, together
from manifests.ownership import FIELD_MANAGER, annotated, field_manager, key

if TYPE_CHECKING:
    from manifests.objects import Manifest


def sparing(name: str, adopted: Mapping[str, Mapping[str, Any]], cluster: ClusterSettings) -> pulumi.ResourceOptions:
    """Options for the component above everything: they reach the objects below it.

    No object is made that another stack has made since preflight looked.

    Every update of an object keeps what others wrote beside the stack's fields. Symptom without it: KAI schedules by
    its defaults once a label of the SchedulingShard was repaired, since the spec is the chart's.

    An adopted object is never deleted: the engine forgets it once the hook gave its values back. Deleting it without
    the program, and so without the hook, fails; the hook's name is what the engine then prints.

    Args:
        name: the component's name.
        adopted: the kept values, by object.
        cluster: where.
    """
    connection = one_connection(cluster)

    def give_back(args: pulumi.ResourceHookArgs) -> None:
        ours = _marked(dict(args.old_inputs or {}), args.name)
        # A node that joined anew under its name holds nothing of ours, and has nothing to be given back.
        if (kept := adopted.get(key(ours))) is not None:
            give_back_values(connection(), annotated(ours, kept))

    def keep_others(args: pulumi.ResourceHookArgs) -> None:
        keep_values_of_others(connection(), _marked(dict(args.new_inputs or {}), args.name))

    def refuse_others(args: pulumi.ResourceHookArgs) -> None:
        refuse_another_stacks(connection(), _marked(dict(args.new_inputs or {}), args.name))

    before_create = pulumi.ResourceHook(f"take nothing of another stack's for {name}", refuse_others)
    before_update = pulumi.ResourceHook(f"keep what others wrote into what {name} changes", keep_others)
    before_delete = pulumi.ResourceHook(f"give back what {name} adopted: run pulumi destroy --run-program", give_back)

    def keep(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        props: Manifest = dict(args.props)
        if args.type_ == tokens.MANY_NODE_LABELS:
            # Its provider gives back by itself, from what it remembers, with the program or without.
            nodes = {
                name: annotated(node, adopted[key(node)]) if key(node) in adopted else node
                for name, node in apart(props).items()
            }
            return pulumi.ResourceTransformationResult(props | together(nodes), args.opts)
        if "kind" not in props:
            return None
        hooks = pulumi.ResourceHookBinding(before_create=[before_create])
        if props["kind"] != "Node":  # Of a Node the provider only patches our labels.
            hooks.before_update = [before_update]
        ours = pulumi.ResourceOptions(hooks=hooks)
        if (kept := adopted.get(key(props))) is not None:
            props = annotated(props, kept)
            hooks.before_delete, ours.retain_on_delete = [before_delete], True
        return pulumi.ResourceTransformationResult(props, pulumi.ResourceOptions.merge(args.opts, ours))

    return pulumi.ResourceOptions(transformations=[keep])


def one_connection(settings: ClusterSettings) -> Callable[[], Cluster]:
    """Who gives a connection, always the same: one for each object would be a login each, and a second of a first run.

    It is closed once nobody can ask for it any more: a process of the Automation API runs many programs.
    """

    @functools.cache
    def connection() -> Cluster:
        opened = Cluster.connect(settings, timeout_seconds=UP_TIMEOUT_SECONDS)
        weakref.finalize(connection, opened.close)
        return opened

    return connection


def _marked(ours: "Manifest", name: str) -> "Manifest":
    """With our field manager, though somebody took its annotation off and a refresh forgot it then."""
    metadata = ours["metadata"]
    annotations = {FIELD_MANAGER: field_manager(this_stack(), name)} | metadata.get("annotations", {})
    return ours | {"metadata": metadata | {"annotations": annotations}}
