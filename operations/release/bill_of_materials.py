"""Bills of materials in CycloneDX's form: what the program and the images are made of, from the hashed requirements.

A registry's own bill (`docker buildx --sbom`) lies beside each image; these can be read without a registry, and are the
same for the same commit.
"""

import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from operations.errors import OperationError

Component: TypeAlias = Mapping[str, Any]

_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;\\]+)\s*(;\s*(?P<marker>[^\\]*?))?\s*\\"
)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_BASE = re.compile(r"ARG BASE=(?P<name>[^\s:@]+(?:/[^\s:@]+)*):(?P<tag>[\w.-]+)@sha256:(?P<digest>[0-9a-f]{64})")
_NAMES = uuid.UUID("6b0a2b5e-2f7b-5d0b-9b0e-0d6f3d1a7c11")
"""Of the serial numbers, so that one bill has always the same."""


def bill(name: str, version: str, requirements: str, containerfile: str | None = None) -> dict[str, Any]:
    """The bill of one thing that is published.

    Args:
        name: what it is called.
        version: its own.
        requirements: text of its hashed requirements.
        containerfile: of an image, whose base is a part of it.

    Raises:
        OperationError: if a requirement has no hash, or the base no digest.
    """
    parts = [*_packages(requirements), *(_base(containerfile) if containerfile is not None else ())]
    own = f"{name}@{version}"
    references = [part["bom-ref"] for part in parts]
    kind = "application" if containerfile is None else "container"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMES, ' '.join([own, *references]))}",
        "version": 1,
        "metadata": {"component": {"type": kind, "bom-ref": own, "name": name, "version": version}},
        "components": parts,
        "dependencies": [{"ref": own, "dependsOn": references}],
    }


def of_folder(root: Path, version: str) -> dict[str, dict[str, Any]]:
    """The bills of the program and of each image of a checkout, by name."""
    bills = {"kai-anywhere": bill("kai-anywhere", version, _text(root / "requirements.txt"))}
    for name, folder, own in (
        ("agents", "agents", "agents/admission"),
        ("metrics", "agents/metrics", "agents/metrics"),
    ):
        requirements = _text(root / own / "requirements.txt")
        bills[name] = bill(f"kai-anywhere-{name}", version, requirements, _text(root / folder / "Containerfile"))
    return bills


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def _packages(requirements: str) -> Iterator[dict[str, Any]]:
    lines = "".join(line for line in requirements.splitlines(keepends=True) if not line.lstrip().startswith("#"))
    for entry in re.split(r"\n(?=\S)", lines.strip()):
        match, hashes = _REQUIREMENT.match(entry), _HASH.findall(entry)
        if match is None or not hashes:
            raise OperationError(f"{entry.splitlines()[0]!r} is no requirement with a hash: run make requirements.")
        name, version = re.sub(r"[-_.]+", "-", match["name"]).lower(), match["version"]
        purl = f"pkg:pypi/{name}@{version}"
        package = {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": version,
            "purl": purl,
            # A package has several files, each with its hash.
            "externalReferences": [
                {
                    "type": "distribution",
                    "url": f"https://pypi.org/project/{name}/{version}/",
                    "hashes": [{"alg": "SHA-256", "content": content} for content in sorted(hashes)],
                }
            ],
        }
        if match["marker"]:
            package |= {"scope": "optional", "properties": [{"name": "python:marker", "value": match["marker"]}]}
        yield package


def _base(containerfile: str) -> Iterator[dict[str, Any]]:
    match = _BASE.search(containerfile)
    if match is None:
        raise OperationError("The Containerfile's base is not pinned by a digest: write ARG BASE=name:tag@sha256:...")
    repository = match["name"].rpartition("/")[2]
    purl = f"pkg:oci/{repository}@sha256%3A{match['digest']}?repository_url={match['name']}&tag={match['tag']}"
    yield {
        "type": "container",
        "bom-ref": purl,
        "name": match["name"],
        "version": match["tag"],
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": match["digest"]}],
    }
