"""Where a Helm chart and its images come from: official, a mirror, or a folder of an air-gapped site."""

import re
from enum import StrEnum, unique
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from config.images import PATH, REGISTRY, each_once
from config.model import HIDDEN, Name, Settings


@unique
class PullPolicy(StrEnum):
    """Kubernetes' imagePullPolicy. `Never` is for images that were imported into the node's containerd."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


_NO_TEXT = re.compile(
    r"y|n|yes|no|on|off|true|false|null"
    r"|0b[01_]+|0o[0-7_]+|0x[0-9a-f_]+|[0-9][0-9_]*(\.[0-9_]*)?(e[-+]?[0-9]+)?",
    re.ASCII | re.IGNORECASE,
)
"""What Helm's YAML parser takes for a truth value, nothing or a number where no quotes are around it."""


def text_without_quotes(value: str) -> str:
    """Refuse what is no text where a chart's template writes it without quotes, as both charts do with these.

    Such as `namespace: {{ .Release.Namespace }}`, and in KAI's templates/kai-config.yaml the images' tag.
    """
    if _NO_TEXT.fullmatch(value):
        raise PydanticCustomError(
            "no_text_without_quotes",
            "the chart writes it without quotes, where YAML reads a number, true, false or null: Helm would fail. "
            "Choose another one, which can't be read so.",
        )
    return value


ChartName = Annotated[Name, AfterValidator(text_without_quotes)]
"""A name that a chart's templates write into their YAML."""


_RELEASE = re.compile(r"v?(\d+)\.(\d+)\.\d+([-+].*)?", re.ASCII)


def release_line(version: str | None) -> tuple[int, int] | None:
    """Major and minor of a chart's version, such as (0, 18) for v0.18.6.

    None where it is not one release: no version, a range (`~0.18.0`), or upstream's build of a commit (0.0.0-...).
    """
    match = _RELEASE.fullmatch(version or "")
    line = (int(match[1]), int(match[2])) if match else None
    return line if line != (0, 0) else None


_SOURCE = re.compile(rf"oci://{REGISTRY}/{PATH}|https://[^\s/]+(/\S*)?")
_VERSION = re.compile(r"[~^<>=!]{0,2} ?v?[0-9*][0-9A-Za-z.+*~^<>=!|, -]*(?<! )")


def _known_source(value: str) -> str:
    if "@" in value.partition("://")[2].partition("/")[0]:
        raise PydanticCustomError(
            HIDDEN,
            "a login in the address (not shown), which would stand in plain text in Pulumi's state. Write the address "
            "without it; for a chart that needs one, name the archive that `helm pull --username` fetched, or an OCI "
            "registry that `helm registry login` knows",
        )
    if _SOURCE.fullmatch(value) or (value.startswith(("/", "./", "../")) and value.isprintable()):
        return value
    raise PydanticCustomError(
        "chart_source",
        "not a chart source: write an OCI reference without a tag (oci://registry/path/chart), a chart repository "
        "(https://...) or a local chart folder or archive (/path, ./path)",
    )


def _helms_version(value: str) -> str:
    if not _VERSION.fullmatch(value):
        raise PydanticCustomError(
            "chart_version", "not a chart's version: write one, such as v0.18.6, or a range, such as ~0.18.0"
        )
    return value


class ChartSettings(Settings):
    """A chart's source and version; by default the official chart at the version it was checked with."""

    source: (
        Annotated[
            str,
            AfterValidator(_known_source),
            Field(title="chart source", examples=["oci://registry.example.com:5000/charts/name", "./charts/name.tgz"]),
        ]
        | None
    ) = None
    """An OCI reference, a chart repository, or a local folder or archive; by default the official one."""
    version: Annotated[str, AfterValidator(_helms_version), Field(title="chart version")] | None = None
    """The chart's version; by default the one that this program was checked with. A local chart has its own."""

    @model_validator(mode="after")
    def _a_local_chart_has_its_own_version(self) -> Self:
        if self.is_local and self.version is not None:
            raise PydanticCustomError(
                "chart_version", "a local chart carries its own version in Chart.yaml: remove 'version'"
            )
        return self

    @property
    def is_local(self) -> bool:
        """Whether the source is a folder or archive on this machine."""
        return self.source is not None and self.source.startswith(("/", "."))


class ImageSettings(Settings):
    """Where a chart's images are pulled from."""

    registry: (
        Annotated[
            str,
            Field(
                pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]{1,5})?(/[a-z0-9][a-z0-9._-]*)*$",
                title="registry and path",
                examples=["registry.example.com:5000/mirror"],
            ),
            AfterValidator(text_without_quotes),
        ]
        | None
    ) = None
    """Registry and path before the image's name; default: the chart's own."""
    pull_policy: PullPolicy = PullPolicy.IF_NOT_PRESENT
    pull_secrets: Annotated[tuple[ChartName, ...], AfterValidator(each_once), Field(strict=False)] = ()
    """Names of existing docker-registry Secrets in the release's namespace."""
