"""Every image names what is run: a tag other than latest, or a digest."""

import re
from collections.abc import Iterator

from policy.findings import Violation, told_image
from policy.reading import dict_of, list_of, text_of
from policy.rule import Rule
from policy.stack_platform import StackFacts
from policy.workloads import Document


_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")


def is_pinned(image: str) -> bool:
    """Whether an image reference has a digest, or a tag that is not `latest`."""
    if _DIGEST.search(image):
        return True
    tag = image.rpartition("/")[2].partition(":")[2]
    return bool(tag) and tag != "latest"


def _check(document: Document, _: StackFacts) -> Iterator[Violation]:
    for pod in document.pods:
        for path, container in pod.containers():
            image = container.get("image")
            if isinstance(image, str) and image and not is_pinned(image):
                yield Violation((*path, "image"), told_image(image))
        for index, volume in enumerate(list_of(pod.spec.get("volumes"))):
            reference = text_of(dict_of(dict_of(volume).get("image")).get("reference"))
            if reference and not is_pinned(reference):
                yield Violation((*pod.path, "volumes", index, "image", "reference"), told_image(reference))
    for field in document.fields("tag"):
        # How charts take an image apart.
        if field.value == "latest" and "repository" in field.holder:
            yield Violation(field.path, field.value)


RULE = Rule(
    name="images",
    title="Every image has a tag other than latest, or a digest.",
    why="what runs tomorrow would not be what was reviewed today",
    remedy="add a tag, or better a digest (@sha256:...)",
    reads=frozenset({"containers.image", "initContainers.image", "ephemeralContainers.image"}),
    check=_check,
)
