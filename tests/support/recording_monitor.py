"""The resource graph that a Pulumi program registers, without an engine: who, below whom, after whom, by whom.

Mocks of the SDK show a resource's inputs alone; parent, dependencies and registered outputs stand in the requests that
its monitor receives.
"""

import asyncio
import contextvars
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import pulumi
from pulumi.runtime import mocks, rpc
from typing_extensions import override

PROJECT = "kai-anywhere"
STACK = "test"
ORGANIZATION = "organization"
SERVICE_ADDRESS = "10.96.0.10"
"""The address that a Service gets once it is made."""
UNKNOWN_ID = ""
"""What a preview's engine answers as the id of a resource that is yet to be made."""


@dataclass(frozen=True)
class Registration:
    """One registered resource; others are named by their keys, `Class:logical-name`.

    Attributes:
        key: its own key.
        type: its token.
        parent: key of its parent, empty for the stack.
        provider: key of its explicit provider, or None for the default one.
        dependencies: keys of what it waits for.
        inputs: as JSON; what a preview can't know is the SDK's text for it, `rpc.UNKNOWN`.
        retained: whether deleting it leaves what it stands for.
        ignored: inputs whose changes are ignored.
        secret_outputs: outputs that are secrets beyond those of its inputs.
        hooks: what runs before it is made, by name.
        at: when it was registered, on the monotonic clock in seconds.
    """

    key: str
    type: str
    parent: str
    provider: str | None
    dependencies: frozenset[str]
    inputs: Mapping[str, Any]
    at: float
    retained: bool = False
    ignored: frozenset[str] = frozenset()
    secret_outputs: frozenset[str] = frozenset()
    hooks: tuple[str, ...] = ()


class _RefusalError(grpc.RpcError):
    """How the engine refuses a call: the SDK hands it to the program, which may try again."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._text = text

    @override
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNKNOWN

    @override
    def details(self) -> str:
        return self._text


class _Answers(mocks.Mocks):
    """Every resource is as its inputs say, and a release has the version that it was asked for."""

    def __init__(
        self, *, made: bool, state: Mapping[str, Any], refusals: Sequence[str], printed: Mapping[str, str]
    ) -> None:
        self._made = made
        self._printed = printed
        self._state = state
        self._refusals = list(refusals)
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    @override
    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        outputs = dict(args.inputs)
        if args.typ == "kubernetes:helm.sh/v3:Release":
            outputs["status"] = {"version": args.inputs.get("version")} if self._made else rpc.UNKNOWN
        if args.typ == "kubernetes:core/v1:Service" and self._made:
            outputs["spec"] = outputs["spec"] | {"clusterIP": SERVICE_ADDRESS}
        if args.typ in {"command:remote:Command", "command:local:Command"}:
            outputs["stdout"] = self._printed.get(args.name, "") if self._made else rpc.UNKNOWN
        return f"{args.name}-id" if self._made or not args.custom else UNKNOWN_ID, outputs

    @override
    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        self.asked.append((args.token, args.args))
        if self._refusals:
            raise _RefusalError(self._refusals.pop(0))
        return dict(self._state), []


class Graph(mocks.MockMonitor):
    """A monitor that keeps every registration in its order, and every component's outputs.

    Attributes:
        registrations: in the order of registration.
        outputs: what components registered, by logical name.
    """

    def __init__(self, answers: _Answers) -> None:
        super().__init__(answers)
        self._answers = answers
        self.registrations: list[Registration] = []
        self.outputs: dict[str, dict[str, Any]] = {}

    @property
    def asked(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Function calls, each as token and arguments."""
        return self._answers.asked

    @override
    def RegisterResource(self, request: Any) -> Any:
        with _loop_of_this_thread():
            response = super().RegisterResource(request)  # type: ignore[no-untyped-call]  # the SDK's own
        if request.type != "pulumi:pulumi:Stack":
            self.registrations.append(
                Registration(
                    key=_key(response.urn),
                    type=request.type,
                    parent=_key(request.parent),
                    provider=_key(request.provider.rpartition("::")[0]) if request.provider else None,
                    dependencies=frozenset(map(_key, request.dependencies)),
                    inputs=_as_sent(rpc.deserialize_properties(request.object, keep_unknowns=True)),
                    at=time.monotonic(),
                    retained=bool(request.retainOnDelete),
                    ignored=frozenset(request.ignoreChanges),
                    secret_outputs=frozenset(request.additionalSecretOutputs),
                    hooks=tuple(request.hooks.before_create),
                )
            )
        return response

    @override
    def RegisterResourceOutputs(self, request: Any) -> Any:
        if key := _key(request.urn):
            self.outputs[key] = rpc.deserialize_properties(request.outputs, keep_unknowns=True)
        return super().RegisterResourceOutputs(request)  # type: ignore[no-untyped-call]  # the SDK's own

    @override
    def Invoke(self, request: Any) -> Any:
        with _loop_of_this_thread():
            return super().Invoke(request)  # type: ignore[no-untyped-call]  # the SDK's own

    @property
    def by_key(self) -> dict[str, Registration]:
        """Registrations by key, in their order."""
        named = {registration.key: registration for registration in self.registrations}
        assert len(named) == len(self.registrations), "two resources have one name"
        return named

    @property
    def types(self) -> set[str]:
        """Tokens of everything registered."""
        return {registration.type for registration in self.registrations}

    def below(self, parent: str) -> set[str]:
        """Keys of a resource's children; of the stack's, if it is empty."""
        return {registration.key for registration in self.registrations if registration.parent == parent}


def record(  # noqa: PLR0913 - everything that an engine can know or answer
    program: Callable[[], object],
    *,
    preview: bool = True,
    deployed: bool = False,
    state: Mapping[str, Any] | None = None,
    refusals: Sequence[str] = (),
    printed: Mapping[str, str] | None = None,
) -> Graph:
    """Run a program against a monitor of its own and return what it registered.

    Args:
        program: registers resources; an Output that it returns is awaited, and every other one drained.
        preview: whether nothing is made.
        deployed: whether everything was made by an earlier run; if not, a preview does not know ids and what a
            release reports.
        state: what function calls answer.
        refusals: errors of the first function calls, before one is answered.
        printed: what commands printed, by logical name.
    """
    graph = Graph(_Answers(made=deployed or not preview, state=state or {}, refusals=refusals, printed=printed or {}))

    def run() -> None:
        with asyncio.Runner() as runner:
            runner.get_loop()
            mocks.set_mocks(
                graph.mocks, project=PROJECT, stack=STACK, preview=preview, monitor=graph, organization=ORGANIZATION
            )
            pulumi.runtime.test(program)()  # type: ignore[no-untyped-call]  # the SDK's own

    # The SDK keeps the root resource in a context variable: each program has its own. And it looks at all callers of
    # each resource, of which a thread has few: below pytest that took a quarter of the time.
    with ThreadPoolExecutor(max_workers=1) as alone:
        alone.submit(contextvars.Context().run, run).result()
    return graph


@contextmanager
def _loop_of_this_thread() -> Iterator[None]:
    """The mocks open an event loop in every worker thread of the SDK, and leave it open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _as_sent(value: Any) -> Any:  # noqa: ANN401 - JSON
    match value:
        case dict():
            return {key: _as_sent(item) for key, item in value.items()}
        case list():
            return [_as_sent(item) for item in value]
        case _:
            return rpc.UNKNOWN if isinstance(value, pulumi.output.Unknown) else value


def _key(urn: str) -> str:
    if not urn:
        return ""
    *_, types, name = urn.split("::")
    token = types.rpartition("$")[2]
    return "" if token == "pulumi:pulumi:Stack" else f"{token.rpartition(':')[2]}:{name}"
