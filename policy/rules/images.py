"""Every image names what is run: a tag other than latest, or a digest."""

import re
from collections.abc import Iterator

from policy import checks
from policy.findings import Violation, told_image
from policy.reading import dict_of, list_of, text_of
from policy.rule import Rule
from policy.stack_platform import StackFacts
from policy.workloads import Document


def is_pinned(image: str) -> bool:
    """Whether an image reference has a digest, or a tag that is not `latest`."""
    tagged = re.fullmatch(checks.TAGGED, image) and not re.fullmatch(checks.LATEST, image)
    return checks.DIGEST in image or bool(tagged)


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
    why=checks.IMAGES.why,
    remedy=checks.IMAGES.remedy,
    reads=frozenset(),
    check=_check,
    programs=frozenset(
        {"containers.image", "initContainers.image", "ephemeralContainers.image", "volumes.image", "image.reference"}
    ),
)
