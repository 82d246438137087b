"""A stand-in for GitHub's REST interface on loopback: comments, issues and changed files, in pages."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from testbed.http_server import Handler, serving

REPOSITORY = "owner/name"
TOKEN = "ghs_only-a-test"
HEAD = "89abcdef0123456789abcdef0123456789abcdef"
BOT = "github-actions[bot]"


@dataclass
class GitHubServer:
    """What the repository holds, and what it was asked.

    Attributes:
        posts: comments (with `pull_request`) and issues, oldest first.
        asked: method and path of every request.
        failures: status codes with which the next requests are answered, by method.
        retry_after: what failures say of the time until the next try, in seconds; nothing if None.
        used_up: whether failures say that no requests are left in this hour.
        page: posts or files in a page.
        files: what a pull request changes, as GitHub lists it.
        changed_files: how many GitHub says it changes; as many as are listed if None.
    """

    url: str = ""
    posts: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    failures: dict[str, list[int]] = field(default_factory=dict)
    retry_after: str | None = None
    used_up: bool = False
    page: int = 2
    files: list[dict[str, str]] = field(default_factory=list)
    changed_files: int | None = None

    def add(
        self, body: str, *, author: str = BOT, pull_request: int | None = None, state: str = "open"
    ) -> dict[str, Any]:
        """A post as GitHub shows it."""
        number = len(self.posts) + 1
        kind = "issues" if pull_request is None else "issues/comments"
        post = {
            "url": f"{self.url}/repos/{REPOSITORY}/{kind}/{number}",
            "html_url": f"https://github.com/{REPOSITORY}/{number}",
            "body": body,
            "user": {"login": author},
            "state": state,
            "pull_request_number": pull_request,
        }
        self.posts.append(post)
        return post


class _Handler(Handler):
    server_state: ClassVar[GitHubServer]

    def do_GET(self) -> None:
        """A page of comments or issues."""
        if self._refused("GET"):
            return
        parts = urlsplit(self.path)
        asked = {key: values[0] for key, values in parse_qs(parts.query).items()}
        state = self.server_state
        if re.fullmatch(rf"/repos/{REPOSITORY}/pulls/\d+", parts.path):
            count = len(state.files) if state.changed_files is None else state.changed_files
            self._answer(200, {"head": {"sha": HEAD}, "changed_files": count, "title": "anything"})
            return
        if re.fullmatch(rf"/repos/{REPOSITORY}/pulls/\d+/files", parts.path):
            self._page(state.files, parts.path, asked)
            return
        comments = re.fullmatch(rf"/repos/{REPOSITORY}/issues/(\d+)/comments", parts.path)
        pull_request = int(comments[1]) if comments else None
        if not comments and parts.path != f"/repos/{REPOSITORY}/issues":
            self._answer(404, {"message": "Not Found"})
            return
        pages = [
            post
            for post in self.server_state.posts
            if post["pull_request_number"] == pull_request
            and asked.get("state", post["state"]) == post["state"]
            and asked.get("creator", post["user"]["login"]) == post["user"]["login"]
        ]
        self._page(pages, parts.path, asked)

    def _page(self, items: Sequence[object], path: str, asked: dict[str, str]) -> None:
        page, size = int(asked.get("page", "1")), self.server_state.page
        headers = {}
        if page * size < len(items):
            headers["Link"] = f'<{self.server_state.url}{path}?page={page + 1}>; rel="next"'
        self._answer(200, items[(page - 1) * size : page * size], headers)

    def do_POST(self) -> None:
        """A new comment or issue."""
        if self._refused("POST"):
            return
        comments = re.search(r"/issues/(\d+)/comments$", self.path)
        content = self._content()
        post = self.server_state.add(content["body"], pull_request=int(comments[1]) if comments else None)
        post.update(content)
        self._answer(201, post)

    def do_PATCH(self) -> None:
        """A change of one."""
        if self._refused("PATCH"):
            return
        [post] = [post for post in self.server_state.posts if post["url"].endswith(self.path)]
        post.update(self._content())
        self._answer(200, post)

    def _refused(self, method: str) -> bool:
        self.server_state.asked.append((method, self.path))
        failures = self.server_state.failures.get(method)
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            status = 401
        elif failures:
            status = failures.pop(0)
        else:
            return False
        self.body()
        seconds = self.server_state.retry_after
        headers = {"X-RateLimit-Remaining": "0" if self.server_state.used_up else "17"}
        self._answer(status, {"message": "no"}, headers if seconds is None else headers | {"Retry-After": seconds})
        return True

    def _content(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.body())
        return content

    def _answer(self, status: int, content: object, headers: dict[str, str] | None = None) -> None:
        self.answer(status, json.dumps(content).encode(), headers or {})


@contextmanager
def running() -> Iterator[GitHubServer]:
    """The server, for the length of the block."""
    state = GitHubServer()
    handler = type("Handler", (_Handler,), {"server_state": state})
    with serving(handler) as port:
        state.url = f"http://127.0.0.1:{port}"
        yield state
