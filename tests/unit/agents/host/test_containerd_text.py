"""Reading what containerd prints, and the one line that is changed in a main configuration."""

import pytest

from agents.host.errors import HostError
from agents.host.look.effective import CRI_V2, CRI_V3, Effective
from agents.host.look.imports import (
    file_version,
    listed,
    with_import,
    without_import,
)
from agents.host.look.toml_dump import flatten

_PATTERN = "/etc/containerd/conf.d/*.toml"


def test_quotes_nesting_and_arrays_over_several_lines_are_read() -> None:
    flat = flatten(
        "version = 2\n[plugins]\n  [plugins.\"a.b\".'c d']\n    \"k\" = 'x = [y'\n  list = [\n    'p',\n    'q'\n  ]\n"
        "[[t]]\n n = 1\n[[t]]\n n = 2\n"
    )
    assert flat == {
        ("version",): 2,
        ("plugins", "a.b", "c d", "k"): "x = [y",
        ("plugins", "a.b", "c d", "list"): ["p", "q"],
        ("t",): [{"n": 1}, {"n": 2}],
    }


@pytest.mark.parametrize("text", ["= 1", "[plugins", "password secret-value", "list = ["])
def test_a_line_that_is_not_understood_is_an_error_that_shows_little_of_it(text: str) -> None:
    with pytest.raises(HostError) as caught:
        flatten(text)
    assert "secret-value" not in caught.value.message


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("version = 2\n", f'version = 2\nimports = ["{_PATTERN}"]\n'),
        ("version = 2", f'version = 2\nimports = ["{_PATTERN}"]\n'),
        ("# top\nversion = 3 # why\n[a]\nx = 1\n", f'# top\nversion = 3 # why\nimports = ["{_PATTERN}"]\n[a]\nx = 1\n'),
        ("version = 2\nimports = []\n", f'version = 2\nimports = ["{_PATTERN}"]\n'),
        ('version = 2\nimports = ["/a/*.toml"]\n', f'version = 2\nimports = ["/a/*.toml", "{_PATTERN}"]\n'),
        (
            "version = 2\nimports = [\n  '/a/*.toml',\n]\n[x]\n",
            f"version = 2\nimports = [\n  '/a/*.toml', \"{_PATTERN}\"]\n[x]\n",
        ),
        (f'version = 2\nimports = ["{_PATTERN}"]\n', f'version = 2\nimports = ["{_PATTERN}"]\n'),
        # The key of a table is not the document's.
        (
            'version = 2\n[a]\nimports = ["/b"]\n',
            f'version = 2\nimports = ["{_PATTERN}"]\n[a]\nimports = ["/b"]\n',
        ),
        ('imports = [\n  "/a", # why\n]\n', f'imports = [\n  "/a", # why\n "{_PATTERN}"]\n'),
        ('imports = [ "/a" # why ]\n]\n', f'imports = [ "/a" # why ]\n, "{_PATTERN}"]\n'),
        (f'imports = [\n  # "{_PATTERN}",\n]\n', f'imports = [\n  # "{_PATTERN}",\n "{_PATTERN}"]\n'),
        ("imports = ['/a]b']\n", f"imports = ['/a]b', \"{_PATTERN}\"]\n"),
        (
            'text = """\nimports = [\n]\nversion = 9\n"""\n',
            f'imports = ["{_PATTERN}"]\ntext = """\nimports = [\n]\nversion = 9\n"""\n',
        ),
    ],
)
def test_one_import_is_added_and_everything_else_stays(before: str, after: str) -> None:
    assert with_import(before, _PATTERN) == after
    assert listed(after)[-1] == _PATTERN
    assert with_import(after, _PATTERN) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f'imports = ["/a", "{_PATTERN}"]\n', 'imports = ["/a"]\n'),
        (f'imports = [\n  "/a", # why\n  "{_PATTERN}"]\n', 'imports = [\n  "/a", # why\n]\n'),
        (f'imports = [\n  # "{_PATTERN}",\n "{_PATTERN}", # it\n "/a"]\n', None),
        (f'x = 1\nimports = ["{_PATTERN}"]\ny = 1\n', "x = 1\ny = 1\n"),
    ],
)
def test_one_import_is_taken_out_and_everything_else_stays(before: str, after: str | None) -> None:
    left = without_import(before, _PATTERN, empty_list=False)
    assert after is None or left == after
    assert listed(left) == [entry for entry in listed(before) if entry != _PATTERN]
    assert left.count("#") == before.count("#")


@pytest.mark.parametrize("text", ['"imports" = ["/a"]\n', 'imports = "/a"\n'])
def test_what_cant_be_edited_without_a_change_of_something_else_is_refused(text: str) -> None:
    with pytest.raises(HostError, match="can't be edited"):
        with_import(text, _PATTERN)


def test_only_the_documents_own_version_counts() -> None:
    assert file_version("# version = 9\n  version = 3\n[a]\nversion = 7\n") == 3
    assert file_version('disabled_plugins = ["cri"]\n[a]\nversion = 2\n') is None
    assert file_version("") is None


def _effective(plugin: str, *, nvidia_systemd: str = "true", more: str = "") -> Effective:
    runtimes = f"plugins.'{plugin}'.containerd.runtimes"
    text = (
        f"[{runtimes}.runc]\nruntime_type = 'x'\n[{runtimes}.runc.options]\nSystemdCgroup = true\n"
        f"[{runtimes}.nvidia.options]\nBinaryName = '/usr/bin/nvidia-container-runtime'\n"
        f"SystemdCgroup = {nvidia_systemd}\n{more}"
    )
    return Effective(text, flatten(text))


@pytest.mark.parametrize("plugin", [CRI_V2, CRI_V3])
def test_nvidia_is_served_with_runcs_cgroup_driver_only(plugin: str) -> None:
    assert _effective(plugin).serves_nvidia
    assert not _effective(plugin, nvidia_systemd="false").serves_nvidia


def test_a_candidate_that_changes_something_else_is_refused_with_its_keys() -> None:
    base = _effective(CRI_V2, more="[plugins.a]\nsandbox_image = 'one'\n")
    other = _effective(CRI_V2, nvidia_systemd="true", more="[plugins.a]\nsandbox_image = 'two'\n")
    base.refuse_worse_than(base)
    with pytest.raises(HostError, match=r"plugins\.a\.sandbox_image"):
        other.refuse_worse_than(base)
