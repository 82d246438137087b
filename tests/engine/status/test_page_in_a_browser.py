"""The page of `kai-anywhere status` in a headless Chromium: on a phone and a desk, light and dark, by keyboard."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from operations.status import server as status_server
from operations.status.page import page
from operations.status.server import Latest, Server
from sharing_map.report import Status
from testbed.shared_gpus import gpu_node, queue, reservation, share, waiting
from testbed.waiting import eventually
from tests.support import browser as browsers
from tests.support.browser import ENTER, NARROW, SPACE, TAB, WIDE, Browser
from tests.unit.sharing_map.clusters import status_of

pytestmark = [
    pytest.mark.skipif(bool(browsers.missing()), reason=browsers.missing() or "there is a browser"),
]

_READABLE = 4.5
"""WCAG 2.2, success criterion 1.4.3: the contrast of text."""


def _busy(nodes: int) -> Status:
    groups = [f"g-{index}" for index in range(1, nodes + 1)]
    shared = [reservation(group, node=f"jetson-{index}") for index, group in enumerate(groups, start=1)]
    pods = [
        share(f"arm-{index}-{place}", group, node=f"jetson-{index}")
        for index, group in enumerate(groups, start=1)
        for place in range(4)
    ]
    return status_of(
        nodes=[gpu_node(f"jetson-{index}") for index in range(1, nodes + 1)],
        pods=[*shared, *pods, waiting("arm-that-waits")],
        queues=[queue("all"), queue("robots", "all", quota=1)],
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsers.chromium() as started:
        yield started


@pytest.fixture(scope="module", params=[1, 1000], ids=["one-node", "a-thousand-nodes"])
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page as `--html` writes it."""
    written = tmp_path_factory.mktemp("page") / "map.html"
    written.write_text(page(_busy(request.param)), encoding="utf-8")
    return written


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_the_page_fits_its_window_and_every_text_can_be_read(
    browser: Browser, file: Path, width: int, *, dark: bool
) -> None:
    browser.look(width=width, dark=dark)
    browser.open(file.as_uri())
    assert browser.sideways() == 0
    contrasts = browser.contrasts()
    assert len(contrasts) > 10
    assert {text: ratio for text, ratio in contrasts.items() if ratio < _READABLE} == {}
    assert browser.complaints() == [], "no script failed, and the page's own policy refused nothing"


def test_on_a_phone_one_sees_why_a_pod_waits_without_scrolling_sideways(browser: Browser, file: Path) -> None:
    browser.look(width=NARROW, dark=False)
    browser.open(file.as_uri())
    browser.js("document.getElementById('pending').open = true;")
    right = browser.js("return document.querySelector('#pending td.why').getBoundingClientRect().right;")
    assert 0 < right <= NARROW


def test_dark_and_light_are_two_pages(browser: Browser, file: Path) -> None:
    papers = set()
    for dark in (False, True):
        browser.look(width=WIDE, dark=dark)
        browser.open(file.as_uri())
        papers.add(browser.js("return getComputedStyle(document.body).backgroundColor;"))
    assert len(papers) == 2


def test_all_that_has_the_focus_has_a_name_for_a_screen_reader(browser: Browser, file: Path) -> None:
    browser.open(file.as_uri())
    assert browser.unnamed() == []
    browser.js("document.getElementById('filter').previousElementSibling.remove();")
    assert browser.unnamed() == ["searchbox"], "the check sees a field that lost its label"


def test_the_keyboard_alone_finds_a_node_and_opens_it(browser: Browser, file: Path) -> None:
    browser.look(width=WIDE, dark=False)
    browser.open(file.as_uri())
    browser.press(TAB)
    assert browser.focused() == "a", "the first thing skips to the map"
    browser.press(TAB)
    assert browser.focused() == "input#filter"
    outline = browser.js("return getComputedStyle(document.activeElement).outlineStyle;")
    assert outline == "solid", "one sees where the focus is"
    browser.press(*"jetson-1 arm-1-0")
    eventually(lambda: str(browser.js("return document.getElementById('shown').textContent;")).startswith("1 of "))
    browser.press(TAB, TAB)
    assert browser.focused() == "button#close"
    browser.press(SPACE)
    browser.press(TAB)
    while browser.focused() != "summary#node-jetson-1":
        assert browser.focused() != "body", "the end was reached without it"
        browser.press(TAB)
    assert _open(browser, "node-jetson-1") is False
    browser.press(ENTER)
    assert _open(browser, "node-jetson-1") is True


def test_a_page_that_is_served_is_fresh_and_keeps_what_its_reader_has_open(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_server, "REFRESH_SECONDS", 1)
    pods = ["arm-0"]

    def read() -> Status:
        return status_of(nodes=[gpu_node("jetson-1")], pods=[reservation("g"), *(share(name, "g") for name in pods)])

    with Server(Latest(read), 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            browser.look(width=WIDE, dark=False)
            browser.open(server.address)
            browser.js("document.querySelector('#node-jetson-1 summary').focus();")
            browser.press(ENTER)
            closed = _open(browser, "node-jetson-1")
            pods.append("arm-that-came-later")
            eventually(lambda: "arm-that-came-later" in browser.js("return document.body.textContent;"))
            assert _open(browser, "node-jetson-1") is closed
            assert browser.focused() == "summary#node-jetson-1"
            assert browser.complaints() == []
        finally:
            server.shutdown()
            thread.join()


def _open(browser: Browser, node: str) -> bool:
    return bool(browser.js("return document.getElementById(arguments[0]).open;", node))
