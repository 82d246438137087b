"""A stand-in for AWS KMS on loopback, which gives keys back as they came.

From a passphrase pulumi derives a key at each command, in a million rounds: a quarter of a second of processor time
(pulumi 3.259, sdk/go/common/resource/config/crypt.go). A key of KMS it asks for.
"""

import atexit
import json
from contextlib import ExitStack
from functools import cache
from http import HTTPStatus

from testbed.http_server import Handler, serving

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
"""The variables with which pulumi asks."""


class _Keys(Handler):
    def do_POST(self) -> None:
        sent = json.loads(self.body())
        match self.headers["X-Amz-Target"]:
            case "TrentService.Encrypt":
                answer = {"CiphertextBlob": sent["Plaintext"]}
            case "TrentService.Decrypt":
                answer = {"Plaintext": sent["CiphertextBlob"]}
            case _:
                self.answer(HTTPStatus.NOT_IMPLEMENTED)
                return
        self.answer(HTTPStatus.OK, json.dumps(answer).encode(), {"Content-Type": "application/x-amz-json-1.1"})


@cache
def secrets_provider() -> str:
    """The address of a key for `pulumi stack init --secrets-provider`; its service runs as long as this process."""
    running = ExitStack()
    atexit.register(running.close)
    port = running.enter_context(serving(_Keys, look_again_seconds=1))
    return f"awskms://alias/stacks?region=eu-central-1&endpoint=http://127.0.0.1:{port}"
