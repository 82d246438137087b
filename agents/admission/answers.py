"""From a review to its answer: which mutation, what it says of the pod, and never an exception."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agents.admission.endpoints import EndpointsFile
from agents.admission.errors import BadRequestError, RefusalError, SettingsError
from agents.admission.mutation import Mutation
from agents.admission.nodes import LabelledNodes
from agents.admission.patch import difference
from agents.admission.pods import read_pod
from agents.admission.review import Answer, Request

_LOG = logging.getLogger(__name__)
_UNCHANGED = Answer(allowed=True)


@dataclass(frozen=True)
class _Served:
    mutation: Mutation
    nodes: LabelledNodes | None
    endpoints: EndpointsFile

    def answer(self, request: Request) -> Answer:
        if request.updates_a_pod and self.mutation.rewrite is not None:
            return self._answer_update(request)
        if not request.creates_a_pod:
            # A wider webhook configuration than ours: finalizers and labels must stay changeable.
            return _UNCHANGED
        pod = read_pod(request.object)
        if not self.mutation.is_for(pod, request.namespace):
            # Likewise: what the files say is none of this pod's business.
            return _UNCHANGED
        if self.nodes is not None:
            if not self.nodes.synced:
                raise RefusalError("the admission server does not know the nodes yet: try again", code=503)
            if pod["spec"].get("nodeName") not in self.nodes.names:
                return _UNCHANGED
        changed, warnings = self.mutation.apply(pod, self.endpoints.current() if self.mutation.choice else {})
        return Answer(allowed=True, patch=difference(pod, changed), warnings=tuple(warnings))

    def _answer_update(self, request: Request) -> Answer:
        pod = read_pod(request.object)
        if not self.mutation.is_for(pod, request.namespace):
            return _UNCHANGED
        return Answer(allowed=True, patch=difference(pod, self.mutation.rewritten(pod)))


class Mutations:
    """The mutations of this server, by name.

    Attributes:
        nodes: the nodes that any of them asks for.
    """

    def __init__(self, mutations: Mapping[str, Mutation], folder: Path) -> None:
        """Take the mutations.

        Args:
            mutations: by name.
            folder: may hold a file for each, `<name>-endpoints.json`.
        """
        self._served = {
            name: _Served(
                mutation,
                LabelledNodes(mutation.pods.node_labels) if mutation.pods.node_labels else None,
                EndpointsFile(folder / f"{name}-endpoints.json"),
            )
            for name, mutation in mutations.items()
        }
        self.nodes = [served.nodes for served in self._served.values() if served.nodes is not None]

    def __contains__(self, mutation: str) -> bool:
        return mutation in self._served

    def answer(self, mutation: str, request: Request) -> Answer:
        """Answer a review.

        Args:
            mutation: the last part of the path.
            request: the review.

        Raises:
            BadRequestError: this server does not serve that mutation.
        """
        if mutation not in self._served:
            raise BadRequestError(404, f"no mutation {mutation!r} is configured here")
        try:
            return self._served[mutation].answer(request)
        except RefusalError as refusal:
            return Answer(allowed=False, message=str(refusal), code=refusal.code)
        except SettingsError as error:
            _LOG.error("a mounted file is wrong", extra={"error": str(error)})
            return Answer(allowed=False, message="the admission server's settings are wrong: see its log", code=500)
        except Exception:  # noqa: BLE001 - a defect of ours must be a refusal that an API server understands
            _LOG.exception("a review could not be answered", extra={"uid": request.uid})
            return Answer(allowed=False, message="the admission server failed on this pod: see its log", code=500)
