"""How much of a cluster is a stack's."""

from enum import StrEnum, unique


@unique
class Installs(StrEnum):
    """How much of a cluster is this stack's.

    `everything`: the hosts, if there are any, and what the cluster gets. `hosts`: only the machines under `hosts` are
    prepared, and no cluster is asked: with SSH keys that nobody else needs, or for hundreds of machines, in several
    stacks (docs/hosts.md#hosts-in-stacks-of-their-own). Other sections install nothing then.
    """

    EVERYTHING = "everything"
    HOSTS = "hosts"
