"""The connection to the API server: how a request is sent, and what becomes of its answer."""

import os
import shlex
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Self, TypeVar
from urllib.parse import urlsplit

import httpx2
from lightkube.config import client_adapter
from lightkube.core.exceptions import ConfigError
from pydantic import ValidationError

from cluster.access.answers.server import Objection, Status, page_of
from cluster.access.kubeconfig import ChosenContext, choose_context, in_cluster, in_shell
from cluster.access.login import LoginProgram
from cluster.access.proxies import proxy_of
from cluster.errors import ClusterError, ClusterUnreachableError, LoginError, OneAnswerError
from config.cluster import ClusterSettings

TIMEOUT_SECONDS = 5
"""Bound of one request: an unreachable cluster is found out within it."""
UP_TIMEOUT_SECONDS = 60
"""Bound of an answer within `pulumi up`, which asks for everything at once: one late answer would fail all of it."""
UP_CONNECT_SECONDS = 20
"""Bound of a connection within `pulumi up`, with its TLS handshake, for which a busy API server takes more than
`TIMEOUT_SECONDS`: an address where nobody listens is still found out within it."""
ADMISSION_SECONDS = 30 + TIMEOUT_SECONDS
"""Bound of an answer that admission webhooks are asked for, of which each may take 30 s (ValidatingWebhook)."""

JSON = "application/json"
METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
"""What is accepted where an object's metadata is enough; of a list with `List` in it."""
_NOBODY = 'User "system:anonymous"'
"""In the API server's words of what is refused to who has no login."""
_BUSY_TRIES = 5
"""Of a request for which the API server has no room now, and says when to come again; kubectl tries ten times."""
_WITHOUT_VERDICT = frozenset({401, 429, 502, 503, 504})
"""Statuses of a write that nobody has judged; a webhook may choose any of them for its refusal."""
REFUSES = ("denied the request", "denied request")
"""In the API server's words of every refusal of a webhook, and of a ValidatingAdmissionPolicy, which comes before all
webhooks (apiserver, plugin/webhook/errors/statuserror.go and plugin/policy/validating/dispatcher.go)."""
_EXPIRED_TRIES = 3
"""Of a list whose continue token has expired on the way: etcd was compacted, by default every five minutes."""
_PAGE = 500
"""Objects per answer to a list, as kubectl asks for them: a large cluster's objects are never in memory all at once."""

T = TypeVar("T")


class NotFoundError(ClusterUnreachableError):
    """The API server has nothing at a path; where it always has something, it is no API server of Kubernetes'."""


class _ExpiredError(OneAnswerError):
    """The API server knows no more where a list was to go on (410)."""


@dataclass(frozen=True)
class Connection:
    """A connection to one cluster.

    Attributes:
        chosen: the context that it was opened with.
    """

    chosen: ChosenContext
    _http: httpx2.Client
    _timeout_seconds: float | None = None

    @property
    def server(self) -> str:
        """The API server's address."""
        return str(self.chosen.config.cluster.server)

    @property
    def context(self) -> str:
        """The context's name, for messages."""
        return self.chosen.name

    @property
    def kubeconfig(self) -> str:
        """The kubeconfig's path, for messages."""
        return self.chosen.file

    @property
    def kubectl(self) -> str:
        """How a person asks the same cluster; of several files in KUBECONFIG, the one that has the context."""
        return f"kubectl --kubeconfig {in_shell(self.kubeconfig)} --context {shlex.quote(self.context)}"

    @property
    def proxy(self) -> str | None:
        """The proxy that is asked in place of the API server, without the login that its address may have."""
        proxy = _proxy_to(self.chosen)
        return proxy and urlsplit(proxy)._replace(netloc=urlsplit(proxy).netloc.rpartition("@")[2]).geturl()

    @classmethod
    def connect(cls, settings: ClusterSettings, *, timeout_seconds: float | None = None) -> Self:
        """Open the cluster that a stack names, or kubectl's current one; arguments as of `open`."""
        return cls.open(settings.kubeconfig, settings.context, timeout_seconds=timeout_seconds)

    @classmethod
    def open(
        cls,
        kubeconfig: str | None = None,
        context: str | None = None,
        *,
        timeout_seconds: float | None = None,
    ) -> Self:
        """Open a cluster: kubectl's own file and current context where nothing else is named.

        Args:
            kubeconfig: the file.
            context: one of its contexts.
            timeout_seconds: bound of one request, in place of `TIMEOUT_SECONDS`.

        Raises:
            ClusterUnreachableError: if there is no kubeconfig.
            ClusterError: if it can't be read, or has no such context.
        """
        return cls._of(choose_context(kubeconfig, context), timeout_seconds)

    @classmethod
    def in_cluster(cls) -> Self:
        """Open the cluster of the pod that this process runs in, as its service account.

        Raises:
            ClusterUnreachableError: it does not run in a pod.
        """
        return cls._of(in_cluster())

    @classmethod
    def _of(cls, chosen: ChosenContext, timeout_seconds: float | None = None) -> Self:
        timeout = httpx2.Timeout(timeout_seconds or TIMEOUT_SECONDS)
        try:
            _check_key(chosen)
            parameters = client_adapter.ConnectionParams(timeout=timeout).httpx_params(chosen.config)
            if isinstance(parameters["auth"], client_adapter.ExecAuth):
                folder = Path(os.path.expanduser(chosen.file)).absolute().parent
                parameters["auth"] = LoginProgram(chosen.login, folder, parameters["verify"])
            _set_protocols_once(parameters["verify"])
            http = httpx2.Client(**parameters | {"trust_env": False, "proxy": _proxy_to(chosen)})
        except ImportError as error:
            raise ClusterError(
                f"The way to context '{chosen.name}' leads through a SOCKS proxy, which this program can't use: "
                "HTTPS_PROXY or the kubeconfig's proxy-url names it.\n"
                "Name an HTTP proxy there, or the cluster's address in NO_PROXY, if it is reached without one."
            ) from error
        except (ConfigError, ValueError, OSError, httpx2.InvalidURL) as error:
            raise ClusterError(
                f"The address or the certificates of context '{chosen.name}' can't be used: "
                f"{_missing_files(chosen) or error}\n"
                f"Check them with: kubectl --kubeconfig {in_shell(chosen.file)} config view"
            ) from error
        return cls(chosen, http, timeout_seconds)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _list(
        self,
        path: str,
        kind: type[T],
        *,
        params: dict[str, str] | None = None,
        accept: str = JSON,
    ) -> list[T]:
        for _ in range(_EXPIRED_TRIES - 1):
            # Begun anew: what was read is of a moment that the API server has forgotten.
            with suppress(_ExpiredError):
                return list(chain.from_iterable(self._pages(path, kind, params=params or {}, accept=accept)))
        return list(chain.from_iterable(self._pages(path, kind, params=params or {}, accept=accept)))

    def _pages(self, path: str, kind: type[T], *, params: dict[str, str], accept: str) -> Iterator[list[T]]:
        after: dict[str, str] = {}
        while True:
            page = self._read(
                path,
                page_of(kind).model_validate_json,
                params=params | {"limit": str(_PAGE)} | after,
                accept=accept,
            )
            yield page.items or []
            if not page.next_page:
                return
            after = {"continue": page.next_page}

    def _find(self, path: str, parse: Callable[[bytes], T], *, accept: str = JSON) -> T | None:
        try:
            return self._read(path, parse, accept=accept)
        except NotFoundError:
            return None

    def _read(  # noqa: PLR0913 - the parts of a request
        self,
        path: str,
        parse: Callable[[bytes], T],
        *,
        params: dict[str, str] | None = None,
        accept: str = JSON,
        method: str | None = None,
        body: str | None = None,
        timeout_seconds: float | None = None,
    ) -> T:
        method = method or ("GET" if body is None else "PATCH")
        response = self._send(
            path, params=params, accept=accept, method=method, body=body, timeout_seconds=timeout_seconds
        )
        if response.status_code not in {httpx2.codes.OK, httpx2.codes.CREATED}:
            raise self._failure(response, f"{method} {path}")
        try:
            # By the model at once: most of a large answer is skipped, and never becomes a Python object.
            return parse(response.content)
        except ValueError as error:
            raise _not_understood(f"{method} {path}", error) from error

    def _failure(self, response: httpx2.Response, request: str) -> ClusterError:
        """What an answer says that is none to the request."""
        match response.status_code:
            case httpx2.codes.NOT_FOUND:
                return NotFoundError(
                    f"The cluster at {self.server} has no {request.partition(' ')[2]}: what answers there is not "
                    "Kubernetes, or Kubernetes is not under that address.\n"
                    f"Check the server of context '{self.context}': {self.kubectl} version"
                )
            case httpx2.codes.UNAUTHORIZED as code:
                return LoginError(
                    f"The cluster at {self.server} does not accept the login of context '{self.context}' ({code}).\n"
                    "The login has ended, or is for another cluster. Log in again, and check it with: "
                    f"{self.kubectl} auth whoami"
                )
            case httpx2.codes.FORBIDDEN as code if _NOBODY in _words(response):
                return LoginError(
                    f"The cluster at {self.server} does not see who asks by context '{self.context}' ({code}): its "
                    "user has no login, or that does not arrive, such as a certificate where a proxy ends TLS.\n"
                    f"Log in, and check it with: {self.kubectl} auth whoami"
                )
            case httpx2.codes.FORBIDDEN as code:
                return ClusterError(
                    f"The cluster at {self.server} refuses {request} to context '{self.context}' ({code}).\n"
                    "Use a context with cluster-admin rights: the program creates cluster-wide policies and namespaces."
                )
            case code:
                answered = f"The cluster at {self.server} answered {request} with status {code}"
                # In one line, which is all that is shown of an answer where others could be read.
                said = " ".join(_words(response).split()).rstrip(".")
                answered = f"{answered}: {said}." if said else f"{answered}."
                if code == httpx2.codes.GONE:
                    return _ExpiredError(answered)
                # Of a kind that it can't convert or decode; it has every other one.
                is_one = code == httpx2.codes.INTERNAL_SERVER_ERROR
                return (OneAnswerError if is_one else ClusterUnreachableError)(answered)

    def _verdict(self, response: httpx2.Response, request: str) -> Objection | None:
        """What the API server or its admission has against a write.

        Raises:
            ClusterError: it did not judge it: it has no room, is not well, or does not know who asks.
        """
        objection = objection_of(response)
        judged = objection is None or any(words in objection.message for words in REFUSES)
        if response.status_code in _WITHOUT_VERDICT and not judged:
            raise self._failure(response, request)
        return objection

    def _send(  # noqa: PLR0913 - the parts of a request
        self,
        path: str,
        *,
        params: dict[str, str] | None = None,
        accept: str = JSON,
        method: str | None = None,
        body: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> httpx2.Response:
        """A GET, or with a body a server-side apply, unless a method is named; whatever the answer says."""
        method = method or ("GET" if body is None else "PATCH")
        sent = [("Accept", accept), *(self.chosen.acts_as if headers is None else headers.items())]
        if body is not None:
            sent.append(("Content-Type", "application/apply-patch+yaml" if method == "PATCH" else JSON))
        try:
            return self._patiently(
                self._http.build_request(
                    method,
                    path,
                    params=params,
                    headers=sent,
                    content=body,
                    extensions={"sni_hostname": name} if (name := self.chosen.tls_server_name) else None,
                    timeout=httpx2.Timeout(
                        timeout_seconds or self._timeout_seconds or TIMEOUT_SECONDS,
                        connect=UP_CONNECT_SECONDS if self._timeout_seconds else TIMEOUT_SECONDS,
                    ),
                )
            )
        except httpx2.InvalidURL as error:
            # A namespace that an object names, such as KAI's Config, whose field takes any text.
            raise ClusterError(
                f"The cluster at {self.server} can't be asked {method} {path!r}: a name in it has a character that no "
                "name can have, such as a line break at its end.\nCorrect it where it is said."
            ) from error
        except httpx2.LocalProtocolError:
            # Its text quotes what can't be sent: the token.
            raise LoginError(
                f"The credentials of context '{self.context}' can't be used: the token has a character that no header "
                f"can have, such as a line break at its end.\nCheck them with: {self.kubectl} auth whoami"
            ) from None
        except httpx2.RequestError as error:
            if isinstance(error, httpx2.ReadTimeout) and method != "GET":
                # It is there, and may answer whatever is only read: what judges a write is asked before it is done.
                raise OneAnswerError(
                    f"The cluster at {self.server} took {method} {path}, and did not answer in time: something that it "
                    "asks before hangs, such as an admission webhook, or it is too busy.\n"
                    "See which webhooks there are, and whether what serves them runs: "
                    f"{self.kubectl} get mutatingwebhookconfigurations,validatingwebhookconfigurations"
                ) from error
            # What a proxy refuses reads as if the API server did.
            way = f", through the proxy {self.proxy}" if self.proxy else ""
            raise ClusterUnreachableError(
                f"No answer from the cluster at {self.server} (context '{self.context}' of {self.kubeconfig}){way}: "
                f"{error}\n"
                f"Check that it runs and that this machine reaches it: {self.kubectl} get nodes"
            ) from error
        except (ConfigError, LookupError, TypeError, ValueError, OSError) as error:
            raise LoginError(
                f"The credentials of context '{self.context}' can't be used: {error}.\n"
                f"Check them with: {self.kubectl} auth whoami"
            ) from error

    def _patiently(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and again where the API server has no room for it and says when to come again."""
        for _ in range(_BUSY_TRIES - 1):
            response = self._http.send(request)
            later = response.headers.get("Retry-After", "")
            if response.status_code != httpx2.codes.TOO_MANY_REQUESTS or not later.isdecimal():
                return response
            time.sleep(min(int(later), TIMEOUT_SECONDS))
        return self._http.send(request)


def _proxy_to(chosen: ChosenContext) -> str | None:
    return chosen.proxy or proxy_of(chosen.config.cluster.server, os.environ)


def _set_protocols_once(context: ssl.SSLContext) -> None:
    """Set the protocols (ALPN) of a TLS context, and let nothing set them again.

    Symptom: of some 10,000 connections that threads open at the same time, one fails with `TLSV1_ALERT_DECODE_ERROR`.
    Before each handshake the HTTP client sets the protocols of the one context that all threads share. That frees the
    list which another thread's handshake may be copying. Seen with Python 3.11 and httpcore2 2.16; CPython knows it as
    python/cpython#141012, open in November 2026.
    """
    context.set_alpn_protocols(["http/1.1"])
    context.set_alpn_protocols = _keep_protocols  # type: ignore[method-assign]


def _keep_protocols(alpn_protocols: Iterable[str]) -> None:
    """Set nothing."""


def objection_of(response: httpx2.Response) -> Objection | None:
    """What an answer has against its request."""
    if response.is_success:
        return None
    return Objection(
        code=response.status_code,
        message=_words(response) or f"the API server answered with status {response.status_code}",
    )


def _words(response: httpx2.Response) -> str:
    """Why a request was not fulfilled, in the API server's words; empty where it has none."""
    try:
        return Status.model_validate_json(response.content).message
    except ValidationError:
        # For a kind that it does not know yet, the API server answers in plain text.
        return ""


def _not_understood(request: str, error: ValueError) -> ClusterError:
    why = str(error)
    if isinstance(error, ValidationError):
        # The first that is wrong, in one line: it is all that is shown of an answer where others could be read.
        first = error.errors(include_url=False, include_input=False)[0]
        why = ": ".join([*([".".join(map(str, first["loc"]))] if first["loc"] else []), first["msg"]])
    return ClusterError(f"The cluster's answer to {request} is not what Kubernetes 1.30 or later sends: {why}")


def _check_key(chosen: ChosenContext) -> None:
    user = chosen.config.user
    if user and (user.client_cert or user.client_cert_data) and not (user.client_key or user.client_key_data):
        raise ConfigError("the client certificate is there without its key")


def _missing_files(chosen: ChosenContext) -> str:
    """The files of certificates that a context names and that are not there: OpenSSL does not say which it missed."""
    cluster, user = chosen.config.cluster, chosen.config.user
    named = [cluster.certificate_auth, *((user.client_cert, user.client_key) if user else ())]
    files = (Path(chosen.config.abs_file(name)) for name in named if name)
    return ", ".join(f"there is no {file}" for file in files if not file.exists())
