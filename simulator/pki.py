"""Certificates and keys of the control plane: one authority, made once per simulator folder."""

import datetime as dt
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import trustme

VALIDITY = dt.timedelta(days=3650)
"""Long enough never to be met: a simulator is thrown away."""

_ORGANIZATION = "kai-anywhere-simulator"
SERVER_NAMES = (
    "127.0.0.1",
    "10.96.0.1",  # the first address of the service range is always the API server's own Service
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


@dataclass(frozen=True)
class Identity:
    """A client of the API server: the certificate's common name is the user, its organization a group."""

    file: str
    user: str
    group: str = _ORGANIZATION


ADMINISTRATOR = Identity("admin", "kai-anywhere-simulator", "system:masters")
CONTROLLER_MANAGER = Identity("kube-controller-manager", "system:kube-controller-manager")
SCHEDULER = Identity("kube-scheduler", "system:kube-scheduler")
IDENTITIES = (ADMINISTRATOR, CONTROLLER_MANAGER, SCHEDULER)


@dataclass(frozen=True)
class Pki:
    """The files of one folder's authority."""

    folder: Path

    @property
    def authority(self) -> Path:
        """The certificate that everybody trusts."""
        return self.folder / "ca.crt"

    @property
    def server(self) -> tuple[Path, Path]:
        """Certificate and key that the API server presents."""
        return self.folder / "server.crt", self.folder / "server.key"

    @property
    def service_account(self) -> tuple[Path, Path]:
        """What service-account tokens are checked and signed with; a certificate may stand for its public key."""
        return self.folder / "service-account.pub", self.folder / "service-account.key"

    def client(self, identity: Identity) -> tuple[Path, Path]:
        """Certificate and key of a client."""
        return self.folder / f"{identity.file}.crt", self.folder / f"{identity.file}.key"


def ensure(folder: Path) -> Pki:
    """Make the files in `folder` unless they are there; a run killed in between leaves nothing behind in `folder`.

    Raises:
        OSError: the folder can't be written.
    """
    pki = Pki(folder)
    if not pki.authority.is_file():
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        try:
            _make(Pki(temporary))
            temporary.replace(folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    return pki


def _make(pki: Pki) -> None:
    # Not above: every command that knows the simulator would wait for it, and few make certificates.
    import trustme  # noqa: PLC0415

    authority = trustme.CA(organization_name=_ORGANIZATION)
    _write(pki.authority, authority.cert_pem)

    def issue(files: tuple[Path, Path], user: str, group: str, *names: str) -> None:
        not_after = dt.datetime.now(dt.UTC) + VALIDITY
        pair = authority.issue_cert(*names, common_name=user, organization_name=group, not_after=not_after)
        certificate, private = files
        _write(certificate, pair.cert_chain_pems[0])
        _write(private, pair.private_key_pem)

    issue(pki.server, "kube-apiserver", _ORGANIZATION, *SERVER_NAMES)
    issue(pki.service_account, "service-accounts", _ORGANIZATION, "service-accounts")
    for identity in IDENTITIES:
        # Each has a name, though nobody asks for it: trustme marks the names as critical, and Go refuses to have none.
        issue(pki.client(identity), identity.user, identity.group, identity.file)


def _write(path: Path, content: "trustme.Blob") -> None:
    path.touch(mode=0o600)
    content.write_to_path(path)
