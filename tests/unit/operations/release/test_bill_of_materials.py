"""Bills of materials: valid by CycloneDX's own schema, complete, and the same for the same commit."""

import json
import re

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from operations.errors import OperationError
from operations.release.bill_of_materials import bill, of_folder
from testbed.stacks import ROOT

BILLS = of_folder(ROOT, "1.2.3")
_REQUIREMENTS = {
    "kai-anywhere": "requirements.txt",
    "agents": "agents/admission/requirements.txt",
    "metrics": "agents/metrics/requirements.txt",
}


@pytest.mark.parametrize("name", _REQUIREMENTS)
def test_a_bill_is_valid_by_the_schema_of_its_form(name: str) -> None:
    judge = JsonStrictValidator(SchemaVersion.V1_6)
    assert judge.validate_str(json.dumps(BILLS[name])) is None
    assert judge.validate_str(json.dumps(BILLS[name] | {"specVersion": 16})) is not None


@pytest.mark.parametrize("name", _REQUIREMENTS)
def test_a_bill_has_every_package_and_every_hash_of_its_requirements(name: str) -> None:
    text = (ROOT / _REQUIREMENTS[name]).read_text(encoding="utf-8")
    packages = [part for part in BILLS[name]["components"] if part["type"] == "library"]
    assert [f"{part['name']}=={part['version']}" for part in packages] == re.findall(r"(?m)^\S+==[^\s;]+", text)
    hashes = [digest["content"] for part in packages for digest in part["externalReferences"][0]["hashes"]]
    assert sorted(hashes) == sorted(re.findall(r"sha256:([0-9a-f]{64})", text))
    assert {part["properties"][0]["value"] for part in packages if "properties" in part} == set(
        re.findall(r" ; (.+?) \\", text)
    )


def test_an_image_has_its_base_by_digest_and_the_program_has_none() -> None:
    for name in ("agents", "metrics"):
        [base] = [part for part in BILLS[name]["components"] if part["type"] == "container"]
        assert base["purl"].startswith("pkg:oci/python@sha256%3A")
        assert base["hashes"][0]["content"] in base["purl"]
    assert {part["type"] for part in BILLS["kai-anywhere"]["components"]} == {"library"}


def test_every_image_that_is_published_has_a_bill() -> None:
    built = {path.parent.name for path in (ROOT / "agents").rglob("Containerfile")}
    assert BILLS.keys() - {"kai-anywhere"} == built


def test_the_same_commit_has_the_same_bill_and_another_version_another_number() -> None:
    assert of_folder(ROOT, "1.2.3") == BILLS
    numbers = {bill["serialNumber"] for bill in (*BILLS.values(), *of_folder(ROOT, "1.2.4").values())}
    assert len(numbers) == 6


@pytest.mark.parametrize(
    ("requirements", "containerfile", "problem"),
    [
        ("a==1 \\\n", None, "'a==1 .*' is no requirement with a hash"),
        ("a>=1 \\\n    --hash=sha256:" + "0" * 64, None, "is no requirement with a hash"),
        ("a==1 \\\n    --hash=sha256:" + "0" * 64, "ARG BASE=python:3.13\n", "is not pinned by a digest"),
    ],
)
def test_what_is_not_pinned_is_an_error(requirements: str, containerfile: str | None, problem: str) -> None:
    with pytest.raises(OperationError, match=problem):
        bill("a", "1", requirements, containerfile)
