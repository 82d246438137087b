"""How much of a cluster is a stack's."""

from enum import StrEnum, unique


@unique
class Installs(StrEnum):
    """What this stack installs.

    `everything`: it prepares the hosts, if there are any, and installs what the cluster gets. `hosts`: it only prepares
    the machines under `hosts`, and asks no cluster; other sections install nothing then. For SSH keys that nobody else
    needs, or for hundreds of machines, in several stacks (docs/hosts.md#hosts-in-stacks-of-their-own).
    """

    EVERYTHING = "everything"
    HOSTS = "hosts"
