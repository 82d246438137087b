"""The site of the docs: a folder for each version, the list of them, and the newest as `latest`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from operations.__main__ import app
from operations.errors import OperationError
from operations.release.docs_site import publish
from tests.support.full_disk import room_for

ADDRESS = "https://owner.github.io/name/"


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "CNAME").write_text("docs.example.com\n", encoding="utf-8")
    return folder


def _site(tmp_path: Path, text: str) -> Path:
    site = tmp_path / f"site-{text}"
    (site / "jetson").mkdir(parents=True)
    for page in (site / "index.html", site / "jetson" / "index.html"):
        page.write_text(text, encoding="utf-8")
    (site / f"only-{text}.svg").touch()
    return site


def _everything(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_the_first_version_is_the_latest_and_the_start_leads_to_it(tmp_path: Path, pages: Path) -> None:
    publish(_site(tmp_path, "one"), "v0.1.0", pages, ADDRESS)
    assert json.loads((pages / "versions.json").read_text(encoding="utf-8")) == [
        {"version": "v0.1.0", "title": "v0.1.0", "aliases": ["latest"]}
    ]
    assert (pages / "v0.1.0" / "jetson" / "index.html").read_text(encoding="utf-8") == "one"
    assert (pages / "latest" / "jetson" / "index.html").read_text(encoding="utf-8") == "one"
    assert 'content="0; url=latest/"' in (pages / "index.html").read_text(encoding="utf-8")
    assert (pages / ".nojekyll").exists()
    assert (pages / "CNAME").read_text(encoding="utf-8") == "docs.example.com\n"


def test_a_newer_version_becomes_the_latest_and_the_older_one_stays(tmp_path: Path, pages: Path) -> None:
    publish(_site(tmp_path, "one"), "v0.9.0", pages, ADDRESS)
    before = _everything(pages / "v0.9.0")
    publish(_site(tmp_path, "two"), "v0.10.0", pages, ADDRESS)
    assert _everything(pages / "v0.9.0") == before
    listed = json.loads((pages / "versions.json").read_text(encoding="utf-8"))
    assert [(entry["version"], entry["aliases"]) for entry in listed] == [("v0.10.0", ["latest"]), ("v0.9.0", [])]
    assert (pages / "latest" / "only-two.svg").exists()
    assert not (pages / "latest" / "only-one.svg").exists()


def test_a_correction_of_an_older_version_is_not_the_latest(tmp_path: Path, pages: Path) -> None:
    publish(_site(tmp_path, "two"), "v2.0.0", pages, ADDRESS)
    publish(_site(tmp_path, "correction"), "v1.9.9", pages, ADDRESS)
    assert (pages / "latest" / "index.html").read_text(encoding="utf-8") == "two"
    assert (pages / "v1.9.9" / "index.html").read_text(encoding="utf-8") == "correction"


def test_the_same_version_again_replaces_its_pages(tmp_path: Path, pages: Path) -> None:
    publish(_site(tmp_path, "one"), "v1.0.0", pages, ADDRESS)
    publish(_site(tmp_path, "mended"), "v1.0.0", pages, ADDRESS)
    for folder in ("v1.0.0", "latest"):
        assert not (pages / folder / "only-one.svg").exists()
        assert (pages / folder / "index.html").read_text(encoding="utf-8") == "mended"


def test_on_a_full_disk_the_site_stays_as_it_was_and_the_next_run_publishes(tmp_path: Path, pages: Path) -> None:
    publish(_site(tmp_path, "one"), "v1.0.0", pages, ADDRESS)
    before = _everything(pages)
    site = _site(tmp_path, "two")
    (site / "large.svg").write_bytes(bytes(100_000))
    with room_for(50_000), pytest.raises(OperationError, match="can't be copied: "):
        publish(site, "v1.1.0", pages, ADDRESS)
    assert _everything(pages) == before
    assert {path.name for path in pages.iterdir() if path.is_dir()} == {"v1.0.0", "latest"}
    assert [entry.version for entry in publish(site, "v1.1.0", pages, ADDRESS)] == ["v1.1.0", "v1.0.0"]


def test_the_sitemap_has_every_page_so_that_another_version_opens_at_the_same_one(tmp_path: Path, pages: Path) -> None:
    publish(_site(tmp_path, "one"), "v1.0.0", pages, ADDRESS)
    for folder in ("v1.0.0", "latest"):
        text = (pages / folder / "sitemap.xml").read_text(encoding="utf-8")
        assert f"<loc>{ADDRESS}{folder}/</loc>" in text
        assert f"<loc>{ADDRESS}{folder}/jetson/</loc>" in text
        assert text.count("<loc>") == 2


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("v1.0.0/theirs.txt", "theirs", r"versions\.json does not list it"),
        ("latest/theirs.txt", "theirs", r"versions\.json does not list it"),
        ("index.html", "a page of theirs", "was not written by this command"),
        ("versions.json", "{}", "is not what this command wrote"),
        ("versions.json", '[{"version": "../..", "title": "x"}]', "is not what this command wrote"),
    ],
)
def test_what_is_not_ours_is_left_alone(tmp_path: Path, pages: Path, file: str, content: str, problem: str) -> None:
    (pages / file).parent.mkdir(exist_ok=True)
    (pages / file).write_text(content, encoding="utf-8")
    before = _everything(pages)
    with pytest.raises(OperationError, match=problem):
        publish(_site(tmp_path, "one"), "v1.0.0", pages, ADDRESS)
    assert _everything(pages) == before


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"--version": "1.0.0"}, "'1.0.0' is no version"),
        ({"--version": "v01.0.0"}, "'v01.0.0' is no version"),
        ({"--version": "v1.0.0/.."}, "is no version"),
        ({"--address": "owner.github.io/name/"}, "is no address of a site"),
        ({"--address": "https://owner.github.io/name"}, "is no address of a site"),
        ({"--site": "nowhere"}, "There is no built site in nowhere"),
        ({"--pages": "nowhere"}, "There is no folder nowhere"),
    ],
)
def test_wrong_input_changes_nothing(tmp_path: Path, pages: Path, options: dict[str, str], problem: str) -> None:
    said = {"--version": "v1.0.0", "--pages": str(pages), "--address": ADDRESS, "--site": str(_site(tmp_path, "one"))}
    arguments = [word for option in (said | options).items() for word in option]
    done = CliRunner().invoke(app, ["docs-site", *arguments])
    assert isinstance(done.exception, OperationError)
    assert problem in str(done.exception)
    assert _everything(pages) == {"CNAME": b"docs.example.com\n"}


def test_the_command_says_what_is_published(tmp_path: Path, pages: Path) -> None:
    arguments = ["--pages", str(pages), "--address", ADDRESS, "--site", str(_site(tmp_path, "one"))]
    CliRunner().invoke(app, ["docs-site", "--version", "v1.0.0", *arguments])
    done = CliRunner().invoke(app, ["docs-site", "--version", "v1.1.0", *arguments])
    assert done.exit_code == 0, done.output
    assert done.output == f"{pages} has the docs of v1.1.0, v1.0.0; latest is v1.1.0.\n"
