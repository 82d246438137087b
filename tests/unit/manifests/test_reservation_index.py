"""Which reservation pods say index 0; that the expression does what it says is proven in tests/engine."""

from config.platform import TegraPlatform
from manifests import reservation, reservation_index
from testbed.stacks import Json, beta_policies, changed, jetson, mixed, never, parse, webhook, x86


def _platform(stack: Json) -> TegraPlatform:
    platform = parse(stack).platform
    assert isinstance(platform, TegraPlatform)
    return platform


def test_nodes_with_one_gpu_are_meant_and_no_others() -> None:
    rewrite = reservation_index.rewrite(_platform(mixed()))
    assert rewrite is not None
    assert rewrite.nodes == ["jetson-1"], "jetson-2 has two"
    two = changed(jetson(), "platform.tegra_nodes.jetson-1.gpu_count", 2)
    assert reservation_index.rewrite(_platform(two)) is None
    assert reservation_index.objects(parse(two)) == {}


def test_the_policy_is_there_where_a_policy_carries_the_overrides() -> None:
    for stack in (jetson(), beta_policies()):
        policy, binding = (stack_object.manifest for stack_object in reservation_index.objects(parse(stack)).values())
        assert policy["apiVersion"] == binding["apiVersion"]
        assert policy["apiVersion"].endswith(f"/{parse(stack).cluster.policies_version}")
        assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    for stack in (webhook(), never(), x86()):
        assert reservation_index.objects(parse(stack)) == {}


def test_the_policy_looks_at_updates_of_reservation_pods_alone_and_writes_no_spec() -> None:
    policy = reservation_index.objects(parse(jetson()))["index-policy"].manifest["spec"]
    constraints = policy["matchConstraints"]
    assert constraints["namespaceSelector"] == reservation.IN_NAMESPACE
    [rule] = constraints["resourceRules"]
    assert (rule["operations"], rule["resources"]) == (["UPDATE"], ["pods"])
    [mutation] = policy["mutations"]
    assert "spec" not in mutation["applyConfiguration"]["expression"]
