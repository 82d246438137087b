"""The login program of a kubeconfig (`exec`), run as kubectl runs it."""

import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import httpx2
from lightkube.core.exceptions import ConfigError
from typing_extensions import override


class LoginProgram(httpx2.Auth):
    """Asks the program for a token or a certificate, and again where it is refused.

    Threads that ask at the same time ask once.

    Symptoms with lightkube's own (1.0.1; not reported upstream that we know of): it refuses the version v1, does not
    find a program beside the kubeconfig, keeps for itself what the program tells a person (the address to open, the
    code to type), and each of the six threads at the start of `kai-anywhere status` runs it.
    """

    def __init__(self, plugin: Mapping[str, Any], folder: Path, tls: ssl.SSLContext) -> None:
        """Keep what the kubeconfig in `folder` says, and the context of the connections, which gets certificates."""
        self._plugin = plugin
        self._folder = folder
        self._tls = tls
        self._lock = threading.Lock()
        self._runs = 0
        self._token: str | None = None
        self._outcome: str | Exception = ""

    @override
    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response]:
        """Send a request with the token, where the login is one."""
        runs, token = self._runs, self._token
        if token is not None and (yield _with_token(request, token)).status_code != httpx2.codes.UNAUTHORIZED:
            return
        yield _with_token(request, self._login(runs))

    def _login(self, runs: int) -> str:
        """What the next run says; the last one, where there were more than so many: another thread asked meanwhile."""
        with self._lock:
            if self._runs == runs:
                try:
                    self._outcome = self._token = self._ask()
                except Exception as error:  # noqa: BLE001 - whoever waits gets it
                    self._outcome = error
                self._runs += 1
            if isinstance(self._outcome, Exception):
                raise self._outcome
            return self._outcome

    def _ask(self) -> str:
        command = str(self._plugin["command"])
        mode = self._plugin.get("interactiveMode") or "IfAvailable"
        interactive = mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
        if mode == "Always" and not interactive:
            raise ConfigError(f"{command} asks at a terminal (interactiveMode: Always), and there is none")
        information = {
            "apiVersion": self._plugin["apiVersion"],
            "kind": "ExecCredential",
            "spec": {"interactive": interactive},
        }
        try:
            done = subprocess.run(
                [str(self._folder / command) if os.sep in command else command, *(self._plugin.get("args") or ())],
                env=os.environ
                | {variable["name"]: variable["value"] for variable in self._plugin.get("env") or ()}
                | {"KUBERNETES_EXEC_INFO": json.dumps(information)},
                stdin=None if interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                check=False,
            )
        except FileNotFoundError:
            hint = str(self._plugin.get("installHint") or "").strip()
            said = f"; the kubeconfig says of it: {hint}" if hint else ""
            raise ConfigError(f"their program {command} is not installed here{said}") from None
        if done.returncode:
            raise ConfigError(f"{command} ended with status {done.returncode}; what it said stands above")
        try:
            status = json.loads(done.stdout)["status"]
            if "clientCertificateData" not in status:
                return str(status["token"])
            self._load(f"{status['clientCertificateData']}\n{status['clientKeyData']}\n")
            return str(status.get("token", ""))
        except (LookupError, TypeError, ValueError, ssl.SSLError):
            # Their texts would quote what was printed: a credential.
            raise ConfigError(f"{command} printed no ExecCredential with a token or a certificate") from None

    def _load(self, certificate_and_key: str) -> None:
        """Have connections to come show a certificate; OpenSSL reads it from a file alone."""
        with NamedTemporaryFile("w", encoding="ascii") as file:
            file.write(certificate_and_key)
            file.flush()
            # A password of its own keeps OpenSSL from asking for one at the terminal.
            self._tls.load_cert_chain(file.name, password="")


def _with_token(request: httpx2.Request, token: str) -> httpx2.Request:
    if token:
        request.headers["Authorization"] = f"Bearer {token}"
    return request
