"""What was there before the stack: kept beside it while the stack changes it, and given back when it goes."""

from collections.abc import Mapping
from typing import Any

import pulumi

from cluster.client import Cluster
from config.cluster import ClusterSettings
from manifests.objects import Manifest
from manifests.ownership import BEFORE, FIELD_MANAGER, annotated, kept_values, key, to_give_back

_MANAGER_MAX = 128


def adopting(name: str, adopted: Mapping[str, Mapping[str, Any]], cluster: ClusterSettings) -> pulumi.ResourceOptions:
    """Options for the component above everything: they reach the adopted objects below it, and no other.

    An adopted object is never deleted: the engine forgets it once the hook gave its values back. Deleting it without
    the program, and so without the hook, fails; the hook's name is what the engine then prints.

    Args:
        name: the component's name.
        adopted: the kept values, by object.
        cluster: where to give them back.
    """

    def give_back(args: pulumi.ResourceHookArgs) -> None:
        connection = Cluster.connect(cluster)
        try:
            give_back_values(connection, dict(args.old_inputs or {}))
        finally:
            connection.close()

    hook = pulumi.ResourceHook(f"give back what {name} adopted: run pulumi destroy --run-program", give_back)

    def keep(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        props: Manifest = dict(args.props)
        if "kind" not in props or (kept := adopted.get(key(props))) is None:
            return None
        opts = pulumi.ResourceOptions.merge(
            args.opts,
            pulumi.ResourceOptions(retain_on_delete=True, hooks=pulumi.ResourceHookBinding(before_delete=[hook])),
        )
        return pulumi.ResourceTransformationResult(annotated(props, kept), opts)

    return pulumi.ResourceOptions(transformations=[keep])


def give_back_values(cluster: Cluster, ours: Manifest) -> None:
    """Put the kept values back where ours still stand, and let go of every other field that is ours.

    Raises:
        ClusterError: if the cluster refuses; nothing is forgotten then.
    """
    live = cluster.find_object(ours)
    if live is None:
        return
    metadata = ours["metadata"]
    bare = {
        "apiVersion": ours["apiVersion"],
        "kind": ours["kind"],
        "metadata": {field: metadata[field] for field in ("name", "namespace") if field in metadata},
    }
    manager = metadata["annotations"][FIELD_MANAGER]
    back = to_give_back(kept_values(metadata["annotations"][BEFORE]), ours, live.content)
    # By a manager of its own: what this one does not name any more would be removed.
    cluster.apply(
        bare | back | {"metadata": bare["metadata"] | back.get("metadata", {})},
        manager=f"given-back/{manager}"[:_MANAGER_MAX],
    )
    cluster.apply(bare, manager=manager)
