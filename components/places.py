"""Where a resource stands in the program: what moved there is not made twice."""

from collections.abc import Set as AbstractSet

import pulumi

from cluster.ownership.deployed_state import TOP
from config.stack import StackConfigError


def at_one_place(name: str, urns: AbstractSet[str]) -> pulumi.ResourceOptions:
    """Options for the component above everything: nothing below it is made that the stack has under another URN.

    So it is where a program puts the component below one of its own, or takes it out again. Symptom without it: the run
    stops at the first Helm release, and all before it is in the state twice. Once the program is as it was, the next
    run deletes the second of each, which is the cluster's one: namespaces with everything in them.

    Args:
        name: the component's name.
        urns: of what the stack had before this run.
    """

    def refuse(args: pulumi.ResourceHookArgs) -> None:
        refuse_a_second(name, args.urn, urns)

    hook = pulumi.ResourceHook(f"make nothing twice for {name}", refuse, pulumi.ResourceHookOptions(on_dry_run=True))

    def bind(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        if not isinstance(args.resource, pulumi.CustomResource) or isinstance(args.resource, pulumi.ProviderResource):
            return None
        ours = pulumi.ResourceOptions(hooks=pulumi.ResourceHookBinding(before_create=[hook]))
        return pulumi.ResourceTransformationResult(args.props, pulumi.ResourceOptions.merge(args.opts, ours))

    # In a new stack nothing can have moved.
    return pulumi.ResourceOptions(transformations=[bind] if urns else [])


def refuse_a_second(name: str, urn: str, urns: AbstractSet[str]) -> None:
    """Stop before a resource is made that the stack has at another place.

    Args:
        name: the component's name.
        urn: what is to be made.
        urns: of what the stack had before this run.

    Raises:
        StackConfigError: if there is another one of this type and name.
    """
    others = [other for other in urns if _last(other) == _last(urn) and other != urn]
    if not others:
        return
    types = _types(others[0])
    above = types[: types.index(TOP) + len(TOP)]
    earlier = next((other for other in urns if _types(other) == above), others[0])
    raise StackConfigError(
        f"'{name}' stands at another place in the program than in the stack's last run, and {_last(urn)[1]} would be "
        "made twice. Nothing of it was changed.\n"
        f"Put it back there. To move it, tell Pulumi in the same change, among its options: aliases: ['{earlier}']"
    )


def _types(urn: str) -> str:
    return urn.split("::", 3)[2]


def _last(urn: str) -> tuple[str, str]:
    return _types(urn).rpartition("$")[2], urn.split("::", 3)[3]
