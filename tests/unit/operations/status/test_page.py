"""The page: one file, for everybody, and nothing of the cluster is markup there."""

import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from typing_extensions import override

from cluster.access.lists import Unseen
from operations.status.markup import Markup, element, joined
from operations.status.page import page
from sharing_map.report import Status
from testbed.shared_gpus import gpu_node, queue, reservation, share, waiting
from tests.unit.sharing_map.clusters import status_of

_VOID = {"meta", "input", "link", "br", "img"}


class _Read(HTMLParser):
    """A page's elements: name, attributes and the text below each."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, Mapping[str, str | None], list[str]]] = []
        self._open: list[tuple[str, list[str]]] = []
        self.feed(text)
        self.close()
        assert self._open == [], "every element is closed"

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        texts: list[str] = []
        self.elements.append((tag, dict(attrs), texts))
        if tag not in _VOID:
            self._open.append((tag, texts))

    @override
    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    @override
    def handle_data(self, data: str) -> None:
        for _, texts in self._open:
            texts.append(data)

    def all(self, name: str) -> list[tuple[Mapping[str, str | None], str]]:
        return [(attributes, "".join(texts)) for tag, attributes, texts in self.elements if tag == name]


def _busy(nodes: int = 1) -> Status:
    return status_of(
        nodes=[gpu_node(f"jetson-{index}") for index in range(1, nodes + 1)],
        pods=[reservation("g"), *(share(f"arm-{index}", "g") for index in range(4)), waiting("arm-4")],
        queues=[queue("all"), queue("robots", "all", quota=1)],
    )


def test_the_page_says_what_the_terminal_says() -> None:
    read = _Read(page(_busy()))
    [(_, heading)] = read.all("h1")
    assert heading == "GPU sharing on lab"
    text = "".join(text for _, text in read.all("main"))
    for said in ("120,000 MiB are taken", "robots/arm-0", "30000 MiB", "no node has the GPU memory", "GPU-1111"):
        assert said in text
    assert "metadata.annotations[gpu-memory]" in text, "what proves it"
    assert ("2026-11-01T10:00:00Z", "2d") in [(attributes["datetime"], said) for attributes, said in read.all("time")]


def test_a_gpu_that_is_promised_twice_takes_nothing_from_what_is_free_on_its_node() -> None:
    """As in the terminal's sum, and for Prometheus."""
    pods = [reservation("g"), share("a", "g", mib=100000), share("b", "g", mib=100000)]
    text = page(status_of(nodes=[gpu_node("jetson-1", gpus=2)], pods=pods))
    said = [words for attributes, words in _Read(text).all("span") if attributes.get("class") == "said"]
    assert [words.split(", ")[1] for words in said] == ["131000 MiB free"]


def test_every_table_has_a_caption_and_every_heading_cell_a_scope() -> None:
    read = _Read(page(_busy()))
    assert len(read.all("table")) == len(read.all("caption")) > 3
    assert all(text for _, text in read.all("caption"))
    assert {attributes.get("scope") for attributes, _ in read.all("th")} == {"row", "col"}


def test_pictures_buttons_and_fields_have_names() -> None:
    read = _Read(page(_busy()))
    pictures = read.all("svg")
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes, _ in pictures)
    assert "120000 of 131000 MiB taken, 11000 free" in {attributes["aria-label"] for attributes, _ in pictures}
    labels = {attributes["for"] for attributes, _ in read.all("label")}
    assert {attributes["id"] for attributes, _ in read.all("input")} == labels
    assert all(text for _, text in read.all("button"))
    assert [attributes["lang"] for attributes, _ in read.all("html")] == ["en"]


def test_headings_skip_no_level() -> None:
    levels = [int(tag[1]) for tag, _, _ in _Read(page(_busy(3))).elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_no_identifier_is_given_twice() -> None:
    identifiers = [attributes["id"] for _, attributes, _ in _Read(page(_busy(3))).elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))


def test_the_page_needs_nothing_else() -> None:
    for _, attributes, _ in _Read(page(_busy())).elements:
        assert not {"src", "srcset", "action", "style", "onclick", "onload"} & attributes.keys()
        assert (attributes.get("href") or "#").startswith("#")


def test_the_policy_allows_the_pages_own_style_and_script_and_nothing_more() -> None:
    read = _Read(page(_busy()))
    [policy] = [
        attributes["content"] or ""
        for attributes, _ in read.all("meta")
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    [(_, style)], [(_, script)] = read.all("style"), read.all("script")
    hashes = [b64encode(sha256(text.encode()).digest()).decode() for text in (style, script)]
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; base-uri 'none'; "
        "form-action 'none'"
    )
    assert "connect-src 'self'" in page(_busy(), refresh_seconds=5)


@pytest.mark.parametrize("evil", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</script>$title&lt;"])
def test_nothing_of_the_cluster_is_markup(evil: str) -> None:
    harmless = _Read(page(_hostile("x"))).elements
    read = _Read(page(_hostile(evil)))
    assert [(tag, attributes.keys()) for tag, attributes, _ in read.elements] == [
        (tag, attributes.keys()) for tag, attributes, _ in harmless
    ]
    text = "".join(text for _, text in read.all("main"))
    assert text.count(evil) > 5


def _hostile(text: str) -> Status:
    node = gpu_node(text, labels={"kai-anywhere.io/platform": text, "nvidia.com/gpu.memory": text})
    held = reservation(text, node=text, uuid=text)
    pods = [held, share(text, text, node=text), waiting(f"{text} waits", message=text)]
    status = status_of(nodes=[node], pods=pods, queues=[queue(text, used="1")], unseen=[Unseen("leases", text)])
    return status.model_copy(update={"context": text, "server": text})


def test_few_nodes_are_unfolded_and_many_are_folded() -> None:
    def unfolded(nodes: int) -> int:
        read = _Read(page(_busy(nodes)))
        there = [attributes for attributes, _ in read.all("details") if str(attributes["id"]).startswith("node-")]
        assert len(there) == nodes
        return sum("open" in attributes for attributes in there)

    assert (unfolded(8), unfolded(9)) == (8, 0)


def test_what_was_not_seen_and_what_is_old_is_said_at_the_top() -> None:
    status = status_of(nodes=[gpu_node("jetson-1")], unseen=[Unseen("pods", "refused <b>")])
    text = "".join(text for _, text in _Read(page(status, away="No answer")).all("main"))
    assert text.index("No answer") < text.index("pods: refused <b>") < text.index("Nodes")
    assert "Not seen" not in page(_busy())


def test_without_a_script_nothing_is_missing_but_the_tools() -> None:
    read = _Read(page(_busy()))
    assert [attributes.get("id") for _, attributes, _ in read.elements if "hidden" in attributes] == [None, "pause"]
    [tools] = [attributes for attributes, _ in read.all("div") if attributes.get("class") == "tools"]
    assert "hidden" in tools


def test_text_is_escaped_and_markup_is_not() -> None:
    assert element("p", "a < b", element("b", "c"), class_="x", data_y='"', open="", none=None) == (
        '<p class="x" data-y="&quot;" open>a &lt; b<b>c</b></p>'
    )
    assert joined("<", Markup("<i></i>")) == "&lt;<i></i>"
