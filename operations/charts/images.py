"""Every image of a stack: those of its charts as helm renders them, of what the operators start, and our own."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from config.stack import StackSettings
from manifests import every_object
from manifests.objects import HelmRelease, Manifest
from operations.charts.files import read_chart
from operations.charts.helm import Circumstances, Helm, objects
from operations.charts.registry import Content
from operations.errors import OperationError
from toolchain.programs import KUBERNETES_VERSION
from toolchain.progress import progress

_VIRTUAL_MACHINES = (
    "ccManager",
    "kataManager",
    "kataSandboxDevicePlugin",
    "sandboxDevicePlugin",
    "vfioManager",
    "vgpuDeviceManager",
    "vgpuManager",
)
"""Operands for virtual machines: enabled by default, and started only with `sandboxWorkloads.enabled` (GPU Operator
v26.7.0, controllers/state_manager.go)."""
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
OWN = "kai-anywhere"
"""Who starts an image that no chart has."""


@dataclass(frozen=True)
class Image:
    """An image that a stack needs.

    Attributes:
        image: its name as the nodes pull it.
        used_by: the release that starts it, or `kai-anywhere`; sorted.
        digest: what the tag stood for, or None where no registry told it.
        architectures: what it is for; empty where no registry told it.
        problem: why the registry did not tell, or None.
    """

    image: str
    used_by: tuple[str, ...]
    digest: str | None = None
    architectures: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def pinned(self) -> str:
        """The repository with the digest where that is known, without the tag: skopeo does not take both."""
        if self.digest is None:
            return self.image
        name = self.image.partition("@")[0]
        repository, _, tag = name.rpartition(":")
        return f"{repository if repository and '/' not in tag else name}@{self.digest}"

    @property
    def name(self) -> str:
        """The last part of the name with its tag: what follows `images.registry` in a stack's settings."""
        return self.image.partition("@")[0].rpartition("/")[2]


def images(settings: StackSettings, charts: Iterable[Path], root: Path, helm: Helm) -> tuple[Image, ...]:
    """The images of a stack, sorted by name, without digests.

    Args:
        settings: the stack's.
        charts: folders or archives to take in place of what the stack's chart sources say.
        root: where the stack's relative paths begin.
        helm: renders the charts, and fetches those that are not here.

    Raises:
        OperationError: a chart can't be had or rendered, or is none of the stack's.
    """
    releases = every_object.releases(settings)
    given = {chart.name: chart.path for chart in map(read_chart, charts)}
    if unknown := given.keys() - releases.keys():
        raise OperationError(
            f"The stack has no chart {', '.join(sorted(unknown))}; it has {', '.join(sorted(releases))}."
        )
    circumstances = Circumstances(settings.cluster.kubernetes_version or KUBERNETES_VERSION)
    users: dict[str, set[str]] = {}
    for name, release in releases.items():
        with _chart(given.get(name), release, root, helm) as chart:
            for image in named(objects(helm.render(chart, release, circumstances))):
                users.setdefault(image, set()).add(name)
    for image in named(every_object.objects(settings).values()):
        users.setdefault(image, set()).add(OWN)
    return tuple(Image(image, tuple(sorted(by))) for image, by in sorted(users.items()))


def named(manifests: Iterable[Manifest]) -> Iterator[str]:
    """The images that objects name: of containers, and of what KAI's Config and the ClusterPolicy have started."""
    for manifest in manifests:
        sandboxes = ((manifest.get("spec") or {}).get("sandboxWorkloads") or {}).get("enabled", False)
        if manifest.get("kind") == "ClusterPolicy" and not sandboxes:
            spec = {name: part for name, part in manifest["spec"].items() if name not in _VIRTUAL_MACHINES}
            yield from _named(spec)
        elif manifest.get("kind") != "CustomResourceDefinition":
            yield from _named(manifest)


def _named(value: object) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _named(item)
    elif isinstance(value, Mapping):
        if value.get("enabled") is False or _is_off(value.get("service")):
            return
        yield from _of(value)
        for key, item in value.items():
            if key in _CONTAINERS and isinstance(item, list):
                yield from (container["image"] for container in item if isinstance(container.get("image"), str))
            yield from _named(item)


def _is_off(service: object) -> bool:
    """Whether a part of KAI's Config is switched off, and with it what stands beside its switch."""
    return isinstance(service, Mapping) and service.get("enabled") is False


def _of(value: Mapping[str, Any]) -> Iterator[str]:
    for name, version in (("image", "version"), ("name", "tag")):
        parts = [value.get(key) for key in ("repository", name, version)]
        if all(isinstance(part, str) and part for part in parts):
            repository, image, tag = parts
            yield f"{repository}/{image}{'@' if str(tag).startswith('sha256:') else ':'}{tag}"


@contextmanager
def _chart(given: Path | None, release: HelmRelease, root: Path, helm: Helm) -> Iterator[Path]:
    source = release.source
    if given is not None:
        yield given
    elif source.version is None:
        yield root / source.chart
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield helm.pull(source, Path(folder))


def with_digests(listed: Iterable[Image], ask: Callable[[str], Content]) -> tuple[Image, ...]:
    """The images with what their registries tell of them."""
    listed = tuple(listed)
    completed = []
    with progress("asking registries", len(listed), lambda done, total: f"{done} of {total} images") as advance:
        for image in listed:
            content = ask(image.image)
            completed.append(Image(image.image, image.used_by, content.digest, content.architectures, content.problem))
            advance(1)
    return tuple(completed)


def table(listed: Iterable[Image]) -> str:
    """For a person: name, processors, who starts it, digest; then why something is not told."""
    listed = tuple(listed)
    rows = [("IMAGE", "ARCHITECTURES", "USED BY", "DIGEST")]
    rows += [
        (image.image, " ".join(image.architectures) or "not told", ", ".join(image.used_by), image.digest or "not told")
        for image in listed
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows
    ]
    problems = dict.fromkeys(f"without digest: {image.image}: {image.problem}" for image in listed if image.problem)
    return "\n".join((*lines, *problems))


class LockedImage(BaseModel, extra="forbid", frozen=True):
    """An image in the lock file.

    Attributes:
        image: its name as the nodes pull it.
        used_by: the release that starts it, or `kai-anywhere`; sorted.
        digest: what the tag stood for, or null where no registry told it.
        architectures: what it is for; empty where no registry told it.
        problem: why the registry did not tell, or null.
        pinned: the repository with the digest where that is known, without the tag.
        name: the last part of the name with its tag: what follows `images.registry` in a stack's settings.
    """

    image: str
    used_by: tuple[str, ...]
    digest: str | None
    architectures: tuple[str, ...]
    problem: str | None
    pinned: str
    name: str


class Lock(BaseModel, extra="forbid", frozen=True):
    """What the lock file holds, and `--json` prints.

    Attributes:
        stack: whose images they are.
        images: sorted by name.
    """

    stack: str
    images: tuple[LockedImage, ...]


def lock(stack: str, listed: Iterable[Image]) -> str:
    """The same for programs: a `Lock` as JSON."""
    locked = tuple(LockedImage(**asdict(image), pinned=image.pinned, name=image.name) for image in listed)
    return Lock(stack=stack, images=locked).model_dump_json(indent=2) + "\n"
