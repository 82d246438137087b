"""What registries are asked of images, by the real crane."""

from collections.abc import Iterator

import pytest

from operations.charts.registry import Content, Registries
from tests.support.registry_server import Registry, archive, file, running
from toolchain.registry import Crane


@pytest.fixture(scope="module")
def server() -> Iterator[Registry]:
    with running() as registry:
        yield registry


@pytest.fixture
def registry(server: Registry) -> Registry:
    """The registry, empty again."""
    server.asked.clear()
    server.content.clear()
    server.private.clear()
    server.status = None
    return server


@pytest.fixture
def asked() -> Registries:
    """The question, which is new in each test."""
    return Registries(Crane.installed())


def test_an_image_for_several_processors_tells_its_index(registry: Registry, asked: Registries) -> None:
    digest = registry.index("nvidia/k8s/plugin", "v1", "arm64", "amd64")
    assert asked.content(f"{registry.host}/nvidia/k8s/plugin:v1") == Content(digest, ("amd64", "arm64"))
    assert asked.content(f"{registry.host}/nvidia/k8s/plugin@{digest}") == Content(digest, ("amd64", "arm64"))


def test_an_image_for_one_processor_tells_its_configurations(registry: Registry, asked: Registries) -> None:
    digest = registry.image("kai/binder", "v1", archive([file("app")]), architecture="arm64")
    assert asked.content(f"{registry.host}/kai/binder:v1") == Content(digest, ("arm64",))


def test_what_is_not_there_and_what_is_private_is_told(registry: Registry, asked: Registries) -> None:
    registry.private["secret/image"] = None
    missing, private = (asked.content(f"{registry.host}/{name}:v1") for name in ("no/image", "secret/image"))
    assert missing == Content(problem=f"{registry.host} has no such image")
    assert private == Content(problem=f"{registry.host} shows it only to those who log in")


def test_a_server_in_trouble_is_told_with_its_status(registry: Registry, asked: Registries) -> None:
    registry.status = 418
    content = asked.content(f"{registry.host}/any:v1")
    assert content.digest is None
    assert (content.problem or "").startswith(f"{registry.host} answers: unexpected status code 418")


def test_another_content_than_the_digest_says_is_refused(registry: Registry, asked: Registries) -> None:
    registry.index("kai/binder", "v1", "amd64")
    digest = "sha256:" + "0" * 64
    registry.content[f"/v2/kai/binder/manifests/{digest}"] = registry.content["/v2/kai/binder/manifests/v1"]
    content = asked.content(f"{registry.host}/kai/binder:v1@{digest}")
    assert content.digest == digest, "what the stack says stands"
    assert "does not match" in (content.problem or "")


def test_what_is_no_manifest_is_told_and_has_no_digest_to_copy_by(registry: Registry, asked: Registries) -> None:
    registry.content["/v2/kai/binder/manifests/v1"] = ("application/vnd.oci.image.index.v1+json", b"<html>")
    content = asked.content(f"{registry.host}/kai/binder:v1")
    assert content == Content(problem=f"{registry.host} answers with something that is no manifest")


def test_a_registry_that_can_not_be_reached_is_asked_once(asked: Registries) -> None:
    digest = "sha256:" + "1" * 64
    first = asked.content(f"127.0.0.1:1/image:v1@{digest}")
    assert first.digest == digest, "what the stack says stands"
    assert "127.0.0.1:1 can't be asked: " in (first.problem or "")
    asked = Registries(Crane(asked.crane.program.with_name("no such program")), asked._unreachable)
    assert asked.content("127.0.0.1:1/other:v1") == Content(problem=first.problem)
