"""Options and fixtures of every tier."""

import gc
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Its plugin imports the rest of it in a hook at the end, where Python 3.11 may fail: compiling a module then runs
# finalizers of the tests' objects, and one that is reported compiles too ("AST constructor recursion depth mismatch").
import hypothesis.internal.observability  # noqa: F401
import pytest
from hypothesis import settings

from testbed import made_once
from testbed.reused import ReusedSimulators
from testbed.stacks import ROOT
from tests.support.api_server import ApiServer, kubeconfig, make_healthy, running, write_kubeconfig
from tests.support.golden import Golden
from tests.support.pods.images import Builder

# Tests start programs of this checkout a thousand times. An environment that keeps no compiled modules has each of them
# compile all of it, a fifth of its start.
os.environ["PYTHONDONTWRITEBYTECODE"] = ""
# Simulators, pulumi and its plugins are Go's, and run side by side on every core: a fifth less processor time, where
# none looks for garbage before it has taken 1 GB. Only API servers ever do.
if "GOGC" not in os.environ:
    os.environ |= {"GOGC": "off", "GOMEMLIMIT": "1000MiB"}
# They share the processors with one another: what is alone on one has no threads that look for work. An installation
# of a stack takes a quarter less processor time so, and the tests of the engine 7 % less (12 % less time).
if "GOMAXPROCS" not in os.environ:
    os.environ["GOMAXPROCS"] = "1"
    # Where one is built, all are its own.
    os.environ["GOFLAGS"] = f"{os.environ.get('GOFLAGS', '')} -p={os.cpu_count()}".strip()
# pydantic looks through all installed packages for plugins of its own, a tenth of what the settings' imports take.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
# Most of what a short program of Python does is to take memory, 4 KiB at a time. Where glibc takes it, and asks for
# pages of 2 MiB, the imports of a stack's program cost a fifth less processor time. The tests' own processes live
# long, and keep Python's allocator, which is faster later.
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
if "PYTEST_XDIST_WORKER" in os.environ and _HUGE_PAGES.exists() and "[never]" not in _HUGE_PAGES.read_text():
    os.environ.setdefault("PYTHONMALLOC", "malloc")
    os.environ.setdefault("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
# A run in the background of a shell ignores Ctrl-C, and so would every program that a test interrupts: it hung.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-test-data",
        action="store_true",
        help="rewrite the golden files under tests/data/golden; read their diff before you commit it",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Plain `pytest` is the tier of seconds; whoever names a file, or a tier with `-m`, gets what was named."""
    if config.args_source is not pytest.Config.ArgsSource.ARGS and not config.option.markexpr:
        config.option.markexpr = "not engine"
    # Whether a property holds does not depend on how busy the machine is.
    settings.register_profile("tests", deadline=None)
    settings.load_profile("tests")
    if made_once.FOLDER not in os.environ:
        # Workers have the variables of the process that starts them.
        os.environ[made_once.FOLDER] = folder = tempfile.mkdtemp(prefix="kai-anywhere-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


_TIERS = {
    "not engine": ("tests/unit", "tests/properties"),
    "engine": ("tests/engine", "tests/hosts", "tests/cluster"),
}
"""The folders that have tests of one tier alone, by the option `-m` that says it."""


def _is_of(path: Path, tier: str) -> bool:
    return any(path.is_relative_to(ROOT / folder) for folder in _TIERS[tier])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what has nothing of this tier: to import it takes each worker as long as all that it has."""
    others = _TIERS.keys() - {config.option.markexpr}
    return True if len(others) == 1 and _is_of(collection_path, *others) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Refuse a test that its tier would not collect."""
    tier = "engine" if item.get_closest_marker("engine") else "not engine"
    [other] = _TIERS.keys() - {tier}
    if _is_of(item.path, other):
        raise pytest.UsageError(
            f"{item.nodeid} is of the tier `{tier}`, and {', '.join(_TIERS[other])} are of the other."
        )


LONGEST = (
    "tests/engine/teams",
    "tests/engine/charts",
    "tests/cluster",
    "tests/faults",
    "tests/engine/docs/test_guides.py",
    "tests/engine/stack/test_lifecycle.py",
    "tests/engine/stack/test_random_settings.py",
    "tests/engine/stack/test_rollback.py",
    "tests/engine/docs/test_readme.py",
    "tests/engine/stack/test_package_by_version.py",
    "tests/engine/admission",
    "tests/engine/stack",
    "tests/engine/hosts",
    "tests/hosts",
    "tests/engine/gvirtus",
    "tests/engine/programs",
    "tests/engine/doctor",
    "tests/engine/policy",
    "tests/engine/reservation",
)
"""What runs longest, the longest first; a folder's files share what its fixtures make once per worker.

Of those that begin together, charts never wait and the others mostly do.
"""
_REUSING = pytest.StashKey[frozenset[Path]]()
"""The files that have a simulator which others had before."""
_REUSED = pytest.StashKey[ReusedSimulators]()


def in_order(items: list[Any]) -> frozenset[Path]:
    """Sort by file, and give those that have a simulator which others had before: they come first.

    Then no simulator waits while the others run. Among each kind the longest come first: where files run beside each
    other, none runs on alone at the end.
    """
    places = {ROOT / place: index for index, place in enumerate(LONGEST)}
    reusing = frozenset(item.path for item in items if "reused_simulators" in item.fixturenames)

    def place(path: Path) -> int:
        return min(places.get(parent, len(places)) for parent in (path, *path.parents))

    items.sort(key=lambda item: (item.path not in reusing, place(item.path)))
    return reusing


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[_REUSING] = in_order(items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Stop the simulator that is kept once there is nobody to have it: one that waits takes processor time, too."""
    stash = item.config.stash
    if _REUSED in stash and item.path not in stash[_REUSING]:
        stash[_REUSED].stop()


def pytest_sessionstart() -> None:
    """Collect tests without a search for garbage: modules and tests all stay."""
    gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Search what the tests make, and not the ten thousand of them again and again.

    And not at every 700 objects, as Python does: Hypothesis counts each search.
    """
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()


_SHIPPED_STACK = re.compile(rf"(?:{re.escape(str(ROOT))}/)?Pulumi\.[^/]+\.yaml")


def _refuse_shipped_stacks(event: str, arguments: tuple[object, ...]) -> None:
    """A stack file at the root is its user's: what a test expects of it would fail with the user's first edit."""
    if event == "open" and isinstance(arguments[0], str) and _SHIPPED_STACK.fullmatch(arguments[0]):
        if arguments[1] is None and not Path(arguments[0]).is_absolute():
            return  # os.open, perhaps below another folder: shutil.rmtree takes a test's own folder away so
        current = os.environ.get("PYTEST_CURRENT_TEST", "")
        if not re.search(r"/test_(shipped_stacks|stack_files)\.py::", current):
            raise RuntimeError(f"{arguments[0]} is its user's; tests read the stack files in testbed/data")


sys.addaudithook(_refuse_shipped_stacks)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare documents with the golden files of a folder."""
    return Golden(update=bool(request.config.getoption("--update-test-data")))


@pytest.fixture
def api() -> Iterator[ApiServer]:
    """A stand-in API server on loopback that answers as a healthy cluster does."""
    with running() as server:
        make_healthy(server)
        yield server


@pytest.fixture
def config_path(api: ApiServer, tmp_path: Path) -> str:
    """A kubeconfig whose current context is that server."""
    return write_kubeconfig(tmp_path / "kubeconfig", kubeconfig(api.url))


@pytest.fixture(scope="session")
def reused_simulators(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[ReusedSimulators]:
    """Simulators of this process of the tests, for one module after the other."""
    made = ReusedSimulators(lambda: tmp_path_factory.mktemp("cluster"))
    pytestconfig.stash[_REUSED] = made
    yield made
    made.stop()


@pytest.fixture(scope="session")
def agents_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Builder, str]]:
    """The image of agents/Containerfile, and who built it."""
    folder = tmp_path_factory.mktemp("images")
    builder = Builder(folder)
    yield builder, builder.agents()
    # The layers are some hundred MiB.
    shutil.rmtree(folder, ignore_errors=True)
