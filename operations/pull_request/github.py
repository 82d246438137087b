"""Writes a comment or an issue on GitHub once, and updates it from then on."""

import re
import time
from collections.abc import Iterator
from typing import Any, TypeVar

import httpx2
from httpx2 import codes
from pydantic import BaseModel, TypeAdapter, ValidationError

from operations.pull_request.comment import marker
from operations.pull_request.verified import Changes
from operations.stacks import STACK_NAME

_T = TypeVar("_T")
_TIMEOUT_SECONDS = 30
_PAGE = 100
_PAUSES_SECONDS = (0.5, 1, 2, 4)
_REPEATABLE = frozenset({"GET", "PATCH"})
"""A comment that was created twice is worse than one that is missing: only what can be repeated is."""
_LONGEST_PAUSE_SECONDS = 60
"""Of what GitHub asks for by Retry-After: a job that waits for an hour tells nobody why."""
_PASSING = {
    codes.TOO_MANY_REQUESTS,
    codes.INTERNAL_SERVER_ERROR,
    codes.BAD_GATEWAY,
    codes.SERVICE_UNAVAILABLE,
    codes.GATEWAY_TIMEOUT,
}
_LIMITS = {codes.FORBIDDEN, codes.TOO_MANY_REQUESTS}
"""With which GitHub refuses what comes too fast, or is too much in an hour; it has done nothing then."""
_PERMISSIONS: dict[int, str] = {
    codes.UNAUTHORIZED: "The token is not accepted: GITHUB_TOKEN must be the job's own.",
    codes.FORBIDDEN: "The job needs the permission `pull-requests: write`, or `issues: write` for an issue.",
    codes.NOT_FOUND: (
        "There is no such repository, pull request or issue, or the job may not see it: it needs the permission "
        "`pull-requests: write`, or `issues: write` for an issue."
    ),
}
_LIMITED = "It takes no more requests of this repository's jobs for now: run the job again in an hour."


class GitHubError(Exception):
    """GitHub did not do what it was asked."""


class _User(BaseModel, extra="ignore", frozen=True):
    login: str


class _Post(BaseModel, extra="ignore", frozen=True):
    """A comment or an issue."""

    url: str
    html_url: str
    body: str | None = None
    user: _User | None = None


class _Head(BaseModel, extra="ignore", frozen=True):
    sha: str


class _PullRequest(BaseModel, extra="ignore", frozen=True):
    head: _Head
    changed_files: int


class _File(BaseModel, extra="ignore", frozen=True):
    filename: str
    previous_filename: str | None = None
    status: str = ""


_POSTS = TypeAdapter(list[_Post])
_FILES = TypeAdapter(list[_File])


class GitHub:
    """A repository, as the job's token sees it.

    Whatever GitHub refuses, or does not answer, is a GitHubError.

    What is ours is found by its first line (a marker) and its author: somebody else's text with the same marker is left
    alone, since its author could change it again.

    Args:
        repository: `owner/name`.
        token: sent in a header, never shown.
        api: the address of GitHub's REST interface.
        author: the login under which the token writes.
    """

    def __init__(
        self, repository: str, token: str, *, api: str = "https://api.github.com", author: str = "github-actions[bot]"
    ) -> None:
        self._base = f"{api.rstrip('/')}/repos/{repository}"
        self._author = author
        # To read all authorities anew for each request takes longer than GitHub does.
        self._tls = httpx2.create_ssl_context()
        self._headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }

    def put_comment(self, pull_request: int, body: str) -> str:
        """Write the comment, or update the one with the same marker; gives its address."""
        comments = f"{self._base}/issues/{pull_request}/comments"
        return self.update_comment(pull_request, body) or self._send("POST", comments, {"body": body}).html_url

    def update_comment(self, pull_request: int, body: str) -> str | None:
        """Update the comment with the same marker; gives its address, or None where there is none."""
        ours = self._find(f"{self._base}/issues/{pull_request}/comments", {}, body)
        return self._send("PATCH", ours.url, {"body": body}).html_url if ours else None

    def head(self, pull_request: int) -> str:
        """The commit that a pull request asks to merge now."""
        return self._pull_request(pull_request).head.sha

    def changes(self, pull_request: int) -> Changes:
        """Which files a pull request changes."""
        details = self._pull_request(pull_request)
        # GitHub lists no more than 3,000.
        files = list(self._pages(f"{self._base}/pulls/{pull_request}/files", {}, _FILES))
        paths = tuple(path for file in files for path in (file.filename, file.previous_filename) if path)
        removed = {file.filename for file in files if file.status == "removed"}
        removed |= {file.previous_filename for file in files if file.previous_filename and file.status == "renamed"}
        return Changes(
            paths, details.head.sha, listed_all=len(files) >= details.changed_files, removed=frozenset(removed)
        )

    def previews(self, pull_request: int, folder: str) -> list[tuple[str, str, str]]:
        """Our comments about previews of a folder's stacks: stack, address in the interface, text."""
        # No folder has a line break in its name.
        before, after = map(re.escape, marker("preview", "\n", folder).split("\n"))
        ours = re.compile(f"{before}({STACK_NAME.pattern}){after}")
        posts = self._pages(f"{self._base}/issues/{pull_request}/comments", {}, _POSTS)
        return [
            (match[1], post.url, post.body)
            for post in posts
            if post.body is not None
            and post.user is not None
            and post.user.login == self._author
            and (match := ours.fullmatch(post.body.split("\n", 1)[0].strip()))
        ]

    def update(self, url: str, body: str) -> str:
        """Give a comment another text; gives its address."""
        return self._send("PATCH", url, {"body": body}).html_url

    def put_issue(self, title: str, body: str) -> str:
        """Open an issue, or update the open one with the same marker; gives its address."""
        issues = f"{self._base}/issues"
        if ours := self._find(issues, {"state": "open", "creator": self._author}, body):
            return self._send("PATCH", ours.url, {"title": title, "body": body}).html_url
        return self._send("POST", issues, {"title": title, "body": body}).html_url

    def close_issue(self, marker: str) -> str | None:
        """Close the open issue with this marker; gives its address, or None where there is none."""
        ours = self._find(f"{self._base}/issues", {"state": "open", "creator": self._author}, marker)
        return self._send("PATCH", ours.url, {"state": "closed"}).html_url if ours else None

    def _pull_request(self, number: int) -> _PullRequest:
        return self._read(TypeAdapter(_PullRequest), self._ask("GET", f"{self._base}/pulls/{number}"))

    def _find(self, url: str, parameters: dict[str, str], body: str) -> _Post | None:
        marker = body.split("\n", 1)[0]
        for post in self._pages(url, parameters, _POSTS):
            first = (post.body or "").split("\n", 1)[0].strip()
            if first == marker and post.user is not None and post.user.login == self._author:
                return post
        return None

    def _pages(self, url: str, parameters: dict[str, str], kind: TypeAdapter[list[_T]]) -> Iterator[_T]:
        page: str | None = url
        query: dict[str, str] | None = parameters | {"per_page": str(_PAGE)}
        while page is not None:
            answer = self._ask("GET", page, params=query)
            yield from self._read(kind, answer)
            page, query = answer.links.get("next", {}).get("url"), None
            if page is not None and not page.startswith(self._base.split("/repos/", maxsplit=1)[0]):
                raise GitHubError(f"GitHub's list goes on at another address ({page}): the token is not sent there.")

    def _send(self, method: str, url: str, content: dict[str, str]) -> _Post:
        return self._read(TypeAdapter(_Post), self._ask(method, url, json=content))

    def _ask(self, method: str, url: str, **options: Any) -> httpx2.Response:  # noqa: ANN401 - httpx2's own options
        options |= {"headers": self._headers, "timeout": _TIMEOUT_SECONDS, "follow_redirects": True}
        options["verify"] = self._tls
        pauses_seconds = iter(_PAUSES_SECONDS)
        while True:
            pause_seconds = next(pauses_seconds, None)
            try:
                answer = httpx2.request(method, url, **options)
            except httpx2.TransportError as error:
                if pause_seconds is None or method not in _REPEATABLE:
                    raise GitHubError(
                        f"GitHub does not answer ({type(error).__name__}) to {method} {url}. Run the job again."
                    ) from error
                time.sleep(pause_seconds)
                continue
            if answer.is_success:
                return answer
            limited, retry_after = _is_limited(answer), answer.headers.get("Retry-After", "")
            again = (limited and retry_after) or (method in _REPEATABLE and answer.status_code in _PASSING)
            if pause_seconds is None or not again:
                remedy = _LIMITED if limited else _PERMISSIONS.get(answer.status_code, "Run the job again.")
                reason = f"{answer.status_code} {answer.reason_phrase}"
                raise GitHubError(f"GitHub refused {method} {url}: {reason}. {remedy}")
            time.sleep(min(int(retry_after), _LONGEST_PAUSE_SECONDS) if retry_after.isdecimal() else pause_seconds)

    def _read(self, kind: TypeAdapter[_T], answer: httpx2.Response) -> _T:
        try:
            return kind.validate_json(answer.content)
        except ValidationError as error:
            raise GitHubError(f"GitHub's answer to {answer.url} is not what its documentation says: {error}") from error


def _is_limited(answer: httpx2.Response) -> bool:
    """Whether GitHub refuses for the number of requests, and not for a right that is missing."""
    limited = "Retry-After" in answer.headers or answer.headers.get("X-RateLimit-Remaining") == "0"
    return answer.status_code in _LIMITS and limited
