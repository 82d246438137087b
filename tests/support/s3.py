"""State on S3 without AWS: moto's server over HTTP, and between it and pulumi a proxy that can fail."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, ClassVar

import boto3  # type: ignore[import-untyped]

from simulator.ports import free_ports
from testbed.http_server import Handler, serving
from testbed.waiting import eventually

BUCKET, REGION, KEY = "kai-anywhere-state", "eu-central-1", "alias/kai-anywhere"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": REGION}
ACCESS_DENIED = (
    403,
    '<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>',
)
KMS_ACCESS_DENIED = (
    400,
    '{"__type": "AccessDeniedException", "Message": "User: test is not authorized to perform: kms:Decrypt"}',
)
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


@dataclass(frozen=True)
class Request:
    """What pulumi asks: the KMS action stands in a header."""

    method: str
    path: str
    action: str


Fault = Callable[[Request], "tuple[int, str] | None"]


@dataclass
class Aws:
    """S3 and KMS behind a proxy.

    Attributes:
        url: where the proxy listens.
        direct: where moto listens.
        fault: status and body with which the proxy answers itself, or None where it passes a request on.
        asked: every request, in order.
    """

    url: str
    direct: str
    fault: Fault = field(default=lambda _: None)
    asked: list[Request] = field(default_factory=list)

    @property
    def backend(self) -> str:
        """The state's address for `pulumi login`: the form for other servers than AWS's own."""
        return on_server(f"s3://{BUCKET}?region={REGION}", self.url)

    @property
    def key(self) -> str:
        """The key's address for `--secrets-provider`."""
        return on_server(f"awskms://{KEY}?region={REGION}", self.url)

    def client(self, service: str) -> Any:  # noqa: ANN401 - boto3 makes its clients at run time
        """A boto3 client past the proxy."""
        return boto3.client(
            service,
            endpoint_url=self.direct,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

    def objects(self) -> dict[str, bytes]:
        """What the bucket holds."""
        s3 = self.client("s3")
        listed = s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])
        return {item["Key"]: s3.get_object(Bucket=BUCKET, Key=item["Key"])["Body"].read() for item in listed}


def on_server(url: str, server: str) -> str:
    """An address of AWS turned to another server."""
    style = "&use_path_style=true" if url.startswith("s3://") else ""
    return f"{url}&endpoint={server}{style}"


class _Proxy(Handler):
    protocol_version = "HTTP/1.1"
    aws: ClassVar[Aws]

    def _pass_on(self) -> None:
        body = self.body()
        request = Request(self.command, self.path, self.headers.get("X-Amz-Target", ""))
        self.aws.asked.append(request)
        if fault := self.aws.fault(request):
            self._answer(fault[0], fault[1].encode(), {})
            return
        connection = HTTPConnection(self.aws.direct.removeprefix("http://"), timeout=60)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            self._answer(answer.status, answer.read(), dict(answer.getheaders()))
        finally:
            connection.close()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        said = {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP | {"date", "server"}}
        if self.command == "HEAD":
            said["Content-Length"] = headers.get("Content-Length", "0")
        self.answer(status, body, said)


@contextmanager
def running(folder: Path) -> Iterator[Aws]:
    """A bucket and a key, for the length of the block; moto's log lies in `folder`."""
    [port] = free_ports(1)
    with (folder / "moto.log").open("w", encoding="utf-8") as log:
        command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | CREDENTIALS)
    aws = Aws("", f"http://127.0.0.1:{port}")
    handler = type("Proxy", (_Proxy,), {"aws": aws})
    try:
        eventually(lambda: _answers(port), within_seconds=180)
        s3, kms = aws.client("s3"), aws.client("kms")
        s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        kms.create_alias(AliasName=KEY, TargetKeyId=kms.create_key()["KeyMetadata"]["KeyId"])
        with serving(handler) as port:
            aws.url = f"http://127.0.0.1:{port}"
            yield aws
    finally:
        process.terminate()
        process.wait(timeout=60)


def _answers(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/moto-api/")
        return connection.getresponse().status < 500
    except OSError:
        return False
    finally:
        connection.close()


@dataclass(frozen=True)
class Person:
    """Somebody with a checkout and a login of their own.

    Attributes:
        folder: holds the checkout and what pulumi remembers.
        environment: of every command.
    """

    folder: Path
    environment: Mapping[str, str]

    @property
    def checkout(self) -> Path:
        """The project's folder."""
        return self.folder / "checkout"

    def pulumi(self, *arguments: str, expect: int | None = 0) -> str:
        """Run pulumi; fail unless it ends with the expected status (None: any but 0); gives what it printed."""
        done = subprocess.run(
            ["pulumi", *arguments, "--non-interactive", "--cwd", str(self.checkout)],
            env=dict(self.environment),
            check=False,
            capture_output=True,
            text=True,
            timeout=600,
        )
        output = done.stdout + done.stderr
        right = done.returncode != 0 if expect is None else done.returncode == expect
        assert right, f"pulumi {' '.join(arguments)} ended with {done.returncode}:\n{output}"
        return re.sub(r"(?m)^SDK .* WARN .*\n", "", output)
