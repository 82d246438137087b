"""The simplest server of the same webhook: Flask as its own quick start has it, `app.run` with a certificate.

`python -m benchmarks.flask_server`. It answers reviews of reservation pods as our server does: the same pods are left
alone, refused, or become the same (`tests/unit/benchmarks/test_flask_server.py`). It reads what it needs and proves
nothing; which nodes are Tegra is written into it. Its server closes each connection, so that each review has a
handshake of its own: that is what the simplest one costs. Flask is there because moto has it. Prints one line of JSON
once it listens, and is ended by a signal.
"""

import base64
import json
import os
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import trustme
from flask import Flask, Response, jsonify, request

from benchmarks.admission_servers import NAME
from config.reservation import Privilege
from manifests import reservation
from testbed.admission.objects import NODES
from testbed.stacks import Json, parse, webhook

APP = Flask(__name__)
_FRAGMENT = reservation.tegra_fragment(parse(webhook()), Privilege.PRIVILEGED)


@APP.post("/mutate/reservation")
def _mutate() -> Response:
    review: Json = request.get_json()["request"]
    answer: Json = {"uid": review["uid"], "allowed": True}
    if _is_meant(review):
        answer |= _mutated(review["object"]["spec"])
    return jsonify({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer})


def _is_meant(review: Json) -> bool:
    pod = review["object"]
    return (
        (review["kind"]["kind"], review["operation"]) == ("Pod", "CREATE")
        and review["namespace"] == reservation.NAMESPACE
        and pod["metadata"].get("labels", {}).get("app") == reservation.APP_LABEL
        and pod["spec"].get("nodeName") in NODES
    )


def _mutated(spec: Json) -> Json:
    names = [container["name"] for container in spec["containers"]]
    if _FRAGMENT.container not in names:
        marks = {"node": spec["nodeName"], "containers": ", ".join(names)}
        return {"allowed": False, "status": {"code": 422, "message": _FRAGMENT.container_missing.format_map(marks)}}
    index = names.index(_FRAGMENT.container)
    container, place = spec["containers"][index], f"/spec/containers/{index}"
    values = {
        "/spec/runtimeClassName": _FRAGMENT.runtime_class_name,
        "/spec/volumes": _merged("name", spec.get("volumes"), _FRAGMENT.volumes),
        f"{place}/volumeMounts": _merged("mountPath", container.get("volumeMounts"), _FRAGMENT.volume_mounts),
        f"{place}/env": _merged("name", container.get("env"), _FRAGMENT.env),
        f"{place}/securityContext": {**container.get("securityContext", {}), **_FRAGMENT.security_context},
    }
    operations = [{"op": "add", "path": path, "value": value} for path, value in values.items()]
    return {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(operations).encode()).decode()}


def _merged(key: str, entries: list[Json] | None, additions: Sequence[Json]) -> list[Json]:
    ours = {addition[key] for addition in additions}
    return [*(entry for entry in entries or [] if entry[key] not in ours), *additions]


def main() -> None:
    """Serve on one core, as ours is measured."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    authority = trustme.CA()
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        leaf = authority.issue_cert(NAME)
        leaf.private_key_pem.write_to_path(str(key))
        for pem in leaf.cert_chain_pems:
            pem.write_to_path(str(certificate), append=True)
        sys.stdout.write(json.dumps({"port": port, "authorities": authority.cert_pem.bytes().decode()}) + "\n")
        sys.stdout.flush()
        # Flask's own words about a development server are the measurement's output otherwise.
        os.environ["WERKZEUG_RUN_MAIN"] = "false"
        sys.stdout = sys.stderr
        APP.run("127.0.0.1", port, ssl_context=(str(certificate), str(key)))


if __name__ == "__main__":
    main()
