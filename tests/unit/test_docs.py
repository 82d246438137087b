"""The documentation names what there is: files, make targets, tests, words of the program."""

import re
from pathlib import Path

import pytest

from tests.support.stacks import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TARGETS = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8")))

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


@every_page
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    broken = [link for link in links if not link.startswith("https://") and not (page.parent / link).exists()]
    assert broken == []


@every_page
def test_every_make_target_exists(page: Path) -> None:
    assert set(re.findall(r"(?m)(?:`|^)make ([a-z-]+)", page.read_text(encoding="utf-8"))) <= TARGETS


@every_page
def test_every_file_that_is_named_exists(page: Path) -> None:
    named = re.findall(
        r"`((?:\.github|tests|manifests|toolchain|docs|operations|policy)/[\w./-]+)`", page.read_text(encoding="utf-8")
    )
    assert [file for file in named if not (ROOT / file).exists()] == []


def test_every_decision_is_listed_under_its_title() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = dict(re.findall(r"\| \[\d+\]\(([\w.-]+)\) \| (.+) \|", (folder / "README.md").read_text(encoding="utf-8")))
    titles = {
        page.name: re.sub(r"^# \d+\. ", "", page.read_text(encoding="utf-8").splitlines()[0])
        for page in folder.glob("0*.md")
    }
    assert listed == titles
    assert len(listed) >= 7


def test_the_variables_of_the_workflows_are_explained() -> None:
    guide = (ROOT / "docs" / "teams.md").read_text(encoding="utf-8")
    text = "".join(file.read_text(encoding="utf-8") for file in (ROOT / ".github" / "workflows").glob("*.yml"))
    names = set(re.findall(r"(?:vars|secrets)\.([A-Z_]+)", text))
    assert names >= {"STATE_URL", "KUBECONFIG"}
    assert [name for name in names if f"`{name}`" not in guide] == []
