"""The documentation names what there is: files, make targets, tests, words of the program."""

import re
from pathlib import Path

import pytest

from testbed.stacks import ROOT
from tests.support.docs import PAGES, anchors

TARGETS = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8")))

FOLDERS = (
    r"\.github|agents|benchmarks|cluster|components|config|docs|examples|gpu_sharing|manifests|operations|policy|sharing_map|simulator|tests|"
    "toolchain"
)

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


def _broken(page: Path) -> list[str]:
    """Links of a page to a file or an anchor that is not there."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not link.startswith("https://") and (not target.exists() or (anchor and anchor not in anchors(target))):
            broken.append(link)
    return broken


@every_page
def test_every_link_leads_somewhere(page: Path) -> None:
    assert _broken(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A page\n## 1. What's `new`?\n```bash\n# no heading\n```\n[a](#1-whats-new) [b](#no-heading) [c](gone.md)"
        " [d](page.md#a-page) [e](page.md#gone) [f](https://example.com/#x)\n",
        encoding="utf-8",
    )
    assert _broken(page) == ["#no-heading", "gone.md", "page.md#gone"]


def test_the_readme_leads_to_every_page() -> None:
    linked = set(re.findall(r"\]\(docs/([\w-]+\.md)", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert linked == {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}, (
        "index.md is the site's README"
    )


@every_page
def test_every_make_target_exists(page: Path) -> None:
    assert set(re.findall(r"(?m)(?:^ *|\()make ([a-z][a-z-]*)", _code(page))) <= TARGETS


@every_page
def test_every_file_that_is_named_exists(page: Path) -> None:
    named = re.findall(rf"(?:`|(?m:^| )-f )((?:{FOLDERS})/[\w./-]*)", page.read_text(encoding="utf-8"))
    assert [file for file in named if not (ROOT / file).exists()] == []


def _code(page: Path) -> str:
    """The commands of a page: its blocks and what stands in backticks, a line each."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"(?ms)^ *```bash\n(.*?)^ *```$", text)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"(?ms)^ *```.*?^ *```$", "", text))
    return "\n".join([*blocks, *spans])


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
