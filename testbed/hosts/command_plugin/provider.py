"""The provider's gRPC service."""

import json
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2, json_format, struct_pb2  # type: ignore[import-untyped]  # no stubs pinned
from pulumi.runtime import rpc
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc
from typing_extensions import override

from testbed.hosts.command_plugin.connection import CommandFailedError, Done, copy, run, run_ssh

Json = Mapping[str, Any]

_REMOTE, _COPY, _LOCAL = "command:remote:Command", "command:remote:CopyToRemote", "command:local:Command"
_OUTPUTS = ("stdout", "stderr")

_Apply = provider_pb2.CreateRequest | provider_pb2.UpdateRequest
_Bounded = _Apply | provider_pb2.DeleteRequest


class CommandProvider(provider_pb2_grpc.ResourceProviderServicer):
    """Create, update and delete; a read gives back what the engine knows, as the official plugin's does."""

    @override
    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        return plugin_pb2.PluginInfo(version="1.2.1")

    @override
    def CheckConfig(self, request: Any, context: Any) -> Any:
        return provider_pb2.CheckResponse(inputs=request.news)

    @override
    def DiffConfig(self, request: Any, context: Any) -> Any:
        return provider_pb2.DiffResponse()

    @override
    def Configure(self, request: Any, context: Any) -> Any:
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True, acceptResources=False)

    @override
    def Cancel(self, request: Any, context: Any) -> Any:
        return empty_pb2.Empty()

    @override
    def Check(self, request: Any, context: Any) -> Any:
        if _token(request.urn) not in {_REMOTE, _COPY, _LOCAL}:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"the stand-in plugin does not know {_token(request.urn)}")
        return provider_pb2.CheckResponse(inputs=request.news)

    @override
    def Diff(self, request: Any, context: Any) -> Any:
        old, new = (_plain(part) for part in (request.old_inputs, request.news))
        ignored = set(request.ignoreChanges)
        differing = sorted(key for key in {*old, *new} if old.get(key) != new.get(key) and key not in ignored)
        replaces = [key for key in differing if key == "triggers"]
        some = provider_pb2.DiffResponse.DIFF_SOME if differing else provider_pb2.DiffResponse.DIFF_NONE
        return provider_pb2.DiffResponse(changes=some, diffs=differing, replaces=replaces)

    @override
    def Read(self, request: Any, context: Any) -> Any:
        return provider_pb2.ReadResponse(id=request.id, properties=request.properties, inputs=request.inputs)

    @override
    def Create(self, request: Any, context: Any) -> Any:
        state = self._apply(request, request.properties, {}, context, preview=request.preview)
        return provider_pb2.CreateResponse(id=f"stand-in{secrets.token_hex(4)}", properties=state)

    @override
    def Update(self, request: Any, context: Any) -> Any:
        olds = _plain(request.olds)
        state = self._apply(request, request.news, olds, context, preview=request.preview)
        return provider_pb2.UpdateResponse(properties=state)

    @override
    def Delete(self, request: Any, context: Any) -> Any:
        state = _plain(request.properties)
        command = state.get("delete")
        if command and _token(request.urn) != _COPY:
            try:
                _command(_token(request.urn), command, state, state, _deadline(request))
            except CommandFailedError as error:
                context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return empty_pb2.Empty()

    def _apply(
        self,
        request: _Apply,
        inputs: struct_pb2.Struct,
        olds: Json,
        context: grpc.ServicerContext,
        *,
        preview: bool,
    ) -> struct_pb2.Struct:
        token = _token(request.urn)
        state = struct_pb2.Struct()
        state.CopyFrom(inputs)
        if preview:
            if token != _COPY:
                for name in _OUTPUTS:
                    state[name] = rpc.UNKNOWN
            return state
        news = _plain(inputs)
        outputs = {name: olds.get(name, "") for name in _OUTPUTS}
        try:
            if token == _COPY:
                _copy_where_different(news, olds, _deadline(request))
                return state
            if command := (news.get("update") if olds else None) or news.get("create"):
                done = _command(token, command, news, olds, _deadline(request))
                outputs = {"stdout": done.stdout.removesuffix("\n"), "stderr": done.stderr.removesuffix("\n")}
        except CommandFailedError as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
        # Every output depends on every input, so it is a secret where one is.
        secret = _has_secret(inputs)
        for name, value in outputs.items():
            state[name] = {rpc._special_sig_key: rpc._special_secret_sig, "value": value} if secret else value
        return state


def _command(token: str, command: str, inputs: Json, previous: Json, deadline: float | None) -> Done:
    environment = dict(inputs.get("environment") or {})
    if inputs.get("addPreviousOutputInEnv", True):
        names = {"PULUMI_COMMAND_STDOUT": "stdout", "PULUMI_COMMAND_STDERR": "stderr"}
        environment |= {name: previous[key] for name, key in names.items() if previous.get(key)}
    stdin = inputs.get("stdin") or ""
    if token == _REMOTE:
        done = run_ssh(inputs["connection"], command, stdin=stdin, environment=environment, deadline=deadline)
    else:
        interpreter = inputs.get("interpreter") or ["/bin/sh", "-c"]
        done = run([*interpreter, command], stdin=stdin, environment=os.environ | environment, deadline=deadline)
    if done.code != 0:
        # As Go quotes it, on one line.
        quoted = json.dumps(command, ensure_ascii=False)
        raise CommandFailedError(
            f"Process exited with status {done.code}: running {quoted}:\n{done.stdout}{done.stderr}"
        )
    return done


def _copy_where_different(news: Json, olds: Json, deadline: float | None) -> None:
    source, before = news["source"], olds.get("source") or {}
    if olds and (source["hash"], news["remotePath"]) == (before.get("hash"), olds.get("remotePath")):
        return
    copy(news["connection"], Path(source["path"]), news["remotePath"], deadline=deadline)


def _deadline(request: _Bounded) -> float | None:
    return time.monotonic() + request.timeout if request.timeout else None


def _token(urn: str) -> str:
    return urn.split("::")[2].rpartition("$")[2]


def _plain(properties: struct_pb2.Struct) -> dict[str, Any]:
    """Properties without marks of secrets; an asset is a mapping with `hash` and `path`."""
    result: dict[str, Any] = _open(json_format.MessageToDict(properties))
    return result


def _open(value: object) -> Any:  # noqa: ANN401 - JSON
    match value:
        case dict():
            if value.get(rpc._special_sig_key) == rpc._special_secret_sig:
                return _open(value["value"])
            return {key: _open(part) for key, part in value.items()}
        case list():
            return [_open(part) for part in value]
        case _:
            return value


def _has_secret(properties: struct_pb2.Struct) -> bool:
    def inside(value: object) -> bool:
        match value:
            case dict():
                return value.get(rpc._special_sig_key) == rpc._special_secret_sig or any(map(inside, value.values()))
            case list():
                return any(map(inside, value))
            case _:
                return False

    return inside(json_format.MessageToDict(properties))
