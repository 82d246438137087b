"""What `make test` runs, in which order, and that no failure gets lost: a script stands in for Python. And the help."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import toolchain
from testbed.stacks import ROOT
from tests.conftest import LONGEST, in_order
from tests.support import programs
from tests.support.programs import __main__ as ahead


def _environment() -> dict[str, str]:
    """This process's, without the options of the make that runs this test."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}


class Runs:
    """`make test` on a machine where each Python command ends at once.

    Args:
        folder: for the script and what it notes.
    """

    def __init__(self, folder: Path) -> None:
        self._bin = folder / "bin"
        self._bin.mkdir()
        self._notes = folder / "notes"
        self.python('echo "$*" >> "$NOTES"; case "$*" in *"$FAILS"*) exit 3;; esac')

    def python(self, script: str) -> None:
        """Replace the script."""
        (self._bin / "python").write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (self._bin / "python").chmod(0o755)

    def __call__(self, *, fails: str = "nothing") -> tuple[int, list[str]]:
        """The exit status of make, and what was run; those beside others wherever they came."""
        done = subprocess.run(
            ["make", "--old-file=.venv/installed", f"BIN={self._bin}", "WORKERS=2", "test"],
            cwd=ROOT,
            env=_environment() | {"NOTES": str(self._notes), "FAILS": fails},
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.returncode, self._notes.read_text(encoding="utf-8").splitlines()


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


QUICK = "-m pytest --dist loadfile --no-loadscope-reorder --numprocesses 2 -m not engine"
ENGINE = "-m pytest --dist loadfile --no-loadscope-reorder --numprocesses 2 -m engine"
NEEDED = "-m toolchain install --group engine --group simulator"
HALVES = {f"-m toolchain install --group {group}" for group in ("engine", "simulator")}
AHEAD = "-m tests.support.programs"


def test_both_tiers_run_and_the_second_has_what_it_needs(runs: Runs) -> None:
    status, done = runs()
    assert status == 0
    foreground = [line for line in done if line in {QUICK, ENGINE}]
    assert foreground == [QUICK, ENGINE]
    assert len(done) - 1 - done[::-1].index(NEEDED) < done.index(ENGINE)
    assert set(done) <= {QUICK, ENGINE, NEEDED, AHEAD, *HALVES}


@pytest.mark.parametrize(("fails", "last"), [("not engine", QUICK), ("-numprocesses 2 -m engine", ENGINE)])
def test_a_failure_in_either_tier_fails_the_run_and_comes_last(runs: Runs, fails: str, last: str) -> None:
    status, done = runs(fails=fails)
    assert status != 0
    assert [line for line in done if line in {QUICK, ENGINE}][-1] == last


def test_programs_that_can_not_be_had_fail_the_run_before_their_tests(runs: Runs) -> None:
    status, done = runs(fails="--group")
    assert status != 0
    assert QUICK in done
    assert ENGINE not in done


def test_what_is_fetched_ahead_never_decides(runs: Runs) -> None:
    assert runs(fails=AHEAD)[0] == 0


@pytest.mark.parametrize(
    ("ahead", "beside"), [("toolchain", "not engine"), ("tests.support", "-numprocesses 2 -m engine")]
)
def test_what_is_fetched_ahead_ends_with_the_tests(runs: Runs, tmp_path: Path, ahead: str, beside: str) -> None:
    number = tmp_path / "number"
    # The first that is fetched ahead never ends by itself, and the tests begin when it runs.
    runs.python(
        f"""echo "$*" >> "$NOTES"
case "$*" in
*"{beside}"*) while [ ! -s {number} ]; do sleep 0.1; done;;
*"{ahead}"*) [ -s {number} ] || {{ echo $$ > {number}; exec sleep 600; }};;
esac"""
    )
    assert runs()[0] == 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(number.read_text(encoding="utf-8")), 0)


def test_programs_of_tests_that_are_skipped_here_are_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "missing", lambda: None)
    everything = set(ahead.needed())
    monkeypatch.setattr(ahead, "missing", lambda: "a real node needs root")
    assert everything - set(ahead.needed()) == set(programs.NODE)
    assert everything | {*toolchain.ENGINE, *toolchain.SIMULATOR} == {*toolchain.programs.ALL, *programs.ALL}
    assert everything.isdisjoint({*toolchain.ENGINE, *toolchain.SIMULATOR})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "no tests collected (1 deselected)"),
        (("--numprocesses", "1"), "no tests ran"),
        (("tests/faults/test_policy_pack.py",), "1 test collected"),
        (("-m", "engine"), "1 test collected"),
    ],
    ids=["plain", "workers", "a path", "a tier"],
)
def test_plain_pytest_is_the_tier_of_seconds(options: tuple[str, ...], says: str) -> None:
    # In place of the whole folder, which takes long to collect.
    one = "testpaths=tests/faults/test_policy_pack.py"
    collect = () if "--numprocesses" in options else ("--collect-only",)
    command = [sys.executable, "-m", "pytest", "--quiet", *collect, "--override-ini", one, *options]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=120)
    assert says in done.stdout


def test_the_path_that_is_printed_for_a_shell_survives_any_folder_name(tmp_path: Path) -> None:
    folder = tmp_path / "o'neil `id` $HOME"
    programs_of_python = folder / ".venv" / "bin"
    programs_of_python.mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", folder)
    # In place of `toolchain run`, which puts programs on PATH.
    (programs_of_python / "python").write_text('#!/bin/sh\nshift 6\nexec "$@"\n', encoding="utf-8")
    (programs_of_python / "python").chmod(0o755)
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin:/a folder/$(id)"
    done = subprocess.run(
        ["sh", "-c", 'eval "$(make --old-file=.venv/installed env)"; echo "$PATH"'],
        cwd=folder,
        env=_environment() | {"PATH": path},
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == f"{folder}/bin:{path}\n"


def test_plain_make_lists_every_target_once_in_its_group() -> None:
    done = subprocess.run(
        ["make", "--no-print-directory"],
        cwd=ROOT,
        env=_environment(),
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    _, *parts = re.split(r"(?m)^(\S.*)\n", done.stdout)
    groups = {
        title: re.findall(r"(?m)^  make (\S+) +\S", body) for title, body in zip(parts[::2], parts[1::2], strict=True)
    }
    assert list(groups) == ["Stack", "Checks before a change", "Tests", "Benchmarks", "Development"]
    assert groups["Tests"] == ["test", "test-unit", "test-faults"]
    assert groups["Benchmarks"][0] == "bench"
    assert all(name.startswith("bench-") for name in groups["Benchmarks"][1:])
    listed = [name for names in groups.values() for name in names]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert sorted(listed) == sorted(re.findall(r"(?m)^([a-z-]+):", makefile))
    assert sorted(listed) == sorted(" ".join(re.findall(r"(?m)^\.PHONY: (.+)$", makefile)).split())


def test_what_runs_longest_is_there_and_comes_first() -> None:
    assert [place for place in LONGEST if not (ROOT / place).exists()] == []
    items = [
        SimpleNamespace(path=ROOT / path, fixturenames=names)
        for path, *names in (
            ("tests/engine/policy/test_workflows.py",),
            ("tests/engine/policy/test_policy.py", "cluster", "reused_simulators"),
            ("tests/engine/docs/test_guides.py", "reused_simulators"),
            ("tests/engine/docs/test_guides.py",),
            ("tests/cluster/test_real_pods.py",),
        )
    ]
    assert {path.stem for path in in_order(items)} == {"test_guides", "test_policy"}
    order = ["test_guides", "test_guides", "test_policy", "test_real_pods", "test_workflows"]
    assert [item.path.stem for item in items] == order, "no simulator waits while others run that have none"


def test_an_environment_whose_python_is_gone_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "requirements-dev.txt").touch()
    (tmp_path / "toolchain").mkdir()
    (tmp_path / "toolchain" / "python_environment.py").write_text("print('installed')")
    bin_folder = tmp_path / ".venv" / "bin"
    bin_folder.mkdir(parents=True)
    (bin_folder / "python").symlink_to("/gone/python3")
    (tmp_path / ".venv" / "installed").touch()
    for printed in ("installed\n", "make: Nothing to be done for 'install'.\n"):
        done = subprocess.run(
            ["make", f"PYTHON={sys.executable}", "install"],
            cwd=tmp_path,
            env=_environment() | {"LC_ALL": "C"},
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert (done.returncode, done.stderr, done.stdout) == (0, "", printed)
    assert subprocess.run([bin_folder / "python", "-c", ""], check=False).returncode == 0


def test_a_shell_finds_the_command_whatever_the_checkouts_name(tmp_path: Path) -> None:
    checkout = tmp_path / "Tom's $5 `x`"
    for script, text in {
        ".venv/bin/python": 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"',
        "bin/kai-anywhere": "echo found",
    }.items():
        (checkout / script).parent.mkdir(parents=True)
        (checkout / script).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (checkout / script).chmod(0o755)
    (checkout / ".venv" / "installed").touch()
    (checkout / "requirements-dev.txt").touch()
    os.utime(checkout / "requirements-dev.txt", (0, 0))
    (checkout / "Makefile").write_text((ROOT / "Makefile").read_text(encoding="utf-8"), encoding="utf-8")
    done = subprocess.run(
        ["sh", "-c", 'eval "$(make env)"; kai-anywhere'],
        cwd=checkout,
        env=_environment() | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "found\n", "")
