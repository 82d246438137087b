"""What the simulator writes: keys, kubeconfigs, records, and the errors of a disk that does not let it."""

import datetime as dt
import errno
import os
import shutil
import ssl
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID
from lightkube import KubeConfig

from simulator import kubeconfig, pki, records
from simulator.errors import SimulatorError, disk_errors_explained
from simulator.files import write_private
from simulator.layout import Layout
from simulator.pki import ADMINISTRATOR, Pki
from simulator.records import Ports, ProcessRecord, Records


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki.ensure(tmp_path_factory.mktemp("folder") / "pki")


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_every_certificate_is_signed_by_the_authority_and_lasts(identities: Pki) -> None:
    authority = certificate(identities.authority)
    in_nine_years = dt.datetime.now(dt.UTC) + dt.timedelta(days=9 * 365)
    for path in (identities.server[0], *(identities.client(identity)[0] for identity in pki.IDENTITIES)):
        issued = certificate(path)
        issued.verify_directly_issued_by(authority)
        assert issued.not_valid_after_utc > in_nine_years


def test_the_server_certificate_names_loopback_and_the_service(identities: Pki) -> None:
    names = certificate(identities.server[0]).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", "kubernetes.default.svc"} <= set(names.get_values_for_type(x509.DNSName))
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "10.96.0.1"]


def test_the_administrator_is_in_the_masters_group(identities: Pki) -> None:
    subject = certificate(identities.client(ADMINISTRATOR)[0]).subject
    assert [name.value for name in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == ["system:masters"]


def test_keys_are_for_their_owner_only_and_fit_their_certificates(identities: Pki) -> None:
    assert identities.folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in identities.folder.glob("*.key")} == {0o600}
    context = ssl.create_default_context(cafile=str(identities.authority))
    for identity in pki.IDENTITIES:
        context.load_cert_chain(*identities.client(identity))  # raises where they do not belong together


def test_keys_are_made_once(identities: Pki) -> None:
    before = identities.authority.read_bytes()
    assert pki.ensure(identities.folder) == identities
    assert identities.authority.read_bytes() == before
    assert [path.name for path in identities.folder.parent.iterdir()] == ["pki"], "no temporary folder is left"


def test_a_kubeconfig_needs_no_file_beside_it(identities: Pki, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(kubeconfig.render(identities, ADMINISTRATOR, "https://127.0.0.1:1"))
    config = KubeConfig.from_file(path)
    assert config.current_context == "kai-anywhere-simulator"
    assert config.clusters["kai-anywhere-simulator"].server == "https://127.0.0.1:1"
    assert not [key for key in yaml.safe_load(path.read_text())["users"][0]["user"] if not key.endswith("-data")]


def test_a_private_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    write_private(path, b"one")
    unchanged = path.stat().st_ino
    write_private(path, b"one")
    assert path.stat().st_ino == unchanged
    write_private(path, b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path], "no temporary file is left"


RECORDS = Records(
    ports=Ports(api_server=3, egress=4),
    processes={"etcd": ProcessRecord(pid=4, started="then", fingerprint="f")},
)


def test_records_are_read_as_written(tmp_path: Path) -> None:
    path = tmp_path / "processes.json"
    assert records.read(path) is None
    records.write(path, RECORDS)
    assert records.read(path) == RECORDS


def test_a_copy_of_a_checkout_has_no_processes_and_one_that_was_moved_has_its_own(tmp_path: Path) -> None:
    original, copy, moved = (tmp_path / name for name in ("original", "copy", "moved"))
    original.mkdir()
    records.write(original / "processes.json", RECORDS.model_copy(update={"folder": str(original)}))
    shutil.copytree(original, copy)
    copied = records.read(copy / "processes.json")
    assert copied is not None
    assert (copied.ports, copied.processes) == (RECORDS.ports, {}), "a start there would stop them"
    original.rename(moved)
    read = records.read(moved / "processes.json")
    assert read is not None
    assert read.processes == RECORDS.processes


def test_records_of_a_version_whose_etcd_had_ports_are_read(tmp_path: Path) -> None:
    path = tmp_path / "processes.json"
    path.write_text('{"ports": {"etcd": 1, "etcd_peers": 2, "api_server": 3, "egress": 4}, "programs": "images"}')
    assert records.read(path) == Records(ports=RECORDS.ports, programs="images")


@pytest.mark.parametrize("content", ["", "{", "{}", '{"ports": {"api_server": "3", "egress": 4}}'])
def test_records_that_make_no_sense_count_as_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "processes.json"
    path.write_text(content)
    assert records.read(path) is None


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOSPC, "is full"),
        (errno.EACCES, "can't be written"),
        (errno.EROFS, "can't be written"),
        (errno.ENOTDIR, "a file is in the way"),
    ],
)
def test_a_disk_that_refuses_is_explained(number: int, says: str) -> None:
    with pytest.raises(SimulatorError, match=says), disk_errors_explained(Path("/somewhere")):
        raise OSError(number, os.strerror(number), "/somewhere/file")


def test_other_errors_of_the_system_stay_what_they_are() -> None:
    with pytest.raises(TimeoutError), disk_errors_explained(Path("/somewhere")):
        raise OSError(errno.ETIMEDOUT, "timed out")


def test_deleting_leaves_what_is_not_the_simulators(tmp_path: Path) -> None:
    layout = Layout.of(tmp_path / "folder")
    for folder in (layout.pki, layout.etcd, layout.logs, layout.home, layout.sockets):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    mine = layout.folder / "mine"
    mine.touch()
    layout.delete()
    assert list(layout.folder.iterdir()) == [mine]
    mine.unlink()
    layout.delete()
    assert not layout.folder.exists()
