"""One host: its agent is copied there, asks what the host is, and puts into force what the stack says."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import pulumi
from pulumi_command import remote

from components import tokens
from components.hosts.answer import HostAnswerError, read_probe
from components.hosts.commands import HostAgent, HostCommands
from components.hosts.connection import command, connection, custom_timeouts
from components.hosts.verdict import HostFacts, HostVerdictError, judge
from components.kubernetes import this_stack
from config.hosts import HostCheck, HostSettings
from manifests.hosts import HostPlan

_COPY_SECONDS = 120
_COPIED_TO_WHOM_IT_REACHES = pulumi.ResourceOptions(replace_on_changes=["connection"])
"""Another address or host key is perhaps another machine, or one that was flashed, on which no agent is.

Symptom without it: `kai-host.pyz: FAILED open or read` at the probe in each `up`, until `revision` is raised. The
provider (1.2.1, copyController.go) copies again only where the source or its place differs.
"""


@dataclass(frozen=True)
class HostArgs:
    """What Host needs.

    Attributes:
        host: its settings.
        plan: what the stack expects of it.
        agent: what runs there.
        secrets: by name.
        deployed: logical names of what earlier runs made; only needed of a host that is gone.
    """

    host: HostSettings
    plan: HostPlan
    agent: HostAgent
    secrets: Mapping[str, pulumi.Output[str]]
    deployed: frozenset[str]


class Host(pulumi.ComponentResource):
    """Copy -> probe -> verdict -> configure and check; deleting it restores the host.

    It is the probe that restores the host when it is deleted: a run that fails, or is killed, while it configures the
    host has the probe in its state, and so `pulumi destroy` takes back what that run did.

    The verdict stands between probe and configure: the document that `configure` reads from stdin is an output of it,
    so a host that is not what the stack says fails before anything is changed there.

    Attributes:
        platform: what the host says it is, or None if it is gone.
        gpu_memory_mib: what KAI may share of one GPU, or None where nobody asks the host.
        gpu_count: GPUs, or None if it is gone.
        ready: what others wait for; not an output.
    """

    platform: pulumi.Output[str | None]
    gpu_memory_mib: pulumi.Output[int | None]
    gpu_count: pulumi.Output[int | None]
    ready: list[pulumi.Resource]

    def __init__(self, name: str, args: HostArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(tokens.HOST, name, None, opts)
        self._name = name
        self._args = args
        self._command = partial(command, ssh=args.host.ssh, secrets=args.secrets)
        self._commands = HostCommands(args.plan.node, this_stack(), args.agent, args.host, args.plan.library_folders)
        if args.host.gone:
            self._leave()
        else:
            self._prepare()
        self.register_outputs(
            {"platform": self.platform, "gpu_memory_mib": self.gpu_memory_mib, "gpu_count": self.gpu_count}
        )

    def _leave(self) -> None:
        """Keep a machine that does not exist any more in the state as it is, so that nothing contacts it.

        The copy has nothing to undo. The probe has: it is registered with its old inputs, and retained when it is
        deleted later. So is what configured the host, which had it in earlier versions.
        """
        self.platform = pulumi.Output.from_input(None)
        self.gpu_memory_mib = pulumi.Output.from_input(self._args.plan.gpu_memory_mib)
        self.gpu_count = pulumi.Output.from_input(None)
        self.ready = []
        opts = pulumi.ResourceOptions(parent=self, retain_on_delete=True, ignore_changes=["*"])
        kept = {f"{self._name}-probe": self._commands.probe, f"{self._name}-configured": self._commands.configure}
        for name, text in kept.items():
            if name in self._args.deployed:
                self._command(name, text, opts)

    def _prepare(self) -> None:
        limits = self._args.host.timeouts
        copied = self._copy()
        password = self._password()
        probe = self._command(
            f"{self._name}-probe",
            self._commands.probe,
            self._opts(copied, limits.probe_seconds, delete_seconds=2 * limits.configure_seconds),
            delete=self._commands.restore,
            stdin=password,
        )
        # The provider makes outputs secret where an input is, and the connection is. The answer holds no secret.
        facts = pulumi.Output.unsecret(probe.stdout).apply(self._judge)
        self.platform = facts.apply(lambda host_facts: host_facts.platform)
        self.gpu_memory_mib = facts.apply(lambda host_facts: host_facts.gpu_memory_mib)
        self.gpu_count = facts.apply(lambda host_facts: host_facts.gpu_count)
        document = facts.apply(lambda _: f"{self._args.plan.desired_text}\n")
        stdin = document if password is None else pulumi.Output.concat(password, document)
        configured = self._command(
            f"{self._name}-configured",
            self._commands.configure,
            self._opts([*copied, probe], 2 * limits.configure_seconds),
            stdin=stdin,
        )
        self.ready = [configured]
        if self._args.host.check is HostCheck.ALWAYS:
            self._command(
                f"{self._name}-check",
                self._commands.check(uuid.uuid4().hex),
                self._opts([configured], limits.probe_seconds),
                stdin=stdin,
            )

    def _copy(self) -> list[pulumi.Resource]:
        """Copy the agent; a host without SSH runs it where it is."""
        if self._args.host.ssh is None:
            return []
        copied = remote.CopyToRemote(
            f"{self._name}-agent",
            connection=connection(self._args.host.ssh, self._args.secrets),
            source=pulumi.FileAsset(self._args.agent.path),
            remote_path=self._commands.remote_agent,
            # Copied again as well: a replaced copy deletes nothing.
            triggers=[self._args.host.revision],
            opts=pulumi.ResourceOptions.merge(self._opts([], _COPY_SECONDS), _COPIED_TO_WHOM_IT_REACHES),
        )
        return [copied]

    def _judge(self, answer: str) -> HostFacts:
        try:
            facts = judge(self._args.plan, read_probe(self._args.plan.node, answer))
        except (HostAnswerError, HostVerdictError) as error:
            raise pulumi.RunError(str(error)) from None
        for note in facts.notes:
            pulumi.info(f"host '{self._args.plan.node}': {note}", resource=self)
        return facts

    def _password(self) -> pulumi.Output[str] | None:
        """The line that sudo reads; the probe needs it for the day on which it is deleted."""
        name = self._args.host.sudo_password_secret
        return None if name is None else pulumi.Output.concat(self._args.secrets[name], "\n")

    def _opts(
        self, after: list[pulumi.Resource], seconds: int, *, delete_seconds: int | None = None
    ) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(
            parent=self,
            depends_on=after,
            custom_timeouts=custom_timeouts(self._args.host, seconds=seconds, delete_seconds=delete_seconds),
        )
