"""Pulumi as it is built here."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import toolchain
from toolchain.programs import PULUMI


@pytest.fixture(scope="module")
def pulumi() -> Path:
    """The program, where it is built here."""
    located = toolchain.install_located([PULUMI])[PULUMI]
    if located.origin is not toolchain.Origin.BUILT:
        pytest.skip("it is not built here")
    return located.path


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory, pulumi: Path, engine_environment: dict[str, str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run it in a project with one stack."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "state").mkdir()
    (folder / "Pulumi.yaml").write_text("name: project\nruntime: yaml\n", encoding="utf-8")
    state = {"PULUMI_BACKEND_URL": (folder / "state").as_uri(), "PULUMI_CONFIG_PASSPHRASE": ""}
    environment = engine_environment | state

    def ran(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [pulumi, *words], cwd=folder, env=environment, check=False, capture_output=True, text=True
        )

    ran("stack", "init", "test").check_returncode()
    return ran


@pytest.mark.parametrize(
    ("key", "value", "is_refused"),
    [
        ("password", "Xk3-9fQz", True),
        ("apiToken", "correcthorse", True),
        ("password", "admin", False),
        ("password", "", False),
        ("region", "Xk3-9fQz", False),
    ],
)
def test_a_plain_value_that_looks_like_a_secret_is_refused(
    run: Callable[..., subprocess.CompletedProcess[str]], key: str, value: str, *, is_refused: bool
) -> None:
    done = run("config", "set", "--stack", "test", "--", key, value)
    assert ("looks like a secret; rerun with --secret" in done.stderr) is is_refused
    assert (done.returncode != 0) is is_refused


def test_a_command_does_not_begin_with_reading_dictionaries(pulumi: Path) -> None:
    done = subprocess.run(
        [pulumi, "version"], env=os.environ | {"GODEBUG": "inittrace=1"}, check=True, capture_output=True, text=True
    )
    started = [line.split()[1] for line in done.stderr.splitlines() if line.startswith("init ")]
    assert "github.com/pulumi/pulumi/sdk/v3/go/common/workspace" in started
    assert not [package for package in started if "zxcvbn" in package]
