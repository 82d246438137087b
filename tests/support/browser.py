"""A headless Chromium, driven by the W3C WebDriver protocol: chromedriver and an HTTP client, nothing else."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

_STARTED = re.compile(r"started successfully on port (\d+)")
_SECONDS = 60
TAB, ENTER, SPACE = "\ue004", "\ue007", " "
"""Keys, as WebDriver has them."""

NARROW, WIDE = 420, 1280
"""A phone's width and a desktop's, in CSS pixels."""
_HEIGHT = 900

_CONTRASTS = """
const seen = (color) => color.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b]
  .map((part) => part / 255)
  .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
  .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
const behind = (element) => {
  for (let each = element; each; each = each.parentElement) {
    const color = seen(getComputedStyle(each).backgroundColor);
    if (color.length < 4 || color[3] > 0) return color;
  }
  return [255, 255, 255];
};
const found = {};
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const element = texts.currentNode.parentElement;
  const shown = element.checkVisibility() && texts.currentNode.textContent.trim();
  if (!shown || ["SCRIPT", "STYLE"].includes(element.tagName)) continue;
  const [a, b] = [light(seen(getComputedStyle(element).color)), light(behind(element))];
  found[shown.slice(0, 60)] = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}
return found;
"""


def missing() -> str:
    """Why no browser can be driven here; empty where one can."""
    lacking = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"no {' and no '.join(lacking)} on PATH (Debian: apt-get install chromium-driver)" if lacking else ""


class Browser:
    """One window."""

    def __init__(self, http: httpx2.Client, session: str) -> None:
        self._http, self._session = http, session

    def open(self, url: str) -> None:
        """Open a page, and wait until it is loaded."""
        self._ask("url", {"url": url})

    def look(self, *, width: int, dark: bool) -> None:
        """Be of this width, in CSS pixels, and prefer these colours."""
        metrics = {"width": width, "height": _HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        self._command("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._command("Emulation.setEmulatedMedia", {"features": [scheme]})

    def js(self, script: str, *arguments: object) -> Any:  # noqa: ANN401 - JSON
        """Run a script in the page; gives what it returns."""
        return self._ask("execute/sync", {"script": script, "args": arguments})

    def press(self, *keys: str) -> None:
        """Press keys one after the other, on whatever has the focus."""
        pressed = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask("actions", {"actions": [{"type": "key", "id": "keyboard", "actions": pressed}]})

    def focused(self) -> str:
        """What has the focus, as a selector: `button#open`; a node's summary is told by the node."""
        return str(
            self.js(
                "const at = document.activeElement; const named = at.id ? at : at.closest('[id]');"
                "return at.tagName.toLowerCase() + (named ? '#' + named.id : '');"
            )
        )

    def sideways(self) -> int:
        """By how many pixels the page is wider than its window."""
        return int(self.js("const page = document.documentElement; return page.scrollWidth - page.clientWidth;"))

    def contrasts(self) -> dict[str, float]:
        """The contrast of each text that is shown, as WCAG 2 counts it (1.4.3: at least 4.5)."""
        contrasts: dict[str, float] = self.js(_CONTRASTS)
        return contrasts

    def unnamed(self) -> list[str]:
        """The roles of what can have the focus, or is a picture, and has no name for a screen reader."""
        nodes = self._command("Accessibility.getFullAXTree", {})["nodes"]
        return [
            str(node["role"]["value"])
            for node in nodes
            if not node.get("ignored") and _needs_a_name(node) and not node.get("name", {}).get("value", "").strip()
        ]

    def complaints(self) -> list[str]:
        """What the browser's console says since it was asked last: errors of scripts, refusals of the page's policy."""
        return [str(entry["message"]) for entry in self._ask("se/log", {"type": "browser"})]

    def _command(self, name: str, parameters: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._ask("goog/cdp/execute", {"cmd": name, "params": parameters})
        return answer

    def _ask(self, path: str, body: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
        answer = self._http.post(f"{self._session}/{path}", json=body)
        assert answer.is_success, answer.text
        return answer.json()["value"]


def _needs_a_name(node: dict[str, Any]) -> bool:
    focusable = any(
        property_["name"] == "focusable" and property_["value"]["value"] for property_ in node.get("properties", ())
    )
    role = node["role"]["value"]
    return (focusable and role != "RootWebArea") or role in {"image", "table"}


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser with a window, until the end."""
    arguments = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--no-proxy-server", "--disable-gpu"]
    options = {"binary": shutil.which("chromium"), "args": arguments}
    capabilities = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
    with subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True) as driver:
        try:
            assert driver.stdout is not None
            port = next(match[1] for line in driver.stdout if (match := _STARTED.search(line)))
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=_SECONDS) as http:
                answer = http.post("/session", json={"capabilities": {"alwaysMatch": capabilities}})
                assert answer.is_success, answer.text
                session = f"/session/{answer.json()['value']['sessionId']}"
                try:
                    yield Browser(http, session)
                finally:
                    http.delete(session)
        finally:
            driver.terminate()
