"""docs/gvirtus.md and its examples agree with each other and with the program."""

import re
from typing import Any

import yaml

from config.gvirtus import BackendKind
from manifests.gvirtus import backends as built
from manifests.gvirtus.injection import NOT_YET, PATH, PATH_TAKEN, VOLUME, VOLUME_TAKEN
from testbed.stacks import ROOT, changed, jetson, parse
from tests.support.docs import blocks

DOCUMENT = (ROOT / "docs/gvirtus.md").read_text(encoding="utf-8")
SNIPPETS: list[Any] = [yaml.safe_load(block.text) for block in blocks(ROOT / "docs/gvirtus.md", "yaml")]
PARTS = [snippet for snippet in SNIPPETS if "gvirtus" in snippet]
CONTAINERFILE = (ROOT / "examples/gvirtus-app/Containerfile").read_text(encoding="utf-8")


def test_the_section_is_a_valid_one_on_the_simulators_nodes() -> None:
    parsed = parse(changed(jetson(), "gvirtus", PARTS[0]["gvirtus"])).gvirtus
    assert parsed is not None
    assert {backend.kind for backend in parsed.backends.values()} == set(BackendKind)
    assert parsed.default == "gpu-a"


def test_what_it_says_of_older_clusters_joins_the_section_to_a_valid_stack() -> None:
    section, carried = PARTS
    stack = changed(jetson(), "gvirtus", section["gvirtus"])
    for key, said in carried.items():
        for name, value in said.items():
            stack = changed(stack, f"{key}.{name}", value)
    assert parse(stack).webhooks == ("reservation", "gvirtus")


def test_application_and_backend_are_built_from_one_image() -> None:
    [base] = re.findall(r"(?m)^FROM docker\.io/(\S+)$", CONTAINERFILE)
    assert PARTS[0]["gvirtus"]["backends"]["gpu-a"]["image"] == base


def test_the_skeleton_links_what_gvirtus_intercepts() -> None:
    [line] = [line for line in CONTAINERFILE.splitlines() if "nvcc" in line and line.startswith("RUN")]
    assert '-L "${GVIRTUS_HOME}/lib/frontend"' in line
    assert "--cudart=shared" in line
    assert "lib/frontend" in next(line for line in CONTAINERFILE.splitlines() if "ENV LD_LIBRARY_PATH" in line)
    assert re.search(r"(?m)^USER [1-9]", CONTAINERFILE), "restricted namespaces take no root"


def test_the_failures_that_it_tells_are_those_that_are_told() -> None:
    assert "`does not know the backends of remote GPUs yet`" in DOCUMENT
    assert "does not know the backends of remote GPUs yet" in NOT_YET
    refusals = [f"the volume name {VOLUME} is taken", f"something else is mounted at {PATH}"]
    for text, message in zip(refusals, (VOLUME_TAKEN, PATH_TAKEN), strict=True):
        assert f"`{text}`" in DOCUMENT
        assert message.startswith(text)
    assert f"at {built.OPEN_FILES_AT_RESTART:,} the liveness probe" in DOCUMENT


def test_every_file_that_it_names_exists() -> None:
    for path in re.findall(r"\]\(\.\./([\w/-]+)\)", DOCUMENT) + re.findall(r"(?m)-f (\S+)$", DOCUMENT):
        assert (ROOT / path).exists(), path
