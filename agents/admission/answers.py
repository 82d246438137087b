"""From a review to its answer: which mutation, what it says of the pod, and never an exception."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agents.admission import gvirtus, reservation
from agents.admission.errors import BadRequestError, RefusalError, SettingsError
from agents.admission.gvirtus import BackendsFile
from agents.admission.nodes import TegraNodes
from agents.admission.patch import difference
from agents.admission.pods import Pod, read_pod
from agents.admission.reservation import Fragment
from agents.admission.review import Answer, Request

_LOG = logging.getLogger(__name__)
_UNCHANGED = Answer(allowed=True)
NO_BACKENDS = (
    "the admission server does not know the backends of remote GPUs yet. 'pulumi up' writes them into the ConfigMap "
    "kai-anywhere-admission-gvirtus in its namespace, and a minute or two later they are known: try again"
)


@dataclass(frozen=True)
class Mutations:
    """The mutations of this server. Without its fragment, which is read at start, `reservation` is not served.

    Attributes:
        fragment: what reservation pods get, or None.
        nodes: the Tegra nodes.
        backends: the file of remote GPUs; it comes and changes while the server runs.
    """

    fragment: Fragment | None
    nodes: TegraNodes
    backends: BackendsFile

    def answer(self, mutation: str, request: Request) -> Answer:
        """Answer a review.

        Args:
            mutation: the last part of the path, `reservation` or `gvirtus`.
            request: the review.

        Raises:
            BadRequestError: this server does not serve that mutation.
        """
        try:
            change = self._mutation(mutation, request)
            if not request.creates_a_pod:
                # A wider webhook configuration than ours: finalizers and labels must stay changeable.
                return _UNCHANGED
            pod = read_pod(request.object)
            changed, warnings = change(pod)
            return Answer(allowed=True, patch=difference(pod, changed), warnings=tuple(warnings))
        except RefusalError as refusal:
            return Answer(allowed=False, message=str(refusal), code=refusal.code)
        except SettingsError as error:
            _LOG.error("a mounted file is wrong", extra={"error": str(error)})
            return Answer(allowed=False, message="the admission server's settings are wrong: see its log", code=500)
        except BadRequestError:
            raise
        except Exception:  # noqa: BLE001 - a defect of ours must be a refusal that an API server understands
            _LOG.exception("a review could not be answered", extra={"uid": request.uid})
            return Answer(allowed=False, message="the admission server failed on this pod: see its log", code=500)

    def _mutation(self, mutation: str, request: Request) -> Callable[[Pod], tuple[Pod, Iterable[str]]]:
        match mutation:
            case "reservation" if self.fragment is not None:
                fragment, nodes = self.fragment, self.nodes
                if not nodes.synced:
                    raise RefusalError("the admission server does not know the nodes yet: try again", code=503)
                return lambda pod: (reservation.mutate(pod, request.namespace, fragment, nodes.names), ())
            case "gvirtus":
                return self._remote_gpu
            case _:
                raise BadRequestError(404, f"no mutation {mutation!r} is configured here")

    def _remote_gpu(self, pod: Pod) -> tuple[Pod, Iterable[str]]:
        if not gvirtus.asks(pod):
            # A wider webhook configuration than ours: what the file says is none of this pod's business.
            return pod, ()
        backends = self.backends.current()
        if backends is None:
            raise RefusalError(NO_BACKENDS, code=503)
        return gvirtus.mutate(pod, backends), gvirtus.warnings(pod, backends)
