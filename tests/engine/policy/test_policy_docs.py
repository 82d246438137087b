"""The commands and the sample of docs/policy.md, run as their reader runs them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from operations.policy_check import PACK
from policy.stack_platform import stack_facts
from testbed.stacks import ROOT
from tests.support.checkout import fresh, shell

PAGE = (ROOT / "docs/policy.md").read_text(encoding="utf-8")
_PROGRAM = """
import pulumi
from pulumi_kubernetes import Provider
from pulumi_kubernetes.core.v1 import Pod

# Needs no cluster.
provider = Provider("files", render_yaml_to_directory="rendered")
container = {"name": "web", "image": "registry.example.com/web:1.0", "securityContext": {"privileged": %s}}
metadata = {"name": "web", "namespace": "default"}
Pod("web", metadata=metadata, spec={"containers": [container]}, opts=pulumi.ResourceOptions(provider=provider))
"""


def _blocks(language: str) -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", PAGE)


OURS, THEIRS = _blocks("bash")
[SAMPLE] = _blocks("text")
[CONFIGURATION] = _blocks("json")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with fresh(tmp_path_factory.mktemp("clone") / "kai-anywhere") as folder:
        yield folder


def test_the_two_commands_show_every_stack_and_every_exception(checkout: Path) -> None:
    output = shell(OURS, checkout)
    rows = [line.split() for line in output.splitlines()]
    for stack in ("jetson", "x86"):
        for policy in PACK.canaries():
            [row] = [row for row in rows if row[:2] == [stack, policy]]
            assert int(row[2]) > 15, "resources judged"
            assert row[3] == "0", "findings"
    assert "Every policy refused its canary" in output
    assert "Namespace gpu-operator" in output


def test_a_configuration_that_weakens_the_pack_fails_the_command(checkout: Path) -> None:
    (checkout / "weak.json").write_text('{"all": "advisory"}', encoding="utf-8")
    command = ".venv/bin/python -m operations policy --stack x86 --pack-config weak.json"
    output = shell(command, checkout, expect=1)
    assert "let pass what it must refuse" in output
    assert "Traceback" not in output


def test_a_program_of_ones_own_is_stopped_as_the_sample_says(checkout: Path, tmp_path: Path) -> None:
    own = checkout.parent / "own"
    own.mkdir()
    (own / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "own", "runtime": "python"}), encoding="utf-8")
    (own / "Pulumi.dev.yaml").touch()
    environment = {"PULUMI_BACKEND_URL": tmp_path.as_uri(), "PULUMI_CONFIG_PASSPHRASE": ""}
    (own / "__main__.py").write_text(_PROGRAM % True, encoding="utf-8")
    script = THEIRS.replace("pulumi preview", "pulumi stack select --create dev\npulumi preview --non-interactive")
    assert script != THEIRS
    output = re.sub(r"(?m)^ +", "", shell(script, own, environment, expect=1))
    assert re.sub(r"(?m)^ +", "", SAMPLE) in output
    (own / "__main__.py").write_text(_PROGRAM % False, encoding="utf-8")
    assert "kai-anywhere@v" in shell(script, own, environment)


def test_the_configuration_of_the_page_grants_what_it_says() -> None:
    for policy, settings in json.loads(CONFIGURATION).items():
        assert policy in PACK.canaries()
        assert stack_facts(None, settings).tegra_nodes == {"jetson-1"}


def test_every_file_and_every_target_of_the_page_exists() -> None:
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8")))
    assert set(re.findall(r"`make ([a-z-]+)", PAGE)) <= targets
    for path in re.findall(r"`((?:policy|tests)/[\w./]+)`", PAGE):
        assert (ROOT / path).exists(), path
    assert "(docs/policy.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
