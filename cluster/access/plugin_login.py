"""The login by a kubeconfig's credential plugin (`exec`), which threads that ask at the same time share."""

import json
import os
import threading
from collections.abc import Generator

import httpx2
from lightkube.config import client_adapter
from lightkube.config.models import UserExec
from typing_extensions import override


class PluginLogin(client_adapter.ExecAuth):
    """Runs the plugin once for all threads.

    Symptom without it: six runs at the start of `kai-anywhere status`, each of which may open a browser. Every thread
    that has no token yet runs it (lightkube 1.0.1; not reported upstream that we know of).
    """

    def __init__(self, plugin: UserExec) -> None:
        super().__init__(plugin)
        self._lock = threading.Lock()
        self._runs = 0
        self._outcome: str | Exception = ""

    @override
    def sync_auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        runs, had = self._runs, self._last_bearer
        request.headers["Authorization"] = had or self._login(runs)
        response = yield request
        if had and response.status_code == httpx2.codes.UNAUTHORIZED:
            request.headers["Authorization"] = self._login(runs)
            yield request

    @override
    def _prepare(self) -> tuple[list[str], dict[str, str]]:
        """The command and its environment; lightkube refuses `client.authentication.k8s.io/v1`."""
        # What it writes to the terminal is kept for the message, should it fail: it can't ask anything there.
        spec = {"interactive": False}
        info = {"kind": "ExecCredential", "apiVersion": self._exec.apiVersion, "spec": spec}
        named = {variable.name: variable.value for variable in self._exec.env or ()}
        environment = os.environ | {"KUBERNETES_EXEC_INFO": json.dumps(info)} | named
        return [self._exec.command, *(self._exec.args or ())], environment

    def _login(self, runs: int) -> str:
        """The outcome of the next run; of one that ended meanwhile, where there were more than so many."""
        with self._lock:
            if self._runs == runs:
                try:
                    command, environment = self._prepare()
                    answer = client_adapter.sync_check_output(command, env=environment)
                    self._outcome = self._last_bearer = f"Bearer {json.loads(answer)['status']['token']}"
                except Exception as error:  # noqa: BLE001 - whoever waits gets it
                    self._outcome = error
                self._runs += 1
            if isinstance(self._outcome, Exception):
                raise self._outcome
            return self._outcome
