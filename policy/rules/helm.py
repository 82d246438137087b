"""Charts are pinned, and nothing rewrites what they render."""

import re
from collections.abc import Iterator

from policy.findings import HIDDEN, Told, Violation, told_version
from policy.reading import Hole, Path, dict_of, text_of
from policy.rule import Rule
from policy.stack_platform import StackFacts
from policy.workloads import Document

KINDS = ("Release", "Chart")
_CONTROLLERS = ("HelmChart", "HelmRelease", "Application")
"""Charts that k3s, Flux or Argo CD install."""
_K3S_WHY = {
    "chartContent": "k3s installs the archive as cluster-admin, and nothing judges what is in it",
    "jobImage": "k3s runs this image as cluster-admin to install the chart",
}
_EXACT = re.compile(r"v?\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]+)?")
_LOCAL = ("/", "./", "../")
_IN_REFERENCE = re.compile(r"@sha256:[0-9a-f]{64}$|:v?\d+\.\d+\.\d+[^/]*$")


def _check(document: Document, _: StackFacts) -> Iterator[Violation]:
    root = document.root
    if document.is_kind(*_CONTROLLERS):
        for field in document.fields("chart"):
            yield from _version(field.path[:-1], field.holder)
    if document.is_kind("HelmChart"):
        for key, shown in (("chartContent", Told("a chart as an archive")), ("jobImage", Told("an image of its own"))):
            if value := dict_of(root.get("spec")).get(key):
                path = (*document.path, "spec", key)
                yield Violation(path, value if isinstance(value, Hole) else shown, _K3S_WHY[key])
    if not document.is_kind(*KINDS) or not isinstance(root.get("chart"), str):
        return
    yield from _version(document.path, root)
    for key in ("postrender", "postRenderer"):
        if root.get(key) and not isinstance(root[key], Hole):
            yield Violation(
                (*document.path, key),
                Told(HIDDEN),
                "a program rewrites what the chart renders, after every check",
                "set chart values, or register the object beside the release",
            )
    if root.get("disableOpenapiValidation") is True:
        yield Violation(
            (*document.path, "disableOpenapiValidation"), True, "misspelt security fields are dropped in silence"
        )


def _version(path: Path, release: dict[str, object]) -> Iterator[Violation]:
    chart, version = release.get("chart"), release.get("version") or release.get("targetRevision")
    if not isinstance(chart, str):
        return
    local = chart.startswith(_LOCAL) or chart == "."
    pinned = local or isinstance(version, Hole) or _IN_REFERENCE.search(chart) or _EXACT.fullmatch(text_of(version))
    if not pinned:
        yield Violation(
            (*path, "version"),
            told_version(version),
            "the chart's newest version would be installed, whatever it renders by then",
            "pin one version, such as v0.18.6",
        )


RULE = Rule(
    name="helm",
    title="Charts are pinned to a version, and nothing rewrites what they render.",
    why="a release is one resource to the engine: its pods are seen only through chart, version and values",
    remedy="remove it",
    reads=frozenset(
        {
            f"{kind}:={key}"
            for kind in KINDS
            for key in ("chart", "version", "values", "postrender", "postRenderer", "valueYamlFiles")
        }
    ),
    check=_check,
)
