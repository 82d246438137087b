"""GPU memory is MiB; the usual mistakes are recognised, with the number that was probably meant."""

import pytest

from config.platform import TegraPlatform, X86Platform
from testbed.stacks import assert_refused, changed, jetson, parse, spark

_KEY = "platform.tegra_nodes.jetson-1.gpu_memory_mib"


@pytest.mark.parametrize(
    ("value", "mistake", "meant"),
    [
        (128, "128 looks like GB", 131072),
        (1, "1 looks like GB", 1024),
        (1023, "1023 looks like GB", 1047552),
        (134217728, "134217728 looks like KiB", 131072),
        (1048576, "1048576 looks like KiB", 1024),
        (137438953472, "137438953472 looks like bytes", 131072),
        (1073741824, "1073741824 looks like bytes", 1024),
        ("128GB", "'128GB' is not a plain number", 131072),
        ("128 GiB", "'128 GiB' is not a plain number", 131072),
        ("128g", "'128g' is not a plain number", 131072),
        ("0.5TiB", "'0.5TiB' is not a plain number", 524288),
        ("131072MiB", "'131072MiB' is not a plain number", 131072),
        ("134217728 kB", "'134217728 kB' is not a plain number", 131072),
        ("137438953472B", "'137438953472B' is not a plain number", 131072),
        ("131072", "'131072' is not a plain number", 131072),
        ("131,072", "'131,072' is not a plain number", 131072),
        ("131 072", "'131 072' is not a plain number", 131072),
        ("131'072\u00a0MiB ", "'131'072\u00a0MiB ' is not a plain number", 131072),
        ("134,217,728 kB", "'134,217,728 kB' is not a plain number", 131072),
    ],
)
def test_a_number_in_another_unit_is_recognised(value: object, mistake: str, meant: int) -> None:
    way_out = f"the unit is MiB, a plain whole number. Write {meant} if that is what you meant."
    assert_refused(changed(jetson(), _KEY, value), _KEY, mistake, way_out, found=value)


def test_the_mistake_is_recognised_on_a_node_with_unified_memory_too() -> None:
    key = "platform.unified_memory_nodes.spark-1.gpu_memory_mib"
    assert_refused(changed(spark(), key, 128), key, "128 looks like GB", found=128)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (0, "greater than or equal to 1024"),
        (-5, "greater than or equal to 1024"),
        (True, "valid integer"),
        (131072.5, "valid integer"),
        (131072.0, "valid integer"),
        ("much", "valid integer: write digits alone, without a unit"),
        ("61,3", "valid integer: write digits alone, without a unit"),
        ("9" * 400 + "GB", "valid integer"),
    ],
)
def test_what_is_no_amount_of_memory_is_refused(value: object, says: str) -> None:
    assert_refused(changed(jetson(), _KEY, value), _KEY, says, found=value)


def test_a_number_beyond_every_unit_is_refused() -> None:
    assert_refused(changed(jetson(), _KEY, 10**400), _KEY, "looks like bytes", found=10**400)


@pytest.mark.parametrize("value", [1024, 30720, 1048575])
def test_every_amount_between_a_gib_and_a_tib_is_mib(value: int) -> None:
    platform = parse(changed(jetson(), _KEY, value)).platform
    assert isinstance(platform, TegraPlatform)
    assert platform.tegra_nodes["jetson-1"].gpu_memory_mib == value


def test_a_sparks_memory_is_taken_as_it_is() -> None:
    platform = parse(spark()).platform
    assert isinstance(platform, X86Platform)
    assert platform.unified_memory_nodes["spark-1"].gpu_memory_mib == 114688
