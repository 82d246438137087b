"""caBundle: which authorities API servers trust when they call this server."""

import base64
import binascii
import logging
from typing import Any

from agents.admission.errors import ApiError
from agents.admission.kubernetes import ApiServer

_PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_NOT_FOUND = 404
_LOG = logging.getLogger(__name__)


async def publish(api: ApiServer, configuration: str, bundle: bytes) -> bool | None:
    """Make every webhook of a configuration trust exactly these authorities.

    Only caBundle is written, and only if the configuration is still the one that was read.

    Returns:
        Whether they did so before; None where there is no such configuration.

    Raises:
        ApiError: it can't be read or written; status 422 or 409 if somebody else wrote at the same time.
    """
    manifest = await _find(api, configuration)
    if manifest is None:
        return None
    encoded = base64.b64encode(bundle).decode()
    operations = [
        {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": encoded}
        for index, present in enumerate(_bundles(manifest))
        if present != bundle
    ]
    if not operations:
        return True
    version = {"op": "test", "path": "/metadata/resourceVersion", "value": manifest["metadata"]["resourceVersion"]}
    await api.patch(f"{_PATH}/{configuration}", [version, *operations])
    _LOG.info("caBundle published", extra={"configuration": configuration})
    return False


async def is_published(api: ApiServer, configurations: tuple[str, ...]) -> bool:
    """Whether somebody else, such as cert-manager, has filled every caBundle in, of configurations that are there.

    Raises:
        ApiError: they can't be read.
    """
    manifests = [await _find(api, configuration) for configuration in configurations]
    there = [manifest for manifest in manifests if manifest is not None]
    return bool(there) and all(all(_bundles(manifest)) for manifest in there)


async def _find(api: ApiServer, configuration: str) -> dict[str, Any] | None:
    """One configuration; None where it is not there: it sends nothing here, and must not hold up what others send."""
    try:
        return await api.get(f"{_PATH}/{configuration}")
    except ApiError as error:
        if error.status != _NOT_FOUND:
            raise
        _LOG.warning("a webhook configuration is not there", extra={"configuration": configuration})
        return None


def _bundles(configuration: dict[str, Any]) -> list[bytes]:
    bundles = []
    for webhook in configuration.get("webhooks") or []:
        try:
            bundles.append(base64.b64decode(webhook["clientConfig"].get("caBundle") or "", validate=True))
        except binascii.Error:
            bundles.append(b"")
    return bundles
