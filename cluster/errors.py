"""Failures a person reads: what happened, why, what to do."""


class ClusterError(Exception):
    """Something about the cluster stops the program."""


class ClusterUnreachableError(ClusterError):
    """There is no cluster behind the chosen kubeconfig and context, or it does not answer."""


class OneAnswerError(ClusterUnreachableError):
    """The API server answers, and fails at what it was asked: at something else it may not."""


class LoginError(ClusterError):
    """The login can't be had, or is not accepted: nothing at all can be read, and waiting does not help."""
