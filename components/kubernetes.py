"""Registers manifests, Helm releases, and the provider that brings them to the cluster.

All are registered by their type token. The SDK's class of a core kind takes the same mapping, but importing its
package costs every preview 0.6 s, an eighth of its whole time, for types that nothing here uses; that of a release
brings an HTTP client and all of YAML, a tenth of what the program's imports cost; that of the provider another tenth,
and it does not know what newer providers need.
"""

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, TypeAlias

import pulumi

from cluster.ownership.deployed_state import RELEASE
from components import tokens
from config.cluster import POLICIES_SINCE
from manifests.admission_objects import ADMISSION_GROUP
from manifests.many_nodes import together
from manifests.node_labels import MANY_NODES
from manifests.objects import HelmRelease, Manifest, StackObject, logical_name
from manifests.ownership import FIELD_MANAGER, field_manager

_TAKE_BACK = {"pulumi.com/patchForce": "true"}
"""Repairs a field that somebody edited by hand; without it server-side apply stops at the other field manager."""

_WITHOUT_WAITING = {"pulumi.com/deletionPropagationPolicy": "background"}
"""For kinds that a chart defines. They are deleted at once, and what they own in the background, as kubectl does it.

Symptom without it: a destroy that follows the first installation hangs at a Queue for up to 30 s. By default the
provider (4.25) leaves the deletion to the garbage collector, and that learns of new kinds every 30 s (Kubernetes v1.36
cmd/kube-controller-manager/app/core.go, syncPeriod). Upstream means both.
"""
_GROUPS = frozenset({"", "apps", "batch", "policy"})
"""Of Kubernetes' own that have no dot."""


_UPSERT = {"upsertExistingObjects": "true"}
"""What is there already is applied to, as it is after a run that was killed, or where KAI makes it first: preflight has
refused what is not ours by then.

Symptom without it: `resource "default" already exists` in each first `up`, of the SchedulingShard that KAI's chart
makes. Affected: the provider from 4.29 on (pulumi-kubernetes#2926); 4.25, which this project pins, takes no notice of
it. Upstream means both.
"""


def cluster_provider(
    name: str, *, kubeconfig: str, cluster_uid: str | None, opts: pulumi.ResourceOptions
) -> pulumi.ProviderResource:
    """The provider of the stack's cluster.

    Args:
        name: its logical name.
        kubeconfig: the connection that is bound to the cluster: not the settings' own kubeconfig and context, which
            name another one on another day or machine (cluster/access/binding.py).
        cluster_uid: the identity, with which preflight compares the cluster of the next run; None without a cluster.
        opts: its parent.
    """
    props = {
        "kubeconfig": kubeconfig,
        "clusterIdentifier": cluster_uid,
        # Without it a ConfigMap whose content changes is deleted and made anew: no pod gets a remote GPU meanwhile, and
        # no new pod starts that mounts it.
        "enableConfigMapMutable": "true",
        **_UPSERT,
    }
    pinned = pulumi.ResourceOptions(version=version("pulumi-kubernetes"))
    return pulumi.ProviderResource("kubernetes", name, props, pulumi.ResourceOptions.merge(opts, pinned))


def this_stack() -> str:
    """The stack as its field managers name it."""
    return f"{pulumi.get_project()}/{pulumi.get_stack()}"


Dependencies: TypeAlias = Sequence[pulumi.Input[pulumi.Resource]]


class Registrar:
    """Registers the objects of one component, each after what it depends on.

    Attributes:
        made: what was registered, by the object's name in its module.
    """

    made: dict[str, pulumi.CustomResource]

    def __init__(
        self,
        component: pulumi.ComponentResource,
        name: str,
        provider: pulumi.ProviderResource,
        waits_for: Mapping[str, Callable[[], Dependencies]] | None = None,
    ) -> None:
        """Register below a component.

        Args:
            component: the parent.
            name: its logical name.
            provider: the cluster.
            waits_for: what objects depend on besides each other, by the name that their module gives it; asked for
                when the first object needs it.
        """
        self._component, self._name, self._provider = component, name, provider
        self._waits_for = dict(waits_for or {})
        self._waited: dict[str, Dependencies] = {}
        self.made = {}

    def register_all(self, objects: Mapping[str, StackObject]) -> None:
        """Register objects in their order."""
        for name, stack_object in objects.items():
            self.register(name, stack_object.content, stack_object.depends_on, versioned=stack_object.versioned)

    def register(
        self,
        name: str,
        content: Manifest | HelmRelease,
        depends_on: Sequence[str] = (),
        opts: pulumi.ResourceOptions | None = None,
        *,
        versioned: bool = False,
    ) -> pulumi.CustomResource:
        """Register one object.

        Args:
            name: the object's name in its module.
            content: a Kubernetes object or a Helm release.
            depends_on: names of what must be there before.
            opts: options beside parent, provider and dependencies.
            versioned: whether the object's own name says its content. Another content is another resource then, and no
                replacement: of an `up` that fails midway, the engine would keep the one before as something to delete,
                and delete it once the settings are put back.
        """
        before = [dependency for needed in depends_on for dependency in self.dependencies(needed)]
        own = pulumi.ResourceOptions(parent=self._component, provider=self._provider, depends_on=before)
        complete = pulumi.ResourceOptions.merge(own, opts)
        logical = logical_name(self._name, name)
        if isinstance(content, HelmRelease):
            self.made[name] = register_release(logical, content, complete)
        elif versioned:
            own_name = logical_name(self._name, content["metadata"]["name"])
            # What it was called before its name said the content.
            former = pulumi.ResourceOptions(aliases=[pulumi.Alias(name=logical)])
            self.made[name] = register(own_name, content, pulumi.ResourceOptions.merge(complete, former))
        else:
            self.made[name] = register(logical, content, complete)
        return self.made[name]

    def dependencies(self, name: str) -> Dependencies:
        """What a name stands for: an object that was registered, or one of `waits_for`, which is asked once."""
        if name in self.made:
            return [self.made[name]]
        if name not in self._waited:
            self._waited[name] = self._waits_for[name]()
        return self._waited[name]


def register(name: str, manifest: Manifest, opts: pulumi.ResourceOptions) -> pulumi.CustomResource:
    """Register one manifest as the Pulumi resource of its kind.

    Args:
        name: the resource's logical name.
        manifest: the object.
        opts: parent, provider and dependencies.
    """
    return _register(manifest["kind"], name, manifest, opts)


@dataclass(frozen=True)
class Labeller:
    """Who labels nodes.

    Attributes:
        provider: the cluster.
        kubeconfig: the connection that is bound to it, as the provider has it.
        together: whether the engine finds this program's own provider, so that many nodes can be one resource.
    """

    provider: pulumi.ProviderResource
    kubeconfig: str
    together: bool

    def joins(self, nodes: Sized) -> bool:
        """Whether so many nodes are one resource."""
        return self.together and len(nodes) > MANY_NODES

    def register(
        self,
        name: str,
        labels: Mapping[str, Mapping[str, pulumi.Input[str]]],
        opts: pulumi.ResourceOptions,
    ) -> None:
        """Own labels of nodes by server-side apply: released, and so removed, once they are not named any more.

        A few nodes are a resource each, many are one: the engine's time grows with the number of resources, and what it
        writes with the square. Where one shape follows the other, the new one is made before the old one goes, and
        server-side apply keeps a label as long as anybody owns it.

        Args:
            name: the resource's logical name; where nodes are a resource each, the node's name follows.
            labels: by node.
            opts: parent and dependencies.
        """
        nodes = {
            node: {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": dict(ours)}}
            for node, ours in labels.items()
        }
        if self.joins(nodes):
            props = {
                "kubeconfig": self.kubeconfig,
                "fieldManager": field_manager(this_stack(), name),
                **together(nodes),
            }
            pulumi.CustomResource(tokens.MANY_NODE_LABELS, name, props, opts)
            return
        if len(nodes) > MANY_NODES:
            pulumi.log.info(
                f"Labels of {len(nodes)} nodes are a resource each, which takes long. They are one where Pulumi.yaml "
                "names this program's provider, kai-anywhere, under plugins: docs/teams.md, Many nodes."
            )
        with_provider = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(provider=self.provider))
        for node, manifest in nodes.items():
            _register("NodePatch", f"{name}-{node}", manifest, with_provider)


def _register(kind: str, name: str, manifest: Manifest, opts: pulumi.ResourceOptions) -> pulumi.CustomResource:
    group = "core/v1" if manifest["apiVersion"] == "v1" else manifest["apiVersion"]
    ours = _TAKE_BACK | {FIELD_MANAGER: field_manager(this_stack(), name)}
    if not _is_built_in(manifest["apiVersion"]):
        ours |= _WITHOUT_WAITING
    metadata = manifest["metadata"] | {"annotations": manifest["metadata"].get("annotations", {}) | ours}
    # An object that changes its API version is updated; as another resource it would be made, which finds the same
    # object, and then deleted under its old name.
    aliases = [
        pulumi.Alias(type_=f"kubernetes:{version}:{kind}") for version in _other_versions(kind) if version != group
    ]
    # Only another namespace replaces an object. The old one goes first: a backend may have the one GPU that the new one
    # waits for. And where an `up` fails midway, nothing is left to be deleted by a name that is in use again once the
    # settings are put back. Symptom without it: that `up` succeeds, and the namespace is gone.
    ours_opts = pulumi.ResourceOptions(aliases=aliases, delete_before_replace=True)
    complete = pulumi.ResourceOptions.merge(opts, ours_opts)
    return pulumi.CustomResource(f"kubernetes:{group}:{kind}", name, manifest | {"metadata": metadata}, complete)


def _is_built_in(api_version: str) -> bool:
    """Whether Kubernetes itself has a kind of this version; only its groups may end with `.k8s.io`."""
    group = api_version.rpartition("/")[0]
    return group in _GROUPS or group.endswith(".k8s.io")


def _other_versions(kind: str) -> list[str]:
    """The API versions in which the program makes a kind, where there are several: settings say which."""
    if not kind.startswith("MutatingAdmissionPolicy"):
        return []
    return [f"{ADMISSION_GROUP}/{version}" for version in POLICIES_SINCE]


def chart_version(release: pulumi.CustomResource) -> pulumi.Output[str | None]:
    """The version of a release's chart."""
    status: pulumi.Output[Any] = vars(release)["status"]
    return status.apply(lambda fields: fields.get("version"))


def register_release(name: str, release: HelmRelease, opts: pulumi.ResourceOptions) -> pulumi.CustomResource:
    """Register a Helm release under its fixed name, so that an interrupted run finds it again."""
    source = release.source
    inputs = {
        # The SDK's class says it too: the provider's answers are for a Release, not for an older resource of that name.
        "compat": "true",
        "name": release.name,
        "namespace": release.namespace,
        "chart": source.chart,
        "version": source.version,
        "repositoryOpts": None if source.repository is None else {"repo": source.repository},
        "values": dict(release.values),
        "timeout": release.timeout_seconds,
        # The program waits for the release's pods itself (cluster/waiting.py). While Helm waits, its revision is
        # pending: a run that is killed while an image is pulled would leave it so, and block each run after it.
        "skipAwait": True,
        # Not said, but read: only what is named here becomes an output.
        "status": None,
    }
    return pulumi.CustomResource(RELEASE, name, inputs, opts)
