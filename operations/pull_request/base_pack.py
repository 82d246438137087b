"""Runs this checkout's policy pack over a plan that somebody else's program made, without the engine.

The pack is a process of its own with nothing of this job's environment but PATH: the plan is hostile input.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import struct_pb2  # type: ignore[import-untyped]  # it ships no types
from pulumi.runtime import proto
from pulumi.runtime.proto import analyzer_pb2_grpc

from operations.engine_events import Finding
from operations.policy_check.configuration import PACK, Pack, configured
from operations.target import ROOT

START_SECONDS = 120.0
JUDGE_SECONDS = 300.0
_PORT_BYTES = 16


class NotJudgedError(Exception):
    """The plan was not judged; the message is a part of a sentence."""


def findings(
    resources: Iterable[Mapping[str, Any]], settings: dict[str, Any], stack: str, pack: Pack = PACK
) -> tuple[Finding, ...]:
    """What the pack objects to.

    Args:
        resources: each with `type`, `name` and `inputs`.
        settings: those of the stack, from a file that the plan's author did not write.
        stack: its name, which exceptions may be for.
        pack: this checkout's.

    Raises:
        NotJudgedError: if any resource was not judged.
    """
    deadline = time.monotonic() + JUDGE_SECONDS
    judged: list[Finding] = []
    try:
        with _running(pack, settings) as analyzer:
            for resource in resources:
                name, token = resource["name"], resource["type"]
                urn = f"urn:pulumi:{stack}::plan::{token}::{name}"
                request = proto.AnalyzeRequest(type=token, properties=_struct(resource["inputs"]), urn=urn, name=name)
                answer = analyzer.Analyze(request, timeout=max(deadline - time.monotonic(), 0.0))
                judged += [_finding(diagnostic, urn) for diagnostic in answer.diagnostics]
    except grpc.RpcError as error:
        # The client raises one that is a call too; its text may quote the plan.
        raise NotJudgedError(f"the pack did not answer ({error.code().name})") from error
    except (OverflowError, RecursionError, TypeError, ValueError) as error:
        raise NotJudgedError(f"the plan can't be handed to the pack ({type(error).__name__})") from error
    return tuple(judged)


@contextlib.contextmanager
def _running(pack: Pack, settings: dict[str, Any]) -> Iterator[analyzer_pb2_grpc.AnalyzerStub]:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    with contextlib.ExitStack() as stack:
        try:
            process = stack.enter_context(
                subprocess.Popen(
                    [pack.executable],
                    env={"PATH": path},
                    # The base branch's exceptions lie beside its stacks' files; a job may work anywhere.
                    cwd=ROOT,
                    stdout=subprocess.PIPE,
                    # A line of the plan in its log could be a command to the runner of the job.
                    stderr=subprocess.DEVNULL,
                )
            )
        except OSError as error:
            raise NotJudgedError(f"the pack can't be started ({error.strerror})") from error
        stack.callback(process.kill)
        output = process.stdout
        ready = output is not None and select.select([output], [], [], START_SECONDS)[0]
        port = os.read(output.fileno(), _PORT_BYTES).strip() if output is not None and ready else b""
        if not port.isdigit():
            raise NotJudgedError("the pack did not start")
        analyzer = analyzer_pb2_grpc.AnalyzerStub(stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{int(port)}")))
        with tempfile.TemporaryDirectory(prefix="kai-anywhere-policy-") as folder:
            by_policy = json.loads(configured(pack, settings, Path(folder)).read_text(encoding="utf-8"))
        policy_config = {name: _configuration(configuration) for name, configuration in by_policy.items()}
        analyzer.Configure(proto.ConfigureAnalyzerRequest(policyConfig=policy_config), timeout=START_SECONDS)
        yield analyzer


def _configuration(values: Mapping[str, Any]) -> proto.PolicyConfig:
    return proto.PolicyConfig(enforcementLevel=proto.MANDATORY, properties=_struct(values))


def _struct(values: Mapping[str, Any]) -> struct_pb2.Struct:
    struct = struct_pb2.Struct()
    struct.update(values)
    return struct


def _finding(diagnostic: proto.AnalyzeDiagnostic, urn: str) -> Finding:
    level = "mandatory" if diagnostic.enforcementLevel == proto.MANDATORY else "advisory"
    return Finding(
        urn=urn, message=diagnostic.message, policy=diagnostic.policyName, pack=diagnostic.policyPackName, level=level
    )
