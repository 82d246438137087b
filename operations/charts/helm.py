"""Renders charts with helm, as the Kubernetes provider does at `pulumi up`, but without a cluster."""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

import toolchain
from manifests.objects import ChartReference, HelmRelease, Manifest
from operations.charts.files import NOT_YAML, HelmYaml
from operations.errors import OperationError
from toolchain.programs import HELM

_SECONDS = 120
_OF_THE_USER = ("HELM_", "KUBECONFIG")


@dataclass(frozen=True)
class Circumstances:
    """What a chart may ask of the cluster and of the run.

    Attributes:
        kubernetes: the API server's version, such as `1.36.3`.
        apis: what it serves beside Kubernetes' own, such as `monitoring.coreos.com/v1/ServiceMonitor`.
        upgrade: whether the release is there already.
    """

    kubernetes: str
    apis: tuple[str, ...] = ()
    upgrade: bool = False


class RenderingError(OperationError):
    """Helm refuses to render a chart with these values."""


@dataclass(frozen=True)
class Helm:
    """The program.

    Attributes:
        program: its path.
    """

    program: Path

    @classmethod
    def installed(cls) -> "Helm":
        """The toolchain's own.

        Raises:
            ToolchainError: it can't be had. There is no weaker way to look at a chart.
        """
        return cls(toolchain.install(toolchain.CHARTS)[HELM])

    def render(
        self,
        chart: Path,
        release: HelmRelease,
        circumstances: Circumstances,
        *,
        definitions: bool = False,
        schema: bool = True,
    ) -> str:
        """The objects of a release as YAML documents, hooks included, tests not.

        Args:
            chart: folder or archive.
            release: its name, its namespace and what is passed.
            circumstances: what the chart may ask for. `lookup` finds nothing.
            definitions: with the CustomResourceDefinitions below `crds`.
            schema: whether the chart's own schema judges the values.

        Raises:
            RenderingError: helm refuses; the text is helm's.
        """
        command = [
            *(str(self.program), "template", release.name, str(chart.absolute())),
            *("--namespace", release.namespace, "--kube-version", circumstances.kubernetes),
            *("--values", "-", "--skip-tests"),
            *(f"--api-versions={api}" for api in circumstances.apis),
            *(["--is-upgrade"] if circumstances.upgrade else []),
            *(["--include-crds"] if definitions else []),
            *([] if schema else ["--skip-schema-validation"]),
        ]
        try:
            done = _run(command, json.dumps(release.values))
        except subprocess.TimeoutExpired as error:
            raise RenderingError(f"helm did not render {chart} within {_SECONDS} s.") from error
        if done.returncode:
            text = done.stderr.strip().removeprefix("Error: ")
            raise RenderingError(text.removesuffix("Use --debug flag to render out invalid YAML").strip())
        return done.stdout

    def pull(self, source: ChartReference, folder: Path) -> Path:
        """Fetch a chart's archive into an empty folder.

        Raises:
            OperationError: it can't be had; the text names the way without network.
        """
        command = [str(self.program), "pull", source.chart, "--destination", str(folder)]
        command += ["--version", source.version] if source.version else []
        command += ["--repo", source.repository] if source.repository else []
        try:
            done = _run(command)
            why = done.stderr.strip()
        except subprocess.TimeoutExpired:
            why = f"no answer within {_SECONDS} s"
        archives = list(folder.glob("*.tgz"))
        if not archives:
            raise OperationError(
                f"The chart {source.chart} {source.version} can't be fetched: {why}\n"
                "Fetch it where there is network, and name the archive: make images CHARTS=path"
            )
        return archives[0]


def _run(command: Sequence[str], given: str | None = None) -> subprocess.CompletedProcess[str]:
    # The user's own settings of helm and cluster would change what is seen.
    clean = {name: value for name, value in os.environ.items() if not name.startswith(_OF_THE_USER)}
    return subprocess.run(
        command,
        input=given or "",
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_SECONDS,
        check=False,
        env=clean,
    )


def objects(text: str) -> list[Manifest]:
    """The objects of a rendering, and those that a ConfigMap carries for somebody else to apply.

    KAI's Config is one of these: a hook applies it.

    Raises:
        OperationError: it is not YAML.
    """
    manifests: list[Manifest] = []
    try:
        for document in _load(text):
            if isinstance(document, dict):
                manifests += _with_carried(document)
    except NOT_YAML as error:
        raise OperationError(f"What the chart renders is not YAML: {error}") from error
    return manifests


def _load(text: str) -> Iterator[object]:
    yield from yaml.load_all(text, HelmYaml)


def _with_carried(manifest: Manifest) -> Iterator[Manifest]:
    data = manifest.get("data")
    if manifest.get("kind") != "ConfigMap" or not isinstance(data, dict):
        yield manifest
        return
    carried = {name: manifests for name, text in data.items() if (manifests := _manifests_in(text))}
    yield manifest | {"data": {name: text for name, text in data.items() if name not in carried}}
    for manifests in carried.values():
        yield from manifests


def _manifests_in(text: object) -> list[Manifest]:
    if not isinstance(text, str) or "apiVersion:" not in text:
        return []
    try:
        inner = [document for document in _load(text) if document is not None]
    except NOT_YAML:
        # A script or a configuration.
        return []
    whole = all(isinstance(document, dict) and {"apiVersion", "kind"} <= document.keys() for document in inner)
    return cast("list[Manifest]", inner) if whole else []


class Definitions:
    """The CustomResourceDefinitions of a chart: what an API server keeps of an object."""

    def __init__(self, manifests: Iterable[Manifest]) -> None:
        """Take the definitions among the objects."""
        self._schemas: dict[tuple[str, str], Mapping[str, Any]] = {}
        for manifest in manifests:
            if manifest.get("kind") == "CustomResourceDefinition":
                spec = manifest["spec"]
                for version in spec["versions"]:
                    if version["served"]:
                        schema = version.get("schema", {}).get("openAPIV3Schema", {})
                        self._schemas[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema

    def serves(self, api_version: str, kind: str) -> bool:
        """Whether the chart defines it."""
        return (api_version, kind) in self._schemas

    def kept(self, manifest: Manifest) -> Manifest:
        """The object without the fields that an API server would drop."""
        schema = self._schemas.get((str(manifest.get("apiVersion")), str(manifest.get("kind"))))
        if schema is None:
            return manifest
        whole = {name: manifest[name] for name in ("apiVersion", "kind", "metadata") if name in manifest}
        return {**_kept(manifest, schema), **whole}


def _kept(value: Any, schema: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, list):
        return [_kept(item, schema.get("items", {})) for item in value]
    if not isinstance(value, dict):
        return value
    named = schema.get("properties", {})
    others = schema.get("additionalProperties")
    everything = schema.get("x-kubernetes-preserve-unknown-fields", False) or others is True
    result = {}
    for key, item in value.items():
        if key in named:
            result[key] = _kept(item, named[key])
        elif isinstance(others, dict):
            result[key] = _kept(item, others)
        elif everything or schema.get("x-kubernetes-embedded-resource"):
            result[key] = item
    return result


def fields(manifests: Iterable[Manifest]) -> dict[str, str]:
    """Every leaf of the objects by its place."""
    leaves: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for manifest in manifests:
        metadata = manifest.get("metadata") or {}
        name = f"{manifest.get('kind')} {metadata.get('namespace', '')}/{metadata.get('name', '')}"
        seen[name] += 1
        # A hook may make an object again that another one deleted.
        leaves |= _leaves(manifest, name if seen[name] == 1 else f"{name} ({seen[name]})")
    return leaves


def _leaves(value: object, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{place}.{key}")
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{place}[{index}]")
    else:
        yield place, repr(value)
