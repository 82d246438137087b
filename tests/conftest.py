"""Options and fixtures of every tier."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.api_server import ApiServer, kubeconfig, make_healthy, running, write_kubeconfig
from tests.support.golden import Golden
from tests.support.pods.images import Builder


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


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares documents with the golden files of a folder."""
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
def agents_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Builder, str]]:
    """The image of agents/Containerfile, and who built it."""
    folder = tmp_path_factory.mktemp("images")
    builder = Builder(folder)
    yield builder, builder.agents()
    # The layers are some hundred MiB.
    shutil.rmtree(folder, ignore_errors=True)
