"""One run at a time on a host."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from typing import TYPE_CHECKING

from agents.host.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agents.host.root import Root

# /run is empty after a boot, so nothing of ours stays on the host.
_LOCK = "/run/kai-anywhere-host.lock"


@contextlib.contextmanager
def only_run(root: Root) -> Iterator[None]:
    """Hold the host's lock; the kernel frees it when the process ends, however it ends.

    Raises:
        HostError: Another run holds it, or there is no place for it.
    """
    path = root.path(_LOCK)
    try:
        descriptor = os.open(str(path), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HostError(f"The lock {_LOCK} can't be opened: {error.strerror}.", "Run the agent as root.") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise HostError(
                "Another run of the host agent is changing this host.", "Wait for it to end, then run again."
            ) from error
        yield
    finally:
        os.close(descriptor)
