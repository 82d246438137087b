"""What is read of a chart that lies on this machine."""

import gzip
import io
import tarfile
from pathlib import Path

from cluster.preflight.local_charts import chart_name


def test_of_an_archive_that_was_damaged_on_its_way_helm_says_what_is_wrong(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as file:
        # Long when packed too, so that damage is met while the file itself is read.
        keywords = "".join(f"- k{number**3}\n" for number in range(3000))
        (tmp_path / "Chart.yaml").write_text(f"name: kai-scheduler\nkeywords:\n{keywords}", encoding="ascii")
        file.add(tmp_path / "Chart.yaml", arcname="kai-scheduler/Chart.yaml")
    whole = gzip.compress(packed.getvalue())
    archive = tmp_path / "kai-scheduler.tgz"
    archive.write_bytes(whole)
    assert chart_name(archive) == "kai-scheduler"
    for begin in range(20, len(whole), 400):
        archive.write_bytes(whole[:begin] + bytes([whole[begin] ^ 0xFF]) * 60 + whole[begin + 60 :])
        assert chart_name(archive) in {None, "kai-scheduler"}
    for spoilt in (whole[: len(whole) // 2], b"<html>404</html>"):
        archive.write_bytes(spoilt)
        assert chart_name(archive) is None
