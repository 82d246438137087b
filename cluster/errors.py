"""Failures a person reads: what happened, why, what to do."""


class ClusterError(Exception):
    """Something about the cluster stops the program."""


class ClusterUnreachableError(ClusterError):
    """There is no cluster behind the chosen kubeconfig and context, or it does not answer."""


class LoginError(ClusterError):
    """The login can't be had, or is not accepted: nothing at all can be read, and waiting does not help."""
