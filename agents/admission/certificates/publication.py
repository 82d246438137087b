"""caBundle: which authorities API servers trust when they call this server."""

import base64
import binascii
import logging
from typing import Any

from agents.admission.errors import ApiError
from agents.admission.kubernetes import ApiServer

_PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_LOG = logging.getLogger(__name__)


async def published(api: ApiServer, configuration: str) -> list[bytes]:
    """The bundles that one configuration's webhooks have, in order.

    Raises:
        ApiError: it can't be read.
    """
    return _bundles(await api.get(f"{_PATH}/{configuration}"))


async def publish(api: ApiServer, configuration: str, bundle: bytes) -> None:
    """Make every webhook of a configuration trust exactly these authorities.

    Only caBundle is written, and only if the configuration is still the one that was read.

    Raises:
        ApiError: it can't be read or written; status 422 or 409 if somebody else wrote at the same time.
    """
    path = f"{_PATH}/{configuration}"
    manifest = await api.get(path)
    encoded = base64.b64encode(bundle).decode()
    operations = [
        {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": encoded}
        for index, present in enumerate(_bundles(manifest))
        if present != bundle
    ]
    if not operations:
        return
    version = {"op": "test", "path": "/metadata/resourceVersion", "value": manifest["metadata"]["resourceVersion"]}
    await api.patch(path, [version, *operations])
    _LOG.info("caBundle published", extra={"configuration": configuration})


async def is_published(api: ApiServer, configurations: tuple[str, ...]) -> bool:
    """Whether somebody else, such as cert-manager, has filled every caBundle in."""
    for configuration in configurations:
        try:
            bundles = await published(api, configuration)
        except ApiError as error:
            _LOG.warning("caBundle can't be read", extra={"error": str(error)})
            return False
        if not all(bundles):
            return False
    return True


def _bundles(configuration: dict[str, Any]) -> list[bytes]:
    bundles = []
    for webhook in configuration.get("webhooks") or []:
        try:
            bundles.append(base64.b64decode(webhook["clientConfig"].get("caBundle") or "", validate=True))
        except binascii.Error:
            bundles.append(b"")
    return bundles
