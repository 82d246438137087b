"""A host that an earlier version configured with `cdi.uuid_names`, and what `configure` and `restore` make of it.

That version wrote the GPU's UUID into the CDI specification as one more name of its device.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from config.cluster import Distribution
from tests.support.hosts.roots import Board, HostRoot, desired, install_toolkit, prepare

_CDI = "/etc/cdi/nvidia.yaml"
_STATE = "/var/lib/kai-anywhere/host"
_UUID = "54c53ba5-2d3b-5e8a-9d9d-7a21d6a0a1b1"
_GENERATED = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0"}, {"name": "all"}]}
"""What `nvidia-ctk cdi generate` writes for a Jetson, in short."""
_GENERATES = f"""
while [ "$1" != --output ]; do shift; done
echo '{json.dumps(_GENERATED)}' > "$2"
"""
_STAYS = desired(Board.JETPACK_6, cdi={"generate": True})
_GOES = desired(Board.JETPACK_6)


@dataclass(frozen=True)
class Earlier:
    """The host, and how it was before that version came."""

    host: HostRoot
    before: dict[str, tuple[int, object]]

    @property
    def devices(self) -> list[str]:
        """The names that its specification has."""
        return [device["name"] for device in json.loads(self.host.read(_CDI))["devices"]]

    @property
    def kept(self) -> list[str]:
        """What lies beside the specification."""
        return [file.read_text(encoding="utf-8") for file in self.host.path("/etc/cdi").glob("nvidia.yaml.kept-*")]


@pytest.fixture(params=[1, 2], ids=lambda version: f"journal {version}")
def journal(request: pytest.FixtureRequest) -> int:
    """The version of the journal."""
    version: int = request.param
    return version


@pytest.fixture(params=[None, "theirs: 1\n"], ids=["no file before", "a file before"])
def former(request: pytest.FixtureRequest) -> str | None:
    """The specification that was there first."""
    text: str | None = request.param
    return text


@pytest.fixture
def earlier(journal: int, former: str | None, tmp_path: Path) -> Earlier:
    """An Orin with k3s as the earlier version left it: file by file, journal included."""
    host = prepare(tmp_path / "host", Board.JETPACK_6, Distribution.K3S)
    install_toolkit(host)
    config = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
    host.write(config, host.read(config) + "[plugins.x.containerd.runtimes.'nvidia']\n", 0o600)
    host.program("systemctl", "exit 1")
    host.program("nvidia-ctk", _GENERATES)
    if former is not None:
        host.write(_CDI, former)
    before = host.snapshot()
    named = _GENERATED | {"devices": [*_GENERATED["devices"], {"name": _UUID}]}
    written = json.dumps(named, indent=2, sort_keys=True) + "\n"
    host.write(_CDI, written)
    owner: dict[str, object] = {"mode": None, "uid": None, "gid": None}
    if former is not None:
        status = host.path(_CDI).stat()
        owner = {"mode": 0o644, "uid": status.st_uid, "gid": status.st_gid}
    entry: dict[str, object] = {"path": _CDI, "step": "cdi", "sha256": former and _sha256(former), **owner}
    if journal == 2:
        entry |= {"written": [_sha256(written)], "target": str(host.path(_CDI))}
    for text in (former, written if "written" in entry else None):
        if text is not None:
            host.write(f"{_STATE}/originals/{_sha256(text)}", text, 0o600)
    noted = {"version": journal, "files": [entry], "folders": [] if former else ["/etc/cdi"]}
    host.write(f"{_STATE}/journal.json", json.dumps(noted | {"services": [], "pending": []}), 0o600)
    return Earlier(host, before)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_the_uuid_goes_from_a_specification_that_is_still_asked_for(earlier: Earlier) -> None:
    assert earlier.devices == ["0", "all", _UUID]
    drift = earlier.host.run("check", desired=_STAYS)
    assert (drift.code, [step["name"] for step in drift.answer["steps"] if step["changed"]]) == (3, ["cdi"])
    run = earlier.host.run("configure", desired=_STAYS)
    assert (run.code, run.answer["restarted"]) == (0, []), run.errors
    assert earlier.devices == ["0", "all"]
    assert earlier.kept == [], "nobody else has written it"
    assert earlier.host.run("check", desired=_STAYS).code == 0
    assert earlier.host.run("restore").code == 0
    assert earlier.host.snapshot() == earlier.before


def test_a_specification_that_is_asked_for_no_more_is_taken_back(earlier: Earlier, former: str | None) -> None:
    run = earlier.host.run("configure", desired=_GOES)
    assert (run.code, run.answer["restarted"]) == (0, []), run.errors
    assert [step["name"] for step in run.answer["steps"] if step["changed"]] == ["leftovers"]
    assert (earlier.host.read(_CDI) if former else earlier.host.path(_CDI).exists()) == (former or False)
    assert earlier.kept == []
    assert earlier.host.run("check", desired=_GOES).code == 0
    assert earlier.host.run("restore").code == 0
    assert earlier.host.snapshot() == earlier.before


def test_a_host_that_leaves_the_stack_is_as_it_was(earlier: Earlier) -> None:
    assert earlier.host.run("restore").code == 0
    assert earlier.host.snapshot() == earlier.before


@pytest.mark.parametrize("leaves", [False, True], ids=["asked for no more", "leaves the stack"])
def test_a_specification_that_somebody_has_edited_is_left_alone_and_that_is_said(
    earlier: Earlier, former: str | None, *, leaves: bool
) -> None:
    edited = earlier.host.read(_CDI).replace('"all"', '"every"') + "\n"
    earlier.host.write(_CDI, edited)
    run = earlier.host.run("restore") if leaves else earlier.host.run("configure", desired=_GOES)
    assert run.code == 0, run.errors
    assert earlier.host.read(_CDI) == edited
    assert earlier.kept == ([former] if former else [])
    [said] = [step["detail"] for step in run.answer["steps"] if _CDI in step["detail"]]
    assert f"{_CDI} was changed by somebody else: left as it is" in said


def test_an_edit_of_a_specification_that_is_still_asked_for_is_kept_beside_it(earlier: Earlier) -> None:
    edited = earlier.host.read(_CDI).replace('"all"', '"every"') + "\n"
    earlier.host.write(_CDI, edited)
    run = earlier.host.run("configure", desired=_STAYS)
    assert run.code == 0, run.errors
    assert earlier.devices == ["0", "all"]
    assert earlier.kept == [edited]
    assert "somebody else changed a file that is written again: theirs is kept as" in run.errors
