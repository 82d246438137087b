"""The few calls to the API server that this server makes, over its HTTP library."""

import asyncio
import datetime as dt
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from os import environ
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from agents.admission.errors import ApiError, SettingsError
from agents.admission.settings import Api

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT = aiohttp.ClientTimeout(total=20)
_WATCH_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=20, sock_read=360)
_LINE_BYTES = 1024 * 1024
_JSON = "application/json"


def in_cluster() -> Api:
    """How a pod reaches the API server.

    Raises:
        SettingsError: this process does not run in a pod.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise SettingsError("KUBERNETES_SERVICE_HOST is not set: outside a pod, the settings need `api`")
    address = f"[{host}]" if ":" in host else host
    return Api(f"https://{address}:{port}", str(_ACCOUNT / "ca.crt"), str(_ACCOUNT / "token"))


class ApiServer:
    """The API server, as this server's service account."""

    def __init__(self, session: aiohttp.ClientSession, api: Api) -> None:
        self._ahead = dt.timedelta(0)
        """Its clock before ours, at its last answer."""
        self._session = session
        self._api = api

    @staticmethod
    @asynccontextmanager
    async def connect(api: Api) -> AsyncIterator["ApiServer"]:
        """Open connections for as long as the block lasts.

        Raises:
            SettingsError: the authority's file can't be read.
        """
        try:
            tls = ssl.create_default_context(cafile=api.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(f"{api.ca_file}: can't be read as certificates: {error}") from None
        connector = aiohttp.TCPConnector(ssl=tls, limit=8)
        async with aiohttp.ClientSession(connector=connector, read_bufsize=_LINE_BYTES, trust_env=False) as session:
            yield ApiServer(session, api)

    @property
    def now(self) -> dt.datetime:
        """The time of day by its clock: who judges certificates. Ours where it has not said it yet."""
        return dt.datetime.now(dt.UTC) + self._ahead

    async def get(self, path: str) -> dict[str, Any]:
        """Read one object.

        Raises:
            ApiError: it is not there, may not be read, or the API server can't be reached.
        """
        return await self._ask("GET", path)

    async def replace(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace an object; with `resourceVersion` in it, only if nobody else did meanwhile.

        Raises:
            ApiError: as `get`; status 409 if somebody else was first.
        """
        return await self._ask("PUT", path, body=body, content_type=_JSON)

    async def patch(self, path: str, operations: list[dict[str, Any]]) -> dict[str, Any]:
        """Apply a JSON patch.

        Raises:
            ApiError: as `get`; status 422 if a `test` failed.
        """
        return await self._ask("PATCH", path, body=operations, content_type="application/json-patch+json")

    async def list_metadata(self, path: str, selector: str) -> dict[str, Any]:
        """List metadata of objects.

        Raises:
            ApiError: as `get`.
        """
        accept = f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        return await self._ask("GET", path, params={"labelSelector": selector}, accept=accept)

    async def watch_metadata(self, path: str, selector: str, version: str) -> AsyncIterator[dict[str, Any]]:
        """Watch metadata of objects until the API server ends the watch, as it does after some minutes.

        Raises:
            ApiError: as `get`.
        """
        params = {
            "labelSelector": selector,
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "300",
        }
        accept = f"{_JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        try:
            async with self._session.get(
                self._url(path), params=params, headers=self._headers(accept), timeout=_WATCH_TIMEOUT
            ) as response:
                await _check(response)
                async for line in response.content:
                    yield msgspec.json.decode(line, type=dict[str, Any])
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ApiError(0, f"GET {path}: {_text(error)}") from None

    async def _ask(  # noqa: PLR0913 - one place for all calls
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        content_type: str | None = None,
        params: Mapping[str, str] | None = None,
        accept: str = _JSON,
    ) -> dict[str, Any]:
        headers = self._headers(accept)
        if content_type is not None:
            headers["Content-Type"] = content_type
        data = None if body is None else msgspec.json.encode(body)
        try:
            async with self._session.request(
                method, self._url(path), params=params, headers=headers, data=data, timeout=_TIMEOUT
            ) as response:
                await _check(response)
                self._ahead = _date(response) - dt.datetime.now(dt.UTC)
                return msgspec.json.decode(await response.read(), type=dict[str, Any])
        except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError) as error:
            raise ApiError(0, f"{method} {path}: {_text(error)}") from None

    def _url(self, path: str) -> str:
        return self._api.server + path

    def _headers(self, accept: str) -> dict[str, str]:
        try:
            token = Path(self._api.token_file).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ApiError(0, f"{self._api.token_file}: can't be read: {error}") from None
        return {"Authorization": f"Bearer {token}", "Accept": accept}


def _date(response: aiohttp.ClientResponse) -> dt.datetime:
    try:
        return parsedate_to_datetime(response.headers["Date"]).replace(tzinfo=dt.UTC)
    except (KeyError, ValueError):
        return dt.datetime.now(dt.UTC)


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


async def _check(response: aiohttp.ClientResponse) -> None:
    if response.ok:
        return
    raw = await asyncio.wait_for(response.read(), 10)
    try:
        message = str(msgspec.json.decode(raw, type=dict[str, Any]).get("message", response.reason))
    except msgspec.MsgspecError:
        message = str(response.reason)
    raise ApiError(response.status, f"{response.method} {response.url.path}: {response.status} {message[:500]}")
