"""Which version of the program runs, as the installer noted it in the environment."""

import json
from pathlib import Path

import pytest

from components.program import program_version
from testbed.stacks import Json

COMMIT = "0123456789abcdef0123456789abcdef01234567"
URL = "https://github.com/example/kai-anywhere"


def _git(**more: str) -> Json:
    return {"url": URL, "vcs_info": {"vcs": "git", "commit_id": COMMIT} | more}


@pytest.mark.parametrize(
    ("noted", "version"),
    [
        (_git(requested_revision="v1.2.3"), "v1.2.3"),
        (_git(requested_revision="main"), COMMIT[:12]),
        (_git(), COMMIT[:12]),
        ({"url": "file:///checkout", "dir_info": {"editable": True}}, None),
        (None, None),
    ],
    ids=["tag", "branch", "default branch", "folder", "index"],
)
def test_it_is_the_tag_that_was_asked_for_else_the_commit(
    noted: Json | None, version: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kai_anywhere-1.2.3.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.4\nName: kai-anywhere\nVersion: 1.2.3\n", encoding="utf-8")
    if noted is not None:
        (folder / "direct_url.json").write_text(json.dumps(noted), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert program_version() == version


def test_a_checkout_has_none() -> None:
    assert program_version() is None
