"""What registries are asked of images: over TLS, with the token that everybody is given."""

from collections.abc import Iterator

import httpx2
import pytest

from operations.registry import Content, Reference, Registries
from tests.support.registry_server import Registry, running


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


def test_an_image_for_several_processors_tells_its_index(registry: Registry) -> None:
    digest = registry.index("nvidia/k8s/plugin", "v1", "arm64", "amd64")
    asked = Registries(registry.client)
    assert asked.content(f"{registry.host}/nvidia/k8s/plugin:v1") == Content(digest, ("amd64", "arm64"))
    assert asked.content(f"{registry.host}/nvidia/k8s/plugin@{digest}") == Content(digest, ("amd64", "arm64"))
    assert registry.asked.count("/token") == 1, "one token a repository"


def test_an_image_for_one_processor_tells_its_configurations(registry: Registry) -> None:
    digest = registry.single("kai/binder", "v1", "arm64")
    assert Registries(registry.client).content(f"{registry.host}/kai/binder:v1") == Content(digest, ("arm64",))


def test_what_is_not_there_and_what_is_private_is_told(registry: Registry) -> None:
    registry.private.add("secret/image")
    asked = Registries(registry.client)
    missing, private = (asked.content(f"{registry.host}/{name}:v1") for name in ("no/image", "secret/image"))
    assert missing == Content(problem=f"{registry.host} has no such image")
    assert private == Content(problem=f"{registry.host} shows it only to those who log in")


def test_a_server_in_trouble_is_told_with_its_status(registry: Registry) -> None:
    registry.status = 503
    told = Registries(registry.client).content(f"{registry.host}/any:v1")
    assert told == Content(problem=f"{registry.host} answers with status 503")


def test_another_content_than_the_digest_says_is_refused(registry: Registry) -> None:
    registry.index("kai/binder", "v1", "amd64")
    wanted = "sha256:" + "0" * 64
    registry.content[f"/v2/kai/binder/manifests/{wanted}"] = registry.content["/v2/kai/binder/manifests/v1"]
    told = Registries(registry.client).content(f"{registry.host}/kai/binder:v1@{wanted}")
    assert told.digest == wanted, "what the stack says stands"
    assert "another content" in (told.problem or "")


def test_a_registry_that_is_not_trusted_is_asked_once_and_told(registry: Registry) -> None:
    registry.index("kai/binder", "v1", "amd64")
    with httpx2.Client() as client:
        asked = Registries(client)
        first, second = (asked.content(f"{registry.host}/kai/{name}:v1") for name in ("binder", "admission"))
    assert first.digest is None
    assert f"{registry.host} can't be asked: " in (first.problem or "")
    assert second == first
    assert registry.asked == []


def test_a_registry_that_is_not_there_leaves_the_digest_that_was_said() -> None:
    digest = "sha256:" + "1" * 64
    with httpx2.Client() as client:
        told = Registries(client).content(f"127.0.0.1:1/image:v1@{digest}")
    assert told.digest == digest
    assert "127.0.0.1:1 can't be asked: " in (told.problem or "")


@pytest.mark.parametrize(
    ("image", "address", "tag"),
    [
        ("ubuntu:24.04", "https://registry-1.docker.io/v2/library/ubuntu", "24.04"),
        ("gvirtus/gvirtus", "https://registry-1.docker.io/v2/gvirtus/gvirtus", "latest"),
        ("docker.io/library/ubuntu:24.04", "https://registry-1.docker.io/v2/library/ubuntu", "24.04"),
        ("registry.example.com:5000/a/b:v1", "https://registry.example.com:5000/v2/a/b", "v1"),
        ("localhost/a:v1", "https://localhost/v2/a", "v1"),
        ("ghcr.io/a/b@sha256:" + "0" * 64, "https://ghcr.io/v2/a/b", None),
    ],
)
def test_a_name_is_taken_apart_as_containerd_does(image: str, address: str, tag: str | None) -> None:
    reference = Reference.parse(image)
    assert (reference.address, reference.tag) == (address, tag)
