"""Pictures are told in words too, and are drawn for light and dark pages."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks.admission_chart import draw
from benchmarks.admission_load import Latency
from testbed.stacks import ROOT
from tests.support.docs import PAGES

_SVG = "{http://www.w3.org/2000/svg}"
DRAWN = sorted((ROOT / "docs").rglob("*.svg"))


def _assert_described(text: str) -> None:
    picture = ET.fromstring(text)  # noqa: S314 - our own files
    assert picture.get("role") == "img"
    title, description = picture.find(f"{_SVG}title"), picture.find(f"{_SVG}desc")
    assert title is not None
    assert description is not None
    assert picture.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    assert len((title.text or "").split()) > 3
    assert len((description.text or "").split()) > 10
    assert "@media (prefers-color-scheme: dark)" in text


@pytest.mark.parametrize("file", DRAWN, ids=lambda file: file.name)
def test_a_drawing_has_a_title_a_description_and_colours_for_a_dark_page(file: Path) -> None:
    _assert_described(file.read_text(encoding="utf-8"))


def test_the_chart_that_the_benchmark_draws_is_told_too() -> None:
    measured = {"none": (8.6, 24.1), "policy": (16.7, 66.8), "webhook": (19.6, 63.5)}
    text = draw({carrier: Latency(p50, p99, count=400) for carrier, (p50, p99) in measured.items()})
    _assert_described(text)
    assert "policy p50 16.7, policy p99 66.8" in text


def test_every_picture_of_a_page_has_words_for_who_does_not_see_it() -> None:
    shown = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        shown += re.findall(r"!\[([^\]]*)\]\(", text)
        shown += [(re.findall(r'alt="([^"]*)"', tag) or [""])[0] for tag in re.findall(r"<img [^>]*>", text)]
    assert len(shown) >= 4
    assert [words for words in shown if len(words.split()) < 8] == []
