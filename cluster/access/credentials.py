"""Keeps a kubeconfig's credentials in files of their own, so that a copy of the kubeconfig holds none.

Symptom: the Kubernetes provider writes the kubeconfig that it is given to a new file in the temporary folder, for Helm,
and leaves it there: one at each preview, `up`, `refresh` and `destroy` (`writeKubeconfigToFile`,
provider/pkg/provider/util.go). Affected: 4.25, and no option of the provider prevents it.
What it copies names files here instead, which clients read as they read a kubeconfig: kubectl, Helm, the provider and
lightkube all take `client-key` and `tokenFile`.

A password, a credential plugin's environment and the older `auth-provider` have no such form: they stay where they are.
"""

import base64
import binascii
import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.errors import ClusterError

_PAIR, _BEARER = ".pem", ".token"


def owner(file: str, context: str) -> str:
    """The name of the files of one context's credentials.

    Two contexts of one cluster have files each, since a running command reads its own again: a token every minute.

    Args:
        file: the kubeconfig, as the user wrote it.
        context: the context's name.
    """
    place = Path(os.path.expanduser(file)).absolute()
    return hashlib.sha256(f"{place}\0{context}".encode()).hexdigest()[:16]


def set_apart(user: Mapping[str, Any], path: Path) -> tuple[dict[str, Any], dict[Path, bytes]]:
    """A kubeconfig's user that names files in place of its credentials, and those files' content.

    A certificate and its key are one file, so that no reader meets the one of today and the other of yesterday.

    Args:
        user: the entry of a kubeconfig.
        path: the files' path, without a suffix.

    Raises:
        ClusterError: if a certificate or key is not Base64.
    """
    kept = dict(user)
    files: dict[Path, bytes] = {}
    pem = b""
    for name in ("client-certificate", "client-key"):
        if data := kept.pop(f"{name}-data", None):
            pem += _decoded(data) + b"\n"
            kept[name] = str(path.with_suffix(_PAIR))
    if pem:
        files[path.with_suffix(_PAIR)] = pem
    token = kept.pop("token", None)
    # Of both, clients take the file (client-go, clientcmd's AuthInfo).
    if token and not kept.get("tokenFile"):
        file = path.with_suffix(_BEARER)
        files[file] = str(token).encode()
        kept["tokenFile"] = str(file)
    return kept, files


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data)
    except binascii.Error as error:
        raise ClusterError(
            f"The kubeconfig's client certificate or key is not Base64: {error}\nCheck it with: kubectl config view"
        ) from error


def keep(path: Path, files: Mapping[Path, bytes]) -> None:
    """Write the files of one context's credentials, and remove those that it has no longer.

    Raises:
        OSError: if a file can't be written.
    """
    for file, content in files.items():
        replace(file, content)
    for suffix in (_PAIR, _BEARER):
        if (file := path.with_suffix(suffix)) not in files:
            file.unlink(missing_ok=True)


def replace(file: Path, content: bytes) -> None:
    """Write a file that only its owner can read; two commands at once write one each, and the last one stays.

    Raises:
        OSError: if it can't be written.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=".", delete=False) as temporary:
        temporary.write(content)
    Path(temporary.name).replace(file)
