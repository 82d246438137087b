"""Failures a person reads: what happened, why, what to do."""


class ClusterError(Exception):
    """Something about the cluster stops the program."""


class ClusterUnreachableError(ClusterError):
    """There is no cluster behind the chosen kubeconfig and context, or it does not answer."""
