"""A stack that does its work, as the stand-in API server shows it."""

import copy
import json

from cluster.reservation_pods import expectation, reservation_pod
from config.stack import StackSettings
from manifests.kai import DEPLOYMENTS
from manifests.node_labels import node_labels
from testbed.stacks import Json
from tests.support.api_server import Answer, ApiServer, deployment, node

RESERVATION_PODS = "/api/v1/namespaces/kai-resource-reservation/pods"


def as_the_stack_says(settings: StackSettings, name: str) -> Json:
    """A reservation pod on a node, as admission leaves it where everything is as the stack says."""
    pod: Json = copy.deepcopy(reservation_pod(settings, name))
    fragment = expectation(settings, name)
    if fragment is not None:
        [container] = pod["spec"]["containers"]
        container["env"] += fragment.env
        container["securityContext"] |= fragment.security_context
        container["volumeMounts"] = fragment.volume_mounts
        pod["spec"]["volumes"] = fragment.volumes
    return pod


def make_valid(api: ApiServer, settings: StackSettings) -> None:
    """Answer as a cluster on which everything of the stack works: KAI, nodes, the first node's pods."""
    for name in DEPLOYMENTS:
        api.serve(f"/apis/apps/v1/namespaces/{settings.kai.namespace}/deployments/{name}", deployment(name))
    labels = node_labels(settings)
    api.serve("/api/v1/nodes", {"items": [node(name, labels=given) for name, given in labels.items()]})
    for name in list(labels)[:1]:
        api.creates[RESERVATION_PODS] = Answer(201, json.dumps(as_the_stack_says(settings, name)).encode())
