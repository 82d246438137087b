"""The document that `configure` reads: what is refused, and in which words."""

import json
from collections.abc import Callable

import pytest

import agents.host.desired
from agents.host.desired import Desired, Toolkit, parse
from agents.host.errors import BadInputError
from config.cluster import Distribution
from tests.support.hosts.roots import Board, desired


def _parsed(document: object) -> Desired:
    return parse(json.dumps(document).encode())


@pytest.mark.parametrize("board", Board)
def test_a_document_for_each_board_is_taken(board: Board) -> None:
    assert _parsed(desired(board)).platform == board.platform


def test_a_document_for_each_distribution_is_taken() -> None:
    assert set(agents.host.desired.DISTRIBUTIONS) == set(Distribution)


def test_what_may_be_left_out_is_off() -> None:
    document = _parsed(
        {"version": 1, "platform": "x86", "toolkit": {"owner": "host", "mode": "auto"}, "distribution": "k3s"}
    )
    assert (document.docker.configure, document.cdi.generate, document.images, document.restart_seconds) == (
        False,
        False,
        (),
        120,
    )


def test_the_example_in_the_modules_own_words_is_taken() -> None:
    [example] = [line for line in (agents.host.desired.__doc__ or "").splitlines() if line.startswith("    {")]
    assert parse(example.encode()).toolkit == Toolkit("host", "csv")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.update(version=2), "version: 2 is not known"),
        (lambda d: d.update(version=True), "version: True is not known"),
        (lambda d: d.update(platform="jetson"), "platform: 'jetson' is not allowed. Allowed: tegra, spark, x86"),
        (lambda d: d.update(plattform="x"), "unknown key 'plattform'. Allowed: version, platform"),
        (lambda d: d.pop("toolkit"), "the key 'toolkit' is missing"),
        (lambda d: d["toolkit"].update(mode="foo"), "toolkit.mode: 'foo' is not allowed. Allowed: auto, csv"),
        (lambda d: d["toolkit"].update(mode=["auto"]), "toolkit.mode: ['auto'] is not allowed"),
        (lambda d: d["toolkit"].update(mode="csv"), "'csv' exists on Tegra only, and platform is 'x86'"),
        (lambda d: d["toolkit"].update(owner="both"), "toolkit.owner: 'both' is not allowed"),
        (lambda d: d.update(distribution="openshift"), "distribution: 'openshift' is not allowed"),
        (lambda d: d.update(docker=[]), "docker: [] is not an object"),
        (lambda d: d["docker"].update(configure=1), "docker.configure: 1 is neither true nor false"),
        (lambda d: d["docker"].update(default_runtime=True), "needs docker.configure"),
        (lambda d: d["cdi"].update(generate=1), "cdi.generate: 1 is neither true nor false"),
        (lambda d: d["cdi"].update(uuid_names=True), "cdi: unknown key 'uuid_names'. Allowed: generate"),
        (lambda d: d.update(images={}), "images: must be a list"),
        (lambda d: d.update(images=[{"reference": "-o/etc/x"}]), "images[0].reference: '-o/etc/x' is not"),
        (lambda d: d.update(images=[{"reference": "a b"}]), "images[0].reference: 'a b' is not"),
        (lambda d: d.update(images=["kai:1"]), "images[0]: 'kai:1' is not an object"),
        (lambda d: d["restart"].update(timeout_seconds=0), "restart.timeout_seconds: 0 is not"),
        (lambda d: d["restart"].update(timeout_seconds="60"), "restart.timeout_seconds: '60' is not"),
        (
            lambda d: d.update(toolkit={"owner": "operator", "mode": "auto"}, docker={"configure": True}),
            "'operator' installs the toolkit in the cluster",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place_and_what_is_allowed(
    change: Callable[[dict[str, object]], object], says: str
) -> None:
    document = desired(Board.X86)
    change(document)
    with pytest.raises(BadInputError) as caught:
        _parsed(document)
    assert says in caught.value.message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "content",
    [b"", b"no", b"[1]", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"version": 1, "version": 1}', b" " * (1 << 21)],
)
def test_what_is_no_document_is_refused(content: bytes) -> None:
    with pytest.raises(BadInputError):
        parse(content)


def test_an_image_named_twice_is_imported_once() -> None:
    twice = _parsed(desired(Board.X86, images=[{"reference": "kai/binder:1"}, {"reference": "kai/binder:1"}]))
    assert twice.images == ("kai/binder:1",)
