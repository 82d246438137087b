"""The guide's programs in YAML, and the examples in three languages, say what the package has."""

import json
import re
from typing import Any

import yaml

from components import tokens
from package.schema import package_schema
from package.version import VERSION
from testbed.stacks import ROOT, parse
from tests.support.docs import blocks

EXAMPLES = ROOT / "examples"


def _programs() -> list[dict[str, Any]]:
    texts = [block.text for block in blocks(ROOT / "docs" / "teams.md", "yaml")]
    return [content for content in map(yaml.safe_load, texts) if "runtime" in content]


def test_the_guides_program_by_version_is_the_example() -> None:
    example = yaml.safe_load((EXAMPLES / "yaml" / "Pulumi.yaml").read_text(encoding="utf-8"))
    by_version, checkout = _programs()
    assert by_version["resources"]["gpus"]["options"].pop("version") == "1.2.3", "the guide's word for any version"
    assert example["resources"]["gpus"]["options"].pop("version") == VERSION
    assert by_version["resources"] == example["resources"]
    for program in (by_version, checkout, example):
        [resource] = program["resources"].values()
        assert resource["type"] == tokens.KAI_ANYWHERE.replace(":index:", ":")
        outputs = package_schema()["resources"][tokens.KAI_ANYWHERE]["properties"]
        assert {f"${{gpus.{name}}}" for name in outputs} >= set(program["outputs"].values())


def test_the_settings_of_the_program_on_a_checkout_are_valid() -> None:
    _, checkout = _programs()
    assert parse(checkout["resources"]["gpus"]["properties"]["settings"]).platform.jetsons.keys() == {"jetson-1"}


def test_the_examples_ask_for_this_version() -> None:
    for language in ("python", "typescript"):
        project = yaml.safe_load((EXAMPLES / language / "Pulumi.yaml").read_text(encoding="utf-8"))
        assert project["packages"] == {"kai-anywhere": f"github.com/example/kai-anywhere/package@v{VERSION}"}


def test_the_lock_of_the_example_in_typescript_has_a_hash_of_each_package_and_no_address() -> None:
    text = (EXAMPLES / "typescript" / "package-lock.json").read_text(encoding="utf-8")
    packages = json.loads(text)["packages"]
    ours = {name for name, package in packages.items() if "integrity" not in package}
    assert ours == {"", "node_modules/kai-anywhere", "sdks/example-kai-anywhere"}
    assert "://" not in text
    for name, version in json.loads((EXAMPLES / "typescript" / "package.json").read_text("utf-8"))[
        "devDependencies"
    ].items():
        assert packages[f"node_modules/{name}"]["version"] == version


def test_the_example_in_python_has_the_pulumi_of_the_package() -> None:
    [pin] = (EXAMPLES / "python" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    assert re.search(rf"(?m)^{re.escape(pin)} ", pins)
