"""Rules of `kai`: queues form a forest, and no queue is promised more than it may use."""

import pytest

from testbed.stacks import Json, assert_refused, changed, jetson, mixed, parse, spark, x86


def _queues(**queues: Json) -> Json:
    return changed(x86(), "kai.queues", queues)


def test_an_unknown_parent_names_the_queues_that_there_are() -> None:
    assert_refused(
        _queues(a={"parent": "b"}),
        "kai",
        "queue 'a' has the parent 'b', which is not there",
        "Queues: a, default-parent-queue, default-queue.",
    )


def test_a_circle_of_queues_is_shown() -> None:
    assert_refused(
        _queues(a={"parent": "b"}, b={"parent": "c"}, c={"parent": "a"}),
        "kai",
        "queues form a circle: a -> b -> c -> a. Give one of them another parent.",
    )


def test_a_queue_is_not_its_own_parent() -> None:
    assert_refused(_queues(a={"parent": "a"}), "kai", "queues form a circle: a -> a")


def test_a_circle_is_found_from_a_queue_outside_it() -> None:
    assert_refused(_queues(a={"parent": "b"}, b={"parent": "b"}), "kai", "queues form a circle: a -> b -> b")


@pytest.mark.parametrize("name", ["default-queue", "default-parent-queue"])
def test_the_usual_pair_is_not_defined_twice(name: str) -> None:
    assert_refused(
        _queues(**{name: {}}), "kai", f"queue '{name}' is one of KAI's usual pair", "Set default_queue: false"
    )


def test_without_the_usual_pair_its_names_are_free_and_no_parents() -> None:
    stack = changed(_queues(**{"default-queue": {}}), "kai.default_queue", False)
    assert list(parse(stack).kai.queues) == ["default-queue"]
    child = changed(stack, "kai.queues.a", {"parent": "default-parent-queue"})
    assert_refused(child, "kai", "'default-parent-queue', which is not there", "Queues: a, default-queue.")


def test_a_parent_may_be_one_of_the_usual_pair() -> None:
    assert parse(_queues(a={"parent": "default-parent-queue"})).kai.queues["a"].parent == "default-parent-queue"


@pytest.mark.parametrize(("quota", "limit"), [(3, 2), (-1, 2), (0.5, 0)])
def test_a_quota_above_the_limit_is_refused(quota: float, limit: float) -> None:
    stack = _queues(a={"gpu": {"quota": quota, "limit": limit}})
    assert_refused(
        stack, "kai.queues.a.gpu", f"quota {float(quota)} exceeds limit {float(limit)}", "more than it may use"
    )


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("128GB", "MB (10^6 bytes): as memory, '128GB' is 128000"),
        ("128 GiB", "MB (10^6 bytes): as memory, '128 GiB' is 137438.953472"),
        ("500m", "write digits alone"),
    ],
)
def test_memory_with_a_unit_is_told_in_mb(value: str, says: str) -> None:
    assert_refused(_queues(a={"memory": {"limit": value}}), "kai.queues.a.memory.limit", says, found=value)


@pytest.mark.parametrize(("quota", "limit"), [(2, 2), (100, -1), (-1, -1), (0, 0)])
def test_a_quota_within_the_limit_is_accepted(quota: float, limit: float) -> None:
    share = parse(_queues(a={"gpu": {"quota": quota, "limit": limit}})).kai.queues["a"].gpu
    assert (share.quota, share.limit) == (quota, limit)


@pytest.mark.parametrize("field", ["quota", "limit"])
def test_nothing_between_nothing_and_without_limit_is_an_amount(field: str) -> None:
    assert_refused(_queues(a={"gpu": {field: -0.5}}), f"kai.queues.a.gpu.{field}", "write 0 or more, or -1", found=-0.5)


def test_an_infinite_number_is_none() -> None:
    key = "kai.queues.a.gpu.over_quota_weight"
    stack = _queues(a={"gpu": {"over_quota_weight": float("inf")}})
    assert_refused(stack, key, "finite number", found=float("inf"))


@pytest.mark.parametrize(("field", "value"), [("quota", -2), ("limit", -1.5), ("over_quota_weight", -1)])
def test_a_share_below_its_least_value_is_refused(field: str, value: float) -> None:
    key = f"kai.queues.research.gpu.{field}"
    assert_refused(changed(x86(), key, value), key, "greater than or equal to", found=value)


def test_a_schedulers_arguments_are_flags_without_dashes() -> None:
    stack = changed(x86(), "kai.scheduler.args", {"--v": "4"})
    assert_refused(stack, "kai.scheduler.args.--v", "should match pattern", found="--v")


def test_a_schedulers_arguments_are_strings() -> None:
    assert_refused(changed(x86(), "kai.scheduler.args", {"v": 4}), "kai.scheduler.args.v", "put it in quotes", found=4)


def test_an_unknown_placement_names_the_known_ones() -> None:
    key = "kai.scheduler.placement"
    assert_refused(changed(x86(), key, "random"), key, "'binpack' or 'spread'", found="random")


@pytest.mark.parametrize("name", ["Kai", "kai_system", "a.b", "a" * 64])
def test_a_namespace_is_a_dns_label(name: str) -> None:
    assert_refused(changed(x86(), "kai.namespace", name), "kai.namespace", "not a DNS label", found=name)


@pytest.mark.parametrize("key", ["kai.timeout_seconds", "gpu_operator.timeout_seconds"])
@pytest.mark.parametrize("seconds", [29, 7201])
def test_a_wait_is_bounded(key: str, seconds: int) -> None:
    assert_refused(changed(x86(), key, seconds), key, "or equal to", found=seconds)


_MODE = "kai.gpu_sharing_mode"
_ENFORCING = pytest.mark.parametrize("mode", ["hami_core", "nv_fractions"])


def test_an_unknown_mode_names_the_known_ones() -> None:
    modes = "'non_memory_enforced', 'hami_core', 'nv_fractions' or 'disabled'"
    assert_refused(changed(x86(), _MODE, "NvFractions"), _MODE, modes, found="NvFractions")


@pytest.mark.parametrize(
    ("mode", "version", "since"),
    [("nv_fractions", "v0.17.0", "0.18"), ("nv_fractions", "0.17.1", "0.18"), ("hami_core", "v0.16.4", "0.17")],
)
def test_a_chart_that_lacks_the_mode_is_refused(mode: str, version: str, since: str) -> None:
    stack = changed(changed(x86(), _MODE, mode), "kai.chart", {"version": version})
    assert_refused(
        stack, "kai", f"'{mode}' needs KAI {since} or later; chart.version is {version}", "Remove the version"
    )


@pytest.mark.parametrize(
    ("mode", "version"),
    [
        ("nv_fractions", "v0.18.0"),
        ("hami_core", "v0.17.0"),
        ("non_memory_enforced", "v0.16.4"),
        ("disabled", "v0.16.4"),
        # Which release that is, nobody knows here.
        ("nv_fractions", "~0.17.0"),
    ],
)
def test_a_chart_that_has_the_mode_is_accepted(mode: str, version: str) -> None:
    stack = changed(changed(x86(), _MODE, mode), "kai.chart", {"version": version})
    assert parse(stack).kai.gpu_sharing_mode == mode


@_ENFORCING
@pytest.mark.parametrize(
    ("stack", "node", "where"),
    [
        (jetson(), "jetson-1", "platform.tegra_nodes"),
        (mixed(), "jetson-1", "platform.tegra_nodes"),
        (spark(), "spark-1", "platform.unified_memory_nodes"),
    ],
)
def test_memory_is_enforced_on_no_node_that_shares_it_with_its_gpu(
    mode: str, stack: Json, node: str, where: str
) -> None:
    assert_refused(
        changed(stack, _MODE, mode),
        "",
        f"kai.gpu_sharing_mode '{mode}' is for every node",
        f"'{node}' ({where}) can't have it",
        "Use non_memory_enforced",
    )


@pytest.mark.parametrize("mode", ["non_memory_enforced", "disabled"])
def test_what_enforces_nothing_is_accepted_everywhere(mode: str) -> None:
    assert parse(changed(mixed(), _MODE, mode)).kai.enforces_memory is False


@_ENFORCING
def test_memory_is_enforced_on_discrete_gpus(mode: str) -> None:
    assert parse(changed(x86(), _MODE, mode)).kai.enforces_memory is True
