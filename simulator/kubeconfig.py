"""Kubeconfigs with everything inside: no file beside them is needed, nothing secret is on a command line."""

import base64
from pathlib import Path

import yaml

from simulator.pki import Identity, Pki

CONTEXT = "kai-anywhere-simulator"
"""Cluster, user and context all carry this name: it must not be mistaken for a real cluster's."""


def render(pki: Pki, identity: Identity, server: str) -> bytes:
    """The kubeconfig by which `identity` reaches the API server at `server`."""
    certificate, key = pki.client(identity)
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": CONTEXT,
            "clusters": [
                {"name": CONTEXT, "cluster": {"server": server, "certificate-authority-data": _encoded(pki.authority)}}
            ],
            "users": [
                {
                    "name": CONTEXT,
                    "user": {"client-certificate-data": _encoded(certificate), "client-key-data": _encoded(key)},
                }
            ],
            "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT}}],
        },
        sort_keys=False,
    ).encode()


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
