"""How messages name many things."""

import pytest

from manifests.wording import first_of


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, ""), (1, "n1"), (2, "n1, n2"), (3, "n1, n2 and 1 more"), (1000, "n1, n2 and 998 more")],
)
def test_the_first_names_are_shown_and_the_others_counted(number: int, text: str) -> None:
    assert first_of((f"n{index}" for index in range(1, number + 1)), 2) == text
