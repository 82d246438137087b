"""The stack's document as the server reads it: every part checked, and no other version."""

import json
from pathlib import Path

import pytest

from agents.admission import __main__ as agent
from agents.admission.errors import SettingsError
from agents.admission.settings import VERSION, Settings
from manifests import admission
from testbed.admission.objects import stack
from testbed.stacks import Json, changed, parse


def document() -> Json:
    return admission.server_settings(parse(stack()))


def write(folder: Path, content: object) -> Path:
    path = folder / "settings.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def refused(folder: Path, content: object) -> str:
    with pytest.raises(SettingsError) as caught:
        Settings.from_file(write(folder, content))
    return str(caught.value)


def test_what_the_program_writes_is_read(tmp_path: Path) -> None:
    read = Settings.from_file(write(tmp_path, document()))
    assert (read.version, list(read.mutations)) == (VERSION, ["reservation", "gvirtus"])


def test_a_newer_document_is_refused_with_both_versions_and_the_image_as_the_way_out(tmp_path: Path) -> None:
    """Whatever else is in it: a newer one has what this server never heard of."""
    newer = document() | {"version": VERSION + 1, "heard-of-later": {}}
    message = refused(tmp_path, newer)
    assert f"settings.json: its version is {VERSION + 1}, and this server reads version {VERSION}: " in message
    assert "set admission.image" in message
    assert "serve on" in message


@pytest.mark.parametrize("version", [VERSION - 1, None])
def test_an_older_document_is_refused_with_both_versions_and_an_up_as_the_way_out(
    tmp_path: Path, version: int | None
) -> None:
    older = {"namespace": "kai-anywhere", "service": "kai-anywhere-admission"}
    message = refused(tmp_path, older if version is None else older | {"version": version})
    text = "none" if version is None else version
    assert f"settings.json: its version is {text}, and this server reads version {VERSION}: run 'pulumi up'" in message
    assert "admission.image" not in message


def test_a_server_that_is_given_another_version_ends_before_it_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(agent, "log_to_stderr", lambda: None)
    monkeypatch.setattr(agent, "serve", lambda *_, **__: pytest.fail("it started"))
    write(tmp_path, document() | {"version": VERSION + 1})
    assert agent.main([str(tmp_path)]) == 2
    [record] = [record for record in caplog.records if record.name == "agents.admission"]
    assert "this server reads version" in vars(record)["error"]


_GPU = "mutations.gvirtus.fragments.near"


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("version", "1", "Expected `int | null`"),
        ("version", True, "Expected `int | null`"),
        ("version", 1.5, "Expected `int | null`"),
        ("more", 1, "unknown field `more`"),
        ("mutations", None, "Expected `object`"),
        ("mutations.gvirtus.more", 1, "unknown field `more`"),
        ("mutations.gvirtus.pods", {}, "required field `labels`"),
        ("mutations.gvirtus.pods.labels", {"a": 1}, "Expected `str`"),
        ("mutations.gvirtus.choice.default", "elsewhere", "no 'elsewhere'"),
        ("mutations.gvirtus.choice", None, "no ''"),
        ("mutations.reservation.fragments", {}, "no ''"),
        (f"{_GPU}.more", 1, "unknown field `more`"),
        (f"{_GPU}.own.more", 1, "unknown field `more`"),
        (f"{_GPU}.env", [{"name": "A", "valueFrom": {}}], "unknown field `valueFrom`"),
        (f"{_GPU}.env", [{"name": "A"}], "required field `value`"),
        (f"{_GPU}.volumes", [{"emptyDir": {}}], "lacks name"),
        (f"{_GPU}.volumeMounts", [{"name": "a"}], "lacks mountPath or name"),
    ],
)
def test_a_document_that_somebody_edited_is_refused_with_the_place(
    tmp_path: Path,
    path: str,
    value: object,
    says: str,
) -> None:
    message = refused(tmp_path, changed(document(), path, value))
    assert message.startswith(str(tmp_path / "settings.json"))
    assert says in message


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"settings.json: can't be read: No such file"):
        Settings.from_file(tmp_path / "settings.json")
