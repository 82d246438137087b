"""Stands for one of KAI's programs: a webhook's server at ports that nothing moves, with what a pod has.

`crash` ends at once; `stubborn` does not end when it is asked to; `hang` stops working once it was ready, but not after
its second start; `serve` ends as asked. It refuses what is called `refused`. Its first lines say who it is for the API
server, and whether it may read Secrets.

`elect` takes a Lease of its namespace, or waits for it, as controller-runtime does: with what a pod finds about itself.
"""

import json
import os
import signal
import ssl
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml
from typing_extensions import override

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HUNG = Path(tempfile.gettempdir()) / "hung"


def ask(method: str, path: str, content: dict[str, Any] | None = None) -> str:
    """The API server's answer to who the kubeconfig is, or the code by which it refuses."""
    kubeconfig = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text(encoding="utf-8"))
    cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
    return _answer(
        f"{cluster['server']}{path}", method, content, Path(user["tokenFile"]), cluster["certificate-authority"]
    )


def ask_as_a_pod(method: str, path: str, content: dict[str, Any] | None = None) -> str:
    """The same without a kubeconfig."""
    server = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
    return _answer(f"{server}{path}", method, content, ACCOUNT / "token", str(ACCOUNT / "ca.crt"))


def _answer(url: str, method: str, content: dict[str, Any] | None, token: Path, authority: str) -> str:
    request = urllib.request.Request(  # noqa: S310 (the simulator's own address)
        url,
        method=method,
        data=None if content is None else json.dumps(content).encode(),
        headers={
            "Authorization": f"Bearer {token.read_text(encoding='utf-8')}",
            "Content-Type": "application/json",
        },
    )
    trusted = ssl.create_default_context(cafile=authority)
    try:
        with urllib.request.urlopen(request, context=trusted) as response:  # noqa: S310 (likewise)
            return str(response.read().decode())
    except urllib.error.HTTPError as error:
        return str(error.code)


class Webhook(BaseHTTPRequestHandler):
    """Refuses objects that are called `refused`."""

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        allowed = review["request"]["name"] != "refused"
        response = {"uid": review["request"]["uid"], "allowed": allowed, "status": {"message": "said by the program"}}
        body = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/readyz" else 404)
        self.end_headers()
        if sys.argv[1] == "hang" and not HUNG.exists():
            HUNG.touch()
            os.kill(os.getpid(), signal.SIGSTOP)

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def elect() -> None:
    """Lead while the Lease is ours; give it back when asked to end."""
    namespace = (ACCOUNT / "namespace").read_text(encoding="utf-8")
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "elected"}}
    while ask_as_a_pod("POST", leases, lease) == "409":
        time.sleep(0.2)

    def leave(*_: object) -> None:
        ask_as_a_pod("DELETE", f"{leases}/elected")
        sys.exit()

    signal.signal(signal.SIGTERM, leave)
    print("leads in", namespace, flush=True)  # noqa: T201
    while True:
        time.sleep(1)


def main() -> None:
    """Do as the first argument says."""
    behaviour, *arguments = sys.argv[1:]
    if behaviour == "crash":
        sys.exit("crashed as it was told to")
    if behaviour == "elect":
        elect()
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    who = json.loads(ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review))["status"]["userInfo"]
    print("user", who["username"], *who["extra"]["authentication.kubernetes.io/pod-name"])  # noqa: T201
    print("secrets", ask("GET", "/api/v1/secrets"))  # noqa: T201
    print("file", *(Path(argument).read_text(encoding="utf-8") for argument in arguments))  # noqa: T201
    print("variables", os.environ["SAID"], os.environ["POD_NAME"], flush=True)  # noqa: T201
    certificates = Path(tempfile.gettempdir()) / "k8s-webhook-server" / "serving-certs"
    probe = ThreadingHTTPServer(("", 8081), Webhook)
    threading.Thread(target=probe.serve_forever, daemon=True).start()
    with ThreadingHTTPServer(("", 9443), Webhook) as server:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificates / "tls.crt", certificates / "tls.key")
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        while True:
            time.sleep(1)


if __name__ == "__main__":
    main()
