"""The simplest server of the same webhook: Flask as its own quick start has it, `app.run` with a certificate.

`python -m benchmarks.flask_server`. It adds to a reservation pod what our server adds, and checks nothing. Its server
closes each connection, so that each review has a handshake of its own: that is what the simplest one costs. Flask is
there because moto has it. Prints one line of JSON once it listens, and is ended by a signal.
"""

import base64
import json
import logging
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import trustme
from flask import Flask, Response, jsonify, request

from benchmarks.admission_servers import NAME
from config.reservation import Privilege
from manifests import reservation
from testbed.stacks import parse, webhook

_APP = Flask(__name__)
_FRAGMENT = reservation.tegra_fragment(parse(webhook()), Privilege.PRIVILEGED)


@_APP.post("/mutate/reservation")
def _mutate() -> Response:
    review: dict[str, Any] = request.get_json()["request"]
    container = "/spec/containers/0"
    operations: list[dict[str, Any]] = [
        {"op": "add", "path": "/spec/volumes", "value": _FRAGMENT.volumes},
        {"op": "add", "path": f"{container}/volumeMounts", "value": _FRAGMENT.volume_mounts},
        {"op": "replace", "path": f"{container}/securityContext", "value": _FRAGMENT.security_context},
        *({"op": "add", "path": f"{container}/env/-", "value": variable} for variable in _FRAGMENT.env),
    ]
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    answer = {"uid": review["uid"], "allowed": True, "patchType": "JSONPatch", "patch": patch}
    return jsonify({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer})


def main() -> None:
    """Serve on one core, as ours is measured."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    authority = trustme.CA()
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        made = authority.issue_cert(NAME)
        made.private_key_pem.write_to_path(str(key))
        for pem in made.cert_chain_pems:
            pem.write_to_path(str(certificate), append=True)
        sys.stdout.write(json.dumps({"port": port, "authorities": authority.cert_pem.bytes().decode()}) + "\n")
        sys.stdout.flush()
        # Flask's own words about a development server are the measurement's output otherwise.
        os.environ["WERKZEUG_RUN_MAIN"] = "false"
        sys.stdout = sys.stderr
        _APP.run("127.0.0.1", port, ssl_context=(str(certificate), str(key)))


if __name__ == "__main__":
    main()
