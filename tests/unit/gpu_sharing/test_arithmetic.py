"""The sums, by facts of KAI's source (v0.17.0 pkg/scheduler/api)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_sharing.arithmetic import charged_gpus, is_possible, part_mib, portion, read_label, shared_mib


@pytest.mark.parametrize(
    ("label", "shared"),
    [(131072, 131000), (122543, 122500), (122880, 122800), (28672, 28600), (99, 0), (100, 100), (1048575, 1048500)],
)
def test_the_label_is_rounded_down_to_hundreds(label: int, shared: int) -> None:
    assert shared_mib(label) == shared


def test_a_label_of_a_tebibyte_and_more_is_taken_for_bytes() -> None:
    assert read_label(str(16 * 2**30)) == 16384
    assert read_label("1048576") == 1
    assert read_label("1048575") == 1048575


@pytest.mark.parametrize("label", [None, "", "131072 ", "128Gi", "-1", "1.5", "0x10"])
def test_a_label_that_is_no_number_says_nothing(label: str | None) -> None:
    assert read_label(label) is None


def test_a_label_is_mebibytes() -> None:
    assert read_label("131072") == 131072


@pytest.mark.parametrize(("fraction", "mib"), [(0.25, 32750), (0.29, 37990), (0.001, 131), (0.3, 39300)])
def test_a_fraction_is_cut_to_whole_mebibytes(fraction: float, mib: int) -> None:
    assert part_mib(fraction, 131000) == mib


def test_cutting_uses_the_floating_point_numbers_of_kai() -> None:
    """0.29 of 100 is 28.999999999999996 there, too."""
    assert part_mib(0.29, 100) == 28


@pytest.mark.parametrize(("mib", "part"), [(30720, 0.24), (30000, 0.23), (32750, 0.25), (32751, 0.26), (131000, 1)])
def test_a_portion_is_rounded_up_to_hundredths(mib: int, part: float) -> None:
    assert portion(mib, 131000) == part


def test_nothing_is_a_part_of_a_gpu_without_memory() -> None:
    assert portion(1, 0) == math.inf
    assert not is_possible(portion(1, 0))


@pytest.mark.parametrize(("part", "possible"), [(0.01, True), (1, True), (1.01, False), (1.99, False), (2, True)])
def test_more_than_a_gpu_is_refused_but_for_whole_multiples(part: float, possible: bool) -> None:
    assert is_possible(part) is possible


@pytest.mark.parametrize(
    ("part", "devices", "gpus"), [(0.24, 1, 0.24), (0.24, 4, 0.96), (0.255, 1, 0.26), (0.004, 1, 0), (1, 3, 3)]
)
def test_a_queue_is_charged_in_hundredths_of_each_device(part: float, devices: int, gpus: float) -> None:
    assert charged_gpus(part, devices) == gpus


def test_a_queue_is_charged_nothing_for_a_gpu_of_which_nothing_is_shared() -> None:
    assert charged_gpus(portion(100, 0), 1) == 0


@given(st.integers(0, 2**20))
def test_what_is_shared_is_never_more_than_the_gpu_has(label: int) -> None:
    assert 0 <= label - shared_mib(label) < 100
    assert shared_mib(label) % 100 == 0


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10485).map(lambda hundreds: hundreds * 100))
def test_who_asks_for_more_gets_no_smaller_portion(one: int, other: int, shared: int) -> None:
    less, more = sorted((one, other))
    assert portion(less, shared) <= portion(more, shared)
    assert portion(less, shared) >= less / shared
