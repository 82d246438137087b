"""The checks as a whole: codes that stay, texts that are there, causes without a circle, and the page made of them."""

import re
from pathlib import Path

import pytest

from operations.doctor.check import Category
from operations.doctor.checks import CHECKS
from operations.doctor.troubleshooting import page
from testbed.stacks import ROOT

_CODES = Path(__file__).parents[3] / "data" / "doctor" / "codes.txt"
_HOW = "If this is what you meant: pytest --update-test-data, then read the diff."


def _compare(file: Path, text: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-test-data"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text, _HOW


def test_a_code_belongs_to_one_check_and_to_its_category() -> None:
    codes = [check.code for check in CHECKS]
    assert len(codes) == len(set(codes))
    assert [code for code in codes if not re.fullmatch(r"KA\d{4}", code)] == []
    assert {check.category for check in CHECKS} == set(Category)


def test_no_code_that_was_published_disappears() -> None:
    """A new check adds its line; nobody removes one, since suppressions and scripts name it."""
    published = _CODES.read_text(encoding="utf-8").split()
    assert published == sorted(check.code for check in CHECKS)


def test_every_check_says_everything() -> None:
    for check in CHECKS:
        for text in (check.title, check.symptom, check.cause, check.remedy, check.source):
            assert text.strip(), check.code
        assert not check.title.endswith("."), check.code
        assert check.cause.endswith("."), check.code


def test_what_a_check_explains_exists_and_causes_form_no_circle() -> None:
    by_code = {check.code: check for check in CHECKS}

    def follow(code: str, path: tuple[str, ...]) -> None:
        assert code not in path, f"a circle: {' -> '.join([*path, code])}"
        for next_code in by_code[code].explains:
            follow(next_code, (*path, code))

    for code in by_code:
        follow(code, ())


def test_the_page_is_what_the_checks_say(request: pytest.FixtureRequest) -> None:
    _compare(ROOT / "docs" / "troubleshooting.md", page(), request)
