"""The certificate that new connections get; connections that are open keep theirs."""

import os
import ssl

from agents.admission.certificates.pairs import Pair
from agents.admission.errors import CertificateError


class LiveTls:
    """A server's TLS context whose certificate can be exchanged while it listens.

    Attributes:
        context: for the listener.
        served: what is served, None before the first load.
    """

    def __init__(self) -> None:
        self.context = _context()
        self.served: Pair | None = None

    def load(self, pair: Pair) -> None:
        """Serve a pair from the next handshake on.

        It is loaded into another context first: a key that does not fit would leave the live one broken.

        Raises:
            CertificateError: OpenSSL refuses it; what was served stays.
        """
        if pair == self.served:
            return
        try:
            _load(_context(), pair)
        except (OSError, ValueError) as error:
            raise CertificateError(f"the certificate can't be loaded: {error}") from None
        _load(self.context, pair)
        self.served = pair


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    # OpenSSL wants a file: this one is in memory only, so that the key never reaches a disk.
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    else:
        # A Python built for a glibc before 2.27, as uv's are: the simulator runs this server with it.
        descriptor = os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR, 0o600)  # noqa: S108 (a file without a name)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(pair.key + b"\n" + pair.certificate)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
