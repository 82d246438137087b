"""What is asked of the API server for pods: as a kubelet asks, with the administrator's rights."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from lightkube import AsyncClient, KubeConfig
from lightkube.resources.core_v1 import ConfigMap, Node, Pod, Secret, Service, ServiceAccountToken
from lightkube.types import PatchType

from simulator.operands.world import Object
from simulator.pods import container

_NOT_FOUND = 404
_TOKEN_LIFE_SECONDS = 3600


class Cluster:
    """The API server."""

    def __init__(self, client: AsyncClient) -> None:
        self._client: Any = client  # its overloads ask for classes known when this is written

    async def nodes(self) -> list[Object]:
        """All nodes."""
        return [node.to_dict() async for node in self._client.list(Node)]

    async def pods(self) -> list[Object]:
        """All pods."""
        return [pod.to_dict() async for pod in self._client.list(Pod, namespace="*")]

    async def services(self) -> list[Object]:
        """All Services."""
        return [service.to_dict() async for service in self._client.list(Service, namespace="*")]

    async def data(self, pod: Object) -> Mapping[tuple[str, str], container.Files]:
        """What the Secrets and ConfigMaps of the pod's volumes hold; those that are missing are left out."""
        kinds = {"Secret": Secret, "ConfigMap": ConfigMap}
        contents = {}
        for kind, name in container.sources(pod):
            try:
                resource = await self._client.get(kinds[kind], name, namespace=pod["metadata"]["namespace"])
            except httpx2.HTTPStatusError as error:
                if error.response.status_code != _NOT_FOUND:
                    raise
            else:
                contents[kind, name] = container.decoded(kind, resource.to_dict())
        return contents

    async def token(self, pod: Object) -> str:
        """A token of the pod's ServiceAccount, which dies with the pod."""
        metadata = pod["metadata"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        spec = {"audiences": [], "expirationSeconds": _TOKEN_LIFE_SECONDS, "boundObjectRef": bound}
        request: Any = ServiceAccountToken
        issued = await self._client.create(
            request.from_dict({"metadata": {}, "spec": spec}),
            pod["spec"].get("serviceAccountName") or "default",
            namespace=metadata["namespace"],
        )
        return str(issued.status.token)

    async def set_status(self, pod: Object, patch: Mapping[str, Any]) -> None:
        """Write the pod's status; a pod that is gone is fine."""
        await self._if_there(
            self._client.patch(
                Pod.Status,
                pod["metadata"]["name"],
                patch,
                namespace=pod["metadata"]["namespace"],
                patch_type=PatchType.STRATEGIC,
            )
        )

    async def delete(self, pod: Object) -> None:
        """Delete a pod whose process has ended; another pod of that name stays."""
        metadata = pod["metadata"]
        await self._if_there(self._delete(metadata["name"], metadata["namespace"], metadata["uid"]))

    async def _delete(self, name: str, namespace: str, uid: str) -> None:
        # lightkube sends no preconditions (1.0): the answer to a read says whether it is still this pod.
        pod = await self._client.get(Pod, name, namespace=namespace)
        if pod.metadata.uid == uid:
            await self._client.delete(Pod, name, namespace=namespace, grace_period=0)

    async def _if_there(self, request: Any) -> None:  # noqa: ANN401 (lightkube's coroutines)
        try:
            await request
        except httpx2.HTTPStatusError as error:
            if error.response.status_code != _NOT_FOUND:
                raise


@asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncIterator[Cluster]:
    """The cluster of a kubeconfig, deaf to proxies of the environment."""
    client = AsyncClient(config=KubeConfig.from_file(kubeconfig), trust_env=False)
    try:
        yield Cluster(client)
    finally:
        await client.close()
