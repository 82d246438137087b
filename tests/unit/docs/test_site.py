"""The docs as a site: built without a warning, whole, searchable, and loading nothing from elsewhere."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.stacks import ROOT

CONFIGURATION = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
PAGES = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}


def _build(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )


def _copied(folder: Path) -> Path:
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built from a copy of the docs."""
    folder = _copied(tmp_path_factory.mktemp("site"))
    done = _build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning" not in done.stdout + done.stderr
    return folder / ".site"


def _page(site: Path, source: str) -> Path:
    parts = source.removesuffix(".md").removesuffix("index").removesuffix("README").strip("/")
    return site / parts / "index.html"


def test_every_page_is_there(site: Path) -> None:
    assert [source for source in sorted(PAGES) if not _page(site, source).is_file()] == []


def _listed(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for below in entry.values():
                yield from _listed(below)


def test_the_navigation_has_every_page_once() -> None:
    listed = list(_listed(CONFIGURATION["nav"]))
    assert sorted(listed) == sorted(PAGES)


def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path) -> None:
    folder = _copied(tmp_path)
    page = folder / "docs" / "faq.md"
    page.write_text(page.read_text(encoding="utf-8") + "\n[gone](plan.md#gone)\n", encoding="utf-8")
    done = _build(folder)
    assert done.returncode != 0
    assert "anchor does not exist" in re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)


def test_the_search_knows_every_page_and_its_headings(site: Path) -> None:
    entries = json.loads((site / "search.json").read_text(encoding="utf-8"))["items"]
    places = {entry["location"].partition("#")[0] for entry in entries}
    assert {_page(Path(), source).parent.as_posix() for source in PAGES} == {
        place.strip("/") or "." for place in places
    }
    assert any(entry["title"] == "What a fraction is" for entry in entries)


def test_no_page_needs_what_the_theme_would_fetch() -> None:
    """The theme fetches Mermaid from elsewhere; pictures are drawn, so that they are there without internet too."""
    assert [page for page in PAGES if "```mermaid" in (ROOT / "docs" / page).read_text(encoding="utf-8")] == []


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|source|iframe)[^>]*\s(?:src|srcset)=\"?([^\s\">]+)", text)
        loaded += re.findall(r"<link[^>]*rel=\"?(?:stylesheet|icon|preconnect)\"?[^>]*href=\"?([^\s\">]+)", text)
        loaded += re.findall(r"<link[^>]*href=\"?([^\s\">]+)\"?[^>]*rel=\"?(?:stylesheet|icon|preconnect)", text)
        assert loaded, page
        assert [address for address in loaded if address.startswith(("http:", "https:", "//"))] == [], page
