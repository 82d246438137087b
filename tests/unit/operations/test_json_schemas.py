"""What commands print with `--json` has a schema in docs/, which is that of its model."""

import json
import re

import pytest
from pydantic import BaseModel

from operations.bundle.commands import Told
from operations.charts.images import Lock
from operations.doctor.report import PodReport
from operations.doctor.report import Report as DoctorReport
from operations.fleet.report import Report as FleetReport
from operations.privilege_probe.report import Answer
from operations.rollback.plan import Plan
from operations.settings.commands import Explained, Shown
from operations.verify.steps import Report
from sharing_map.report import Status
from testbed.stacks import ROOT
from tests.support.command_tree import commands

MODELS: dict[str, type[BaseModel] | dict[str, type[BaseModel]]] = {
    "bundle": Told,
    "doctor": {"doctor": DoctorReport, "doctor pod": PodReport},
    "fleet": FleetReport,
    "images": Lock,
    "probe-privilege": Answer,
    "rollback": Plan,
    "settings-explain": Explained,
    "settings-show": Shown,
    "status": Status,
    "verify": Report,
}
"""By command; `plan --json-schema` prints its own."""


COMMANDS = commands()
OPERATIONS = sorted(
    name for name, command in COMMANDS.items() if any("--json" in option.opts for option in command.params)
)
"""The commands that print JSON."""


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_documented_schema_is_the_models(name: str, request: pytest.FixtureRequest) -> None:
    models = MODELS[name]
    if isinstance(models, dict):
        schema = {command: model.model_json_schema() for command, model in models.items()}
    else:
        schema = models.model_json_schema()
    file, text = ROOT / "docs" / f"{name}.schema.json", json.dumps(schema, indent=2) + "\n"
    if request.config.getoption("--update-test-data"):
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text, "If this is what you meant: pytest --update-test-data."


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_help_of_json_says_where_its_schema_is(name: str) -> None:
    options = {param.opts[0]: param.help for param in COMMANDS[name].params if isinstance(param.help, str)}
    documented = re.search(r"docs/[a-z-]+\.schema\.json", options["--json"])
    assert "--json-schema" in options or (documented and (ROOT / documented[0]).is_file())


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_page_of_commands_links_it(name: str) -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert f"({name}.schema.json)" in text
