"""What others made of a file since the agent wrote it stays theirs; what is still the agent's goes."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from agents.host.change import configure, ownership, restore
from agents.host.change.journal import FOLDER, Journal
from agents.host.change.plan import change
from agents.host.commands import Deadline, Tools
from agents.host.errors import HostError
from agents.host.look import toolkit
from agents.host.look.runtime import NVIDIA_FILE
from agents.host.root import Root
from agents.host.steps import cdi as step_cdi
from agents.host.steps import containerd as step_containerd
from agents.host.steps import docker as step_docker
from agents.host.steps import toolkit as step_toolkit
from agents.host.steps.service import Service
from config.hosts import HostTimeouts

_DOCKER = "/etc/docker/daemon.json"
_MAIN = "/etc/containerd/config.toml"
_FOLDER = "/etc/containerd/conf.d"
_NVIDIA = f"{_FOLDER}/{NVIDIA_FILE}"
_RUNC = f"{_FOLDER}/{step_containerd.RUNC_FILE}"
_TOOLKIT = "/etc/nvidia-container-runtime/config.toml"
_TEMPLATE = "/var/snap/microk8s/current/args/containerd-template.toml"
_RUNTIME = {"path": "/usr/bin/nvidia-container-runtime", "args": []}
_STEPS = {_DOCKER: step_docker.NAME, _TOOLKIT: step_toolkit.NAME, step_cdi.SPECIFICATION: step_cdi.NAME}
_IMPORT = f'imports = ["{_FOLDER}/*.toml"]\n'
_OURS_NVIDIA = 'BinaryName = "/usr/bin/nvidia-container-runtime"\n'
_OPERATORS_NVIDIA = 'BinaryName = "/usr/local/nvidia/toolkit/nvidia-container-runtime"\n'


@dataclass
class Host:
    """A host whose files the agent changed."""

    root: Root
    knows: bool = True
    """Whether its journal tells what was written."""

    def write(self, path: str, text: str | None) -> None:
        """Somebody writes a file, or removes it."""
        place = self.root.path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            place.unlink()
        else:
            place.write_text(text, encoding="utf-8")

    def read(self, path: str) -> str | None:
        """Read a file."""
        return self.root.read_text(path)

    def configured(self, path: str, before: str | None, after: str) -> None:
        """The agent changes a file."""
        if before is not None:
            self.write(path, before)
        journal = Journal.load(self.root)
        (planned,) = change(self.root, path, after.encode())
        journal.begin([(_STEPS.get(path, step_containerd.NAME), planned)], [])
        self.write(path, after)
        if not self.knows:
            file = self.root.path(f"{FOLDER}/journal.json")
            data = json.loads(file.read_text(encoding="utf-8"))
            for item in data["files"]:
                item.pop("written", None)
                item.pop("target", None)
            file.write_text(json.dumps(data | {"version": 1}), encoding="utf-8")

    def take_back(self) -> dict[str, str]:
        """The agent takes everything back; gives what it says of each file."""
        journal = Journal.load(self.root)
        tools = Tools(self.root, Deadline(60))
        taken = {
            path: ownership.taken_back(self.root, journal, original) for path, original in journal.originals.items()
        }
        for note in taken.values():
            for planned in note.changes:
                configure.write(tools, planned)
        again = [
            path
            for path, original in journal.originals.items()
            if ownership.taken_back(self.root, journal, original).changes
        ]
        assert not again, "what was taken back once must be as it shall be"
        return {path: owner.note for path, owner in taken.items()}

    def copies(self, path: str) -> list[str]:
        """What was kept beside a file."""
        place = path.replace("/conf.d/", "/")
        return [self.root.read_text(path) or "" for path in self.root.glob(f"{place}.kept-*")]


@pytest.fixture(params=[True, False], ids=["journal", "journal of the version before"])
def host(tmp_path: Path, request: pytest.FixtureRequest) -> Host:
    """A host with a journal of each version."""
    return Host(Root(str(tmp_path)), knows=request.param)


def _docker(**more: object) -> str:
    return json.dumps({"debug": True, **more}, indent=4) + "\n"


def test_a_setting_that_somebody_added_to_dockers_file_stays_and_the_runtime_goes(host: Host) -> None:
    host.configured(_DOCKER, '{"debug": true}', _docker(runtimes={"nvidia": _RUNTIME}))
    edited = {"debug": False, "data-root": "/mnt/big", "runtimes": {"nvidia": _RUNTIME, "kata": {"path": "/opt/kata"}}}
    host.write(_DOCKER, json.dumps(edited))
    (note,) = host.take_back().values()
    assert json.loads(host.read(_DOCKER) or "") == {
        "debug": False,
        "data-root": "/mnt/big",
        "runtimes": {"kata": {"path": "/opt/kata"}},
    }
    assert note == f"{_DOCKER} was changed by somebody else: only what this agent added is taken out"


def test_a_file_whose_edits_were_undone_gets_its_exact_bytes_back(host: Host) -> None:
    before = '{ "debug":true }'
    host.configured(_DOCKER, before, _docker(runtimes={"nvidia": _RUNTIME}))
    host.write(_DOCKER, json.dumps({"runtimes": {"nvidia": _RUNTIME}, "debug": True}))
    host.take_back()
    assert host.read(_DOCKER) == before


def test_a_runtime_that_somebody_else_made_dockers_default_stays(host: Host) -> None:
    host.configured(_DOCKER, None, json.dumps({"runtimes": {"nvidia": _RUNTIME}}))
    edited = {"runtimes": {"nvidia": _RUNTIME}, "default-runtime": "nvidia", "debug": True}
    host.write(_DOCKER, json.dumps(edited))
    host.take_back()
    left = json.loads(host.read(_DOCKER) or "")
    # An old journal does not tell who made it the default: the agent can, so both go.
    assert left == (edited if host.knows else {"debug": True})


def test_a_file_that_nobody_can_read_any_more_stays_with_the_original_beside_it(host: Host) -> None:
    host.configured(_DOCKER, '{"debug": true}', _docker(runtimes={"nvidia": _RUNTIME}))
    host.write(_DOCKER, '{"debug": true,')
    (note,) = host.take_back().values()
    assert host.read(_DOCKER) == '{"debug": true,'
    assert host.copies(_DOCKER) == ['{"debug": true}']
    assert "is not JSON" in note
    assert note.endswith("left as it is")


def test_lines_that_another_tool_added_to_containerds_file_stay_and_the_import_goes(host: Host) -> None:
    main = "# kept by hand\nversion = 2\n\n[plugins.a]\n  b = 1\n"
    host.configured(_MAIN, main, main.replace("version = 2\n", f"version = 2\n{_IMPORT}"))
    host.write(_MAIN, main.replace("version = 2\n", f"version = 2\n{_IMPORT}") + "[debug]\n  level = 'info'\n")
    host.take_back()
    assert host.read(_MAIN) == main + "[debug]\n  level = 'info'\n"


@pytest.mark.parametrize(
    ("before", "edited", "left"),
    [
        ('imports = ["/a/*"]', f'imports = ["/a/*", "{_FOLDER}/*.toml", "/b/*"]', 'imports = ["/a/*", "/b/*"]'),
        ("imports = []", f'imports = ["{_FOLDER}/*.toml"]', "imports = []"),
        ("", f'imports = ["{_FOLDER}/*.toml", "/b/*"]', 'imports = ["/b/*"]'),
        (_IMPORT.strip(), f"{_IMPORT.strip()} # mine", f"{_IMPORT.strip()} # mine"),
    ],
)
def test_only_the_agents_own_import_is_taken_out(before: str, edited: str, left: str, host: Host) -> None:
    host.configured(_MAIN, f"{before}\nversion = 2\n", f"{_IMPORT}version = 2\n#\n")
    host.write(_MAIN, f"{edited}\nversion = 2\n# theirs\n")
    host.take_back()
    assert host.read(_MAIN) == f"{left}\nversion = 2\n# theirs\n"


def test_a_file_that_the_agent_made_goes_even_where_the_journal_does_not_tell(host: Host) -> None:
    host.configured(_MAIN, None, f"version = 3\n{_IMPORT}")
    host.configured(_RUNC, None, "# Written by kai-anywhere's host agent; `restore` removes it.\nversion = 3\n")
    host.configured(_NVIDIA, None, _OURS_NVIDIA)
    host.configured(step_cdi.SPECIFICATION, None, json.dumps({"devices": []}, indent=2, sort_keys=True) + "\n")
    assert set(host.take_back().values()) == {""}
    assert [path for path in (_MAIN, _RUNC, _NVIDIA, step_cdi.SPECIFICATION) if host.root.exists(path)] == []


def test_the_gpu_operators_file_stays_with_what_it_relies_on(host: Host) -> None:
    host.configured(_MAIN, "version = 3\n", f"version = 3\n{_IMPORT}")
    host.configured(_RUNC, None, "# Written by kai-anywhere's host agent; `restore` removes it.\nversion = 3\n")
    host.configured(_NVIDIA, None, _OURS_NVIDIA)
    host.write(_NVIDIA, _OPERATORS_NVIDIA)
    notes = host.take_back()
    assert host.read(_NVIDIA) == _OPERATORS_NVIDIA
    assert host.read(_MAIN) == f"version = 3\n{_IMPORT}"
    assert host.root.exists(_RUNC)
    assert notes[_MAIN] == f"{_MAIN} stays: {_NVIDIA} is imported by it"
    assert notes[_RUNC] == f"{_RUNC} stays: {_NVIDIA} of somebody else relies on it"
    assert notes[_NVIDIA] == f"{_NVIDIA} was changed by somebody else: left as it is"
    host.write(_NVIDIA, None)
    host.take_back()
    assert host.read(_MAIN) == "version = 3\n"
    assert not host.root.exists(_RUNC)


@pytest.mark.parametrize("where", [_MAIN, f"{_FOLDER}/50-site.toml"])
def test_a_runtime_that_somebody_else_made_containerds_default_stays(where: str, host: Host) -> None:
    host.configured(_MAIN, "version = 3\n", f"version = 3\n{_IMPORT}")
    host.configured(_NVIDIA, None, _OURS_NVIDIA)
    host.write(where, f"version = 3\n{_IMPORT}[plugins.x.containerd]\n  default_runtime_name = 'nvidia'\n")
    notes = host.take_back()
    assert host.read(_NVIDIA) == _OURS_NVIDIA
    assert notes[_NVIDIA] == f"{_NVIDIA} stays: somebody else made nvidia the default runtime"


def test_a_mode_that_somebody_else_set_stays_and_the_agents_goes_out_of_an_edited_file(host: Host) -> None:
    before = '# mine\n[nvidia-container-runtime]\nlog-level = "info"\n\nmode = "auto"\n'
    host.configured(_TOOLKIT, before, before.replace("auto", "csv"))
    host.write(_TOOLKIT, before.replace("auto", "csv").replace("info", "debug"))
    host.take_back()
    assert host.read(_TOOLKIT) == before.replace("info", "debug")
    if host.knows:
        host.write(_TOOLKIT, before.replace("auto", "cdi"))
        host.take_back()
        assert host.read(_TOOLKIT) == before.replace("auto", "cdi")


def test_a_mode_where_none_was_said_goes(host: Host) -> None:
    before = "[nvidia-container-runtime]\n[other]\nmode = 'kept'\n"
    written = "[nvidia-container-runtime]\nmode = 'csv'\n[other]\nmode = 'kept'\n"
    host.configured(_TOOLKIT, before, written)
    host.write(_TOOLKIT, f"theirs = true\n{written}")
    host.take_back()
    assert host.read(_TOOLKIT) == f"theirs = true\n{before}"


def test_an_edited_template_of_microk8s_loses_the_agents_block(host: Host) -> None:
    begin, end = "# Added by kai-anywhere's host agent: begin", "# Added by kai-anywhere's host agent: end"
    host.configured(_TEMPLATE, "version = 2\n", f"version = 2\n\n{begin}\n[x]\n{end}\n")
    host.write(_TEMPLATE, f"version = 2\noom_score = 1\n\n{begin}\n[x]\n{end}\n[theirs]\n")
    host.take_back()
    assert host.read(_TEMPLATE) == "version = 2\noom_score = 1\n[theirs]\n"


def test_a_specification_that_somebody_generated_anew_stays(host: Host) -> None:
    host.configured(step_cdi.SPECIFICATION, "theirs: 1\n", json.dumps({"devices": []}, indent=2) + "\n")
    host.write(step_cdi.SPECIFICATION, "cdiVersion: 0.5.0\n")
    host.take_back()
    assert host.read(step_cdi.SPECIFICATION) == "cdiVersion: 0.5.0\n"
    assert host.copies(step_cdi.SPECIFICATION) == ["theirs: 1\n"]


@pytest.mark.parametrize("content", ["as written", "another"])
def test_a_link_in_the_files_place_is_never_followed_to_delete_what_it_leads_to(content: str, host: Host) -> None:
    host.configured(_NVIDIA, None, _OURS_NVIDIA)
    elsewhere = host.root.path("/srv/shared.toml")
    elsewhere.parent.mkdir()
    elsewhere.write_text(_OURS_NVIDIA if content == "as written" else "theirs", encoding="utf-8")
    host.root.path(_NVIDIA).unlink()
    host.root.path(_NVIDIA).symlink_to(elsewhere)
    host.take_back()
    assert elsewhere.exists()
    assert host.root.path(_NVIDIA).is_symlink()


def test_a_file_that_the_agent_made_behind_a_link_goes_and_the_link_stays(tmp_path: Path) -> None:
    host = Host(Root(str(tmp_path)))
    link = host.root.path(_DOCKER)
    link.parent.mkdir(parents=True)
    link.symlink_to("elsewhere.json")
    host.configured(_DOCKER, None, json.dumps({"runtimes": {"nvidia": _RUNTIME}}))
    host.take_back()
    assert link.is_symlink()
    assert not link.exists()


def test_what_became_no_file_is_left_with_the_original_beside_it(host: Host) -> None:
    host.configured(_DOCKER, "{}", _docker(runtimes={"nvidia": _RUNTIME}))
    host.write(_DOCKER, None)
    host.root.path(_DOCKER).mkdir()
    (note,) = host.take_back().values()
    assert "left as it is" in note
    assert host.copies(_DOCKER) == ["{}"]


def test_what_somebody_removed_stays_removed(host: Host) -> None:
    host.configured(_DOCKER, "{}", _docker(runtimes={"nvidia": _RUNTIME}))
    host.write(_DOCKER, None)
    (note,) = host.take_back().values()
    assert not host.root.exists(_DOCKER)
    assert note == f"{_DOCKER} was removed by somebody else: left so"


def test_of_a_lost_original_alone_is_said_that_it_is_lost_and_everything_else_is_taken_back(host: Host) -> None:
    """Whoever follows the remedy removes the journal: nothing of the agent's may be left by then but what it names."""
    host.configured(_MAIN, "version = 2\n", f"version = 2\n{_IMPORT}")
    host.configured(_DOCKER, '{"debug": true}', _docker(runtimes={"nvidia": _RUNTIME}))
    host.configured(_NVIDIA, None, _OURS_NVIDIA)
    kept = Journal.load(host.root).originals[_DOCKER].sha256
    host.root.path(f"{FOLDER}/originals/{kept}").unlink()
    host.root.path("/run").mkdir()
    for _ in range(2):
        with pytest.raises(HostError) as caught:
            restore.restore(Tools(host.root, Deadline(60)), restore.Restored())
        assert f"What is kept of {_DOCKER} in" in caught.value.message
        assert caught.value.remedy == f"Put {_DOCKER} right by hand, then remove {FOLDER}."
        assert host.read(_DOCKER) == _docker(runtimes={"nvidia": _RUNTIME})
        assert host.read(_MAIN) == "version = 2\n"
        assert host.read(_NVIDIA) is None


@pytest.mark.parametrize(
    ("before", "mode"),
    [
        ('[nvidia-container-runtime] # theirs\nmode = "legacy"\n', "legacy"),
        ("nvidia-container-runtime.mode = 'legacy'\n", "legacy"),
        ('nvidia-container-runtime = { mode = "legacy" }\n', "legacy"),
        ("nvidia-container-runtime = { mode = 'of \"mine\" \\ é' }\n", 'of "mine" \\ é'),
    ],
)
def test_the_toolkits_mode_goes_back_however_it_was_written(before: str, mode: str, host: Host) -> None:
    assert toolkit.mode_of(before) == mode
    ours = '[nvidia-container-runtime]\n  mode = "csv"\n'
    host.configured(_TOOLKIT, before, ours)
    host.write(_TOOLKIT, f"{ours}[theirs]\nkey = 1\n")
    host.take_back()
    left = host.read(_TOOLKIT)
    assert toolkit.mode_of(left) == mode
    assert "key = 1" in str(left)


def test_a_runtime_that_is_slow_to_restart_has_as_long_to_be_given_back_as_the_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Root(str(tmp_path))
    for folder in ("run", "var/lib", "usr/lib/systemd/system"):
        (tmp_path / folder).mkdir(parents=True)
    root.path("/usr/lib/systemd/system/docker.service").touch()
    journal = Journal.load(root)
    journal.begin([], ["docker"])
    waited: list[float] = []
    monkeypatch.setattr(Service, "bring_up", lambda _service, _tools, seconds: waited.append(seconds))
    timeouts = HostTimeouts()
    restore.restore(Tools(root, Deadline(timeouts.configure_seconds)), restore.Restored())
    (seconds,) = waited
    assert timeouts.restart_seconds <= seconds < timeouts.configure_seconds
