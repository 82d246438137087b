"""Runs the pulumi CLI on a target."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from cluster.access.binding import bind
from cluster.access.client import Cluster
from cluster.access.kubeconfig import choose_context
from cluster.errors import ClusterError
from cluster.ownership.deployed_state import STACK, TOP, DeployedState, is_of_this_program
from cluster.ownership.giving_back import DESTROYS
from cluster.ownership.leftovers import Leftover
from cluster.preflight.namespaces import judge_namespaces
from cluster.preflight.remembered_nodes import REFRESHES
from cluster.preflight.run import another_cluster, where
from manifests.wording import first_of
from operations.destroying import WITHOUT_KAI, Destroying, used_by
from operations.engine_events import parse_events
from operations.errors import OperationError
from operations.stack_file import read_stack_file
from operations.target import Target
from toolchain.progress import say

NO_SUCH_STACK = "no stack named"
"""In pulumi's words where the backend has no stack of the name."""
_ENCRYPTED = (
    "Give the stack's passphrase; for a new stack, choose one and keep it: export PULUMI_CONFIG_PASSPHRASE, or "
    "PULUMI_CONFIG_PASSPHRASE_FILE with the name of a file that holds it."
)
_FORBIDDEN = "Give your user the right to the file that pulumi names: a run as root may have made it."
_CTRL_C = "^C received"


class Resource(BaseModel, extra="ignore", frozen=True):
    """A resource as the state has it; secrets in it are encrypted."""

    urn: str = ""
    type: str
    inputs: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    custom: bool = True
    """Whether a provider made it; a component is only a name."""
    protect: bool = False
    retained: bool = Field(default=False, alias="retainOnDelete")
    """Whether deleting it only forgets it."""

    @property
    def name(self) -> str:
        """Its logical name."""
        return self.urn.rsplit("::", 1)[-1]


class PendingOperation(BaseModel, extra="ignore", frozen=True):
    """What a killed run had begun."""

    resource: Resource
    type: str
    """`creating`, `updating`, `deleting`."""


class Manifest(BaseModel, extra="ignore", frozen=True):
    """Who wrote a state."""

    version: str = ""
    """Of the engine."""


class Checkpoint(BaseModel, extra="ignore", frozen=True):
    """What a stack remembers."""

    manifest: Manifest = Manifest()
    resources: list[Resource] = []
    pending: list[PendingOperation] = Field(default=[], validation_alias="pending_operations")

    @property
    def state(self) -> DeployedState:
        """As far as it decides whose an object is."""
        ours = (resource for resource in self.resources if is_of_this_program(resource.urn))
        return DeployedState.of((resource.type, resource.outputs) for resource in ours)

    @property
    def outputs(self) -> dict[str, Any]:
        """What the component above everything tells; a team's own project need not make the stack's outputs of it."""
        return next((resource.outputs for resource in self.resources if resource.type == TOP), {})


class _Export(BaseModel, extra="ignore", frozen=True):
    deployment: Checkpoint


def pulumi(target: Target, *arguments: str) -> None:
    """Run a pulumi command that a person watches.

    Raises:
        OperationError: if it fails; it has said why.
        KeyboardInterrupt: a person ended it.
    """
    with tempfile.TemporaryDirectory(prefix="kai-anywhere-") as folder:
        log = Path(folder) / "events.jsonl"
        command = ["pulumi", *arguments, "--cwd", str(target.project), "--event-log", str(log)]
        # Unlocks --event-log.
        status = watched(command, dict(target.environment) | {"PULUMI_DEBUG_COMMANDS": "true"})
        said = log.read_text(encoding="utf-8", errors="replace") if status != 0 and log.exists() else ""
        # On a terminal pulumi takes Ctrl-C as a key, so that nobody else hears of it, and ends as after an error.
        if _CTRL_C in said:
            raise KeyboardInterrupt
        if arguments[0] == "up" and _went_no_further_than_a_preview(said):
            raise OperationError("Nothing was changed; the reason is above.")
    if status < 0:
        short = " The system does so where memory runs short." if -status == signal.SIGKILL else ""
        raise OperationError(
            f"pulumi {arguments[0]} was ended by a signal: {signal.strsignal(-status)}.{short} "
            "The same command goes on from what is there."
        )
    if status != 0:
        # A host's connection fails inside the command provider, whose words the program never sees.
        hosts = " What errors of hosts mean: docs/hosts.md, When it fails." if target.settings.hosts else ""
        # Pulumi names its own options, which `up` and `down` here don't have.
        unasked = arguments[0] != "preview" and "--yes" not in arguments and not sys.stdout.isatty()
        agreed = " Where it can't ask at a terminal, PULUMI_SKIP_CONFIRMATIONS=true agrees." if unasked else ""
        raise OperationError(f"pulumi {arguments[0]} failed (status {status}); the reason is above.{hosts}{agreed}")


def _went_no_further_than_a_preview(events: str) -> bool:
    """Whether nothing came after a preview that succeeded: somebody was asked then, and did not say yes.

    The engine's last event is that it has ended (pulumi 3.259). Pulumi's words for a no and for Ctrl-C at its question
    are on the terminal alone.
    """
    before_the_end, _ = parse_events(events.rstrip("\n").split("\n")[-2:-1])
    return any(
        event.summary is not None and event.summary.of_a_preview and event.summary.result == "succeeded"
        for event in before_the_end
    )


def watched(command: Sequence[str], environment: Mapping[str, str], *, timeout_seconds: float | None = None) -> int:
    """Run pulumi where a person sees it; gives its exit status.

    At Ctrl-C pulumi ends what it has begun, releases the stack, and ends by itself; it takes another Ctrl-C as a kill.

    Raises:
        KeyboardInterrupt: after pulumi has ended.
        subprocess.TimeoutExpired: pulumi did not end, and was killed.
    """
    sys.stdout.flush()
    with _noted_interrupts() as interrupts, subprocess.Popen(command, env=dict(environment)) as process:
        try:
            status = process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    if interrupts:
        raise KeyboardInterrupt
    return status


@contextmanager
def _noted_interrupts() -> Iterator[list[int]]:
    """Interrupts while the block runs; not as exceptions, which could come before there is anything to wait for."""
    interrupts: list[int] = []
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield interrupts
        return
    signal.signal(signal.SIGINT, lambda number, _frame: interrupts.append(number))
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def up(target: Target, *options: str) -> None:
    """`pulumi up` on the stack's own cluster.

    Raises:
        ClusterError: if there is no such kubeconfig or context.
        OperationError: if the cluster is another one, or pulumi fails.
    """
    check_context(target)
    select_stack(target)
    bind_cluster(target)
    pulumi(target, "up", "--stack", target.stack, *options, *_unattended(target))


def repair(target: Target) -> None:
    """`pulumi up --refresh` on the stack's own cluster.

    Raises:
        ClusterError: if there is no such kubeconfig or context.
        OperationError: if the cluster is another one, or pulumi fails.
    """
    up(replace(target, environment=dict(target.environment) | {REFRESHES: "true"}), "--refresh")


def destroy(target: Target, *options: str, ask: Callable[[], bool] | None = None) -> None:
    """`pulumi destroy` on the stack's own cluster; it says what it waits for, which pulumi does not.

    Args:
        target: the stack.
        options: of pulumi; by default it asks as pulumi does, and a simulator's stack goes with its resources.
        ask: asks whoever sits there, after a preview. Pulumi's own question comes with a display that is drawn anew
            all the time, over whatever else is said meanwhile.

    Raises:
        ClusterError: if there is no such kubeconfig or context.
        OperationError: if the cluster is another one, a killed run had begun something, or pulumi fails.
    """
    check_context(target)
    select_stack(target)
    remembered = checkpoint(target)
    _refuse_what_was_begun(target, remembered)
    state = bind_cluster(target)
    # What the stack adopted is given back by the program, whatever the settings say by now.
    program = ["--run-program"] if state.adopted else []
    # Without it pulumi ends with the advice to run `pulumi stack rm`, which does not know where a simulator's state is.
    remove = ["--remove"] if target.simulated else []
    # Helm fails at a release that somebody uninstalled; a refresh forgets it.
    always = ["destroy", "--stack", target.stack, "--refresh", *program]
    agreed = list(options or (*remove, *_unattended(target)))
    going = replace(target, environment=dict(target.environment) | {DESTROYS: "true"})
    with _in_its_cluster(target, state) as end:
        config = _before(target, end)
        if ask is not None and not agreed and remembered.resources:
            pulumi(going, *always, "--preview-only")
            if not ask():
                raise OperationError("Nothing was changed.")
            agreed = ["--yes", "--skip-preview"]
        if end is None:
            pulumi(going, *always, *agreed)
            return
        if agreed or skips_confirmations(target):
            _make_way(target, remembered, end)
        with end.explained():
            pulumi(going, *always, *agreed, *([] if target.simulated else ["--non-interactive"]))
        if config is not None:
            _take(target, end, config)


def skips_confirmations(target: Target) -> bool:
    """Whether pulumi takes an answer for given."""
    return target.environment.get("PULUMI_SKIP_CONFIRMATIONS", "").lower() in {"1", "true"}


@contextmanager
def _in_its_cluster(target: Target, state: DeployedState) -> Iterator[Destroying | None]:
    """What comes before and after a destroy in the stack's own cluster; None where the stack has nothing there.

    Raises:
        OperationError: a namespace is somebody else's by now, or the cluster can't be asked.
    """
    if not state.releases and not any(name.startswith("Namespace/") for name in state.objects):
        yield None
        return
    try:
        cluster = Cluster.connect(target.settings.cluster)
    except ClusterError as error:
        raise OperationError(f"{error}\nNothing was changed.") from error
    with closing(cluster):
        yield Destroying(cluster, state, say)


def _before(target: Target, end: Destroying | None) -> Leftover | None:
    """Refuse what would take something of others, and warn of what stops working; gives KAI's Config.

    Raises:
        OperationError: a namespace is somebody else's by now, or the cluster can't be asked.
    """
    if end is None:
        return None
    try:
        _refuse_what_others_made(end)
        config = end.config()
    except ClusterError as error:
        raise OperationError(f"{error}\nNothing was changed.") from error
    # Who may not list them can remove the stack all the same.
    with suppress(ClusterError):
        for service in end.without_server():
            say(
                f"warning: APIService {service.name} has no server that answers ({service.unavailable}): the stack's "
                "namespaces will wait for it. Start that server first; if it was removed for good, whoever installed "
                "it removes the APIService too."
            )
    if not target.simulated:
        # Who may not list pods can remove the stack all the same.
        with suppress(ClusterError):
            if users := end.users():
                say(f"warning: {used_by(users)} {WITHOUT_KAI}")
    return config


def _make_way(target: Target, remembered: Checkpoint, end: Destroying) -> None:
    """Remove what hooks of a killed destroy left in Helm's way, once the state's lock says that no run is at work.

    Raises:
        OperationError: another run is at work, or the cluster can't be asked.
    """
    try:
        if leftovers := end.in_the_way():
            settle_pending(target, remembered)
            end.make_way(leftovers)
    except ClusterError as error:
        raise OperationError(f"{error}\nNothing of the stack was changed.") from error


def _take(target: Target, end: Destroying, config: Leftover) -> None:
    """Remove what the last hook left.

    Raises:
        OperationError: the cluster can't be asked, or refuses.
    """
    try:
        end.take(config)
    except ClusterError as error:
        raise OperationError(
            f"pulumi destroy came to its end, and left {config.name}: {error}\n"
            f"Remove that too: kai-anywhere rollback --stack {target.stack}"
        ) from error


def _refuse_what_was_begun(target: Target, remembered: Checkpoint) -> None:
    """Stop before the state forgets what a killed run was making: with its refresh, pulumi does so without a word.

    A simulator's stack goes all the same: nobody else has anything there.

    Raises:
        OperationError: a run was killed, or is at work.
    """
    begun = [
        operation.resource.name
        for operation in remembered.pending
        # A host is given back by what the state had before (components/hosts/host.py).
        if operation.type == "creating" and operation.resource.type.startswith("kubernetes:")
    ]
    if begun and not target.simulated:
        raise OperationError(
            f"A run of stack '{target.stack}' was killed while it was making {first_of(begun)}, or is at work. Nothing "
            "was changed: pulumi destroy would leave what there is of it, and forget it.\n"
            f"Undo that too: kai-anywhere rollback --stack {target.stack}. Or let `pulumi up` come to its end first."
        )


def _refuse_what_others_made(end: Destroying) -> None:
    """Stop before a namespace goes that is somebody else's by now; pulumi knows it by its name alone.

    Raises:
        ClusterError: the cluster can't be asked.
        OperationError: there is one.
    """
    names = sorted(name.removeprefix("Namespace/") for name in end.state.objects if name.startswith("Namespace/"))
    namespaces = [namespace for name in names if (namespace := end.cluster.namespace(name)) is not None]
    if findings := list(judge_namespaces(namespaces, end.state)):
        raise OperationError("Nothing was changed.\n" + "\n".join(map(str, findings)))


def check_context(target: Target) -> None:
    """Before anything else: who gave a wrong kubeconfig needs no login to a backend to hear it.

    Hosts alone need none.

    Raises:
        ClusterError: if there is no such kubeconfig or context.
    """
    if target.settings.hosts_alone:
        return
    choose_context(target.settings.cluster.kubeconfig, target.settings.cluster.context)


def _unattended(target: Target) -> list[str]:
    """A simulator has nobody to ask."""
    return ["--yes", "--skip-preview"] if target.simulated else []


def select_stack(target: Target) -> None:
    """Make the stack in the backend unless it is there; free it from a command that was killed, in a simulator."""
    # By the option: pulumi refuses a name behind the command where somebody has exported PULUMI_OPTION_STACK.
    result = _ask(target, "stack", "select", "--create", "--stack", target.stack)
    if result.returncode != 0:
        raise OperationError(
            f"pulumi can't open the stack '{target.stack}': {result.stderr.strip()}\n"
            + _remedy(result.stderr, "Log in to a backend first: pulumi login --local")
        )
    _free(target)


def _remedy(said: str, login: str) -> str:
    """What to do where pulumi does not open a state: mostly a login is missing."""
    if "permission denied" in said:
        return _FORBIDDEN
    # In capitals where it is the variable that names a file which is not there.
    return _ENCRYPTED if "passphrase" in said.lower() else login


def not_made(stack: str) -> OperationError:
    """The error of a command that only looks, and so makes no stack where the backend has none of that name."""
    return OperationError(
        f"The backend has no stack '{stack}' yet, so there is no preview of it. Make it there, once: pulumi stack init "
        f"{stack}, with your secrets provider (docs/teams.md, State and secrets). Then run this again."
    )


def check_protection(target: Target) -> None:
    """Refuse to make a stack whose secrets an empty passphrase would protect.

    In a job PULUMI_CONFIG_PASSPHRASE is an empty text where there is no such secret.

    Raises:
        OperationError: if the backend has no such stack, and nothing says what is to encrypt its secrets.
    """
    environment = target.environment
    empty = environment.get("PULUMI_CONFIG_PASSPHRASE") == "" and not environment.get("PULUMI_CONFIG_PASSPHRASE_FILE")
    if target.simulated or not empty:
        return
    if "secretsprovider" in read_stack_file(target.project / f"Pulumi.{target.stack}.yaml"):
        return
    if NO_SUCH_STACK in _ask(target, "stack", "select", "--stack", target.stack).stderr:
        raise OperationError(
            f"The backend has no stack '{target.stack}', and PULUMI_CONFIG_PASSPHRASE is empty: it would be made with "
            "secrets that nothing protects. Nothing was changed.\n"
            f"Make it once, with a key or a passphrase: pulumi stack init {target.stack} (docs/teams.md, State and "
            "secrets). Commit what it writes into the stack's file."
        )


def _free(target: Target) -> None:
    """Take away the lock of a simulator's state: this command holds the simulator's, so whoever has it is dead."""
    if target.simulated:
        _ask(target, "cancel", "--yes", "--stack", target.stack)


def deployed_state(target: Target) -> DeployedState:
    """What the stack remembers, as far as it decides whose an object is.

    Raises:
        OperationError: if the state can't be read: without it, another cluster would not be recognised.
    """
    return checkpoint(target).state


def checkpoint(target: Target) -> Checkpoint:
    """What the stack remembers; a stack that was never made remembers nothing.

    Raises:
        OperationError: if the state can't be read.
    """
    result = _ask(target, "stack", "export", "--stack", target.stack)
    if NO_SUCH_STACK in result.stderr:
        return Checkpoint()
    if result.returncode != 0:
        raise OperationError(
            f"The state of stack '{target.stack}' can't be read: {result.stderr.strip()}\n"
            + _remedy(result.stderr, "Log in to the backend that holds it.")
        )
    return read_export(result.stdout, target.stack)


def read_export(text: str, stack: str) -> Checkpoint:
    """What `pulumi stack export` printed of a stack.

    Raises:
        OperationError: if it is of another form.
    """
    try:
        return _Export.model_validate_json(text).deployment
    except ValidationError as error:
        # The error's own text quotes the state.
        problem = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, problem["loc"]))
        raise OperationError(
            f"The state of stack '{stack}' is not what pulumi writes: {place}: {problem['msg']}"
        ) from None


def settle_pending(target: Target, remembered: Checkpoint) -> None:
    """Forget what a killed run had begun. It takes the state's lock, and so fails while another run is at work.

    Only the stack itself is refreshed, which asks no cluster.

    Args:
        target: the stack.
        remembered: its state.

    Raises:
        OperationError: if the lock is held, or pulumi fails.
    """
    roots = [f"--target={resource.urn}" for resource in remembered.resources if resource.type == STACK]
    options = ["--yes", "--skip-preview", "--clear-pending-creates", *roots]
    _free(target)
    with _noted_interrupts() as interrupts:
        result = _ask(target, "refresh", "--stack", target.stack, *options)
    if interrupts:
        raise KeyboardInterrupt
    if result.returncode != 0:
        message = result.stderr.strip() or result.stdout.strip()
        remedy = (
            "Wait until that run has ended. If it is dead, take its lock away, and start this command again: "
            f"pulumi cancel --yes --stack {target.stack}"
            if "currently locked" in message
            else _ENCRYPTED
        )
        raise OperationError(f"The state of stack '{target.stack}' can't be changed: {message}\n{remedy}")


def bind_cluster(target: Target) -> DeployedState:
    """Refuse another cluster than the stack's, and keep the connection where the Kubernetes provider looks for it.

    The engine works without our program in `destroy` and in every refresh, so this comes before it.

    Returns:
        What the stack remembers.

    Raises:
        OperationError: if the cluster is another one, or can't be asked.
    """
    state = deployed_state(target)
    if state.cluster_uid is None:
        return state
    try:
        with closing(Cluster.connect(target.settings.cluster)) as cluster:
            uid = cluster.uid()
        if other := another_cluster(state, where(cluster.server, cluster.context), uid):
            raise OperationError(f"Stack '{target.stack}': nothing was changed.\n{other}")
        bind(cluster.chosen, uid)
    except ClusterError as error:
        raise OperationError(f"{error}\nNothing was changed.") from error
    return state


def _ask(target: Target, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["pulumi", *arguments, "--non-interactive", "--cwd", str(target.project)],
        env=dict(target.environment),
        check=False,
        capture_output=True,
        text=True,
    )
