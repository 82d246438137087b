"""What is read of a cluster at once: lists beside each other, each a page at a time, and what could not be seen.

Read-only, with whatever rights the user has: what the API server refuses is noted down, and the rest is read.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import ParamSpec, TypeVar

from typing_extensions import override

from cluster.access.client import Cluster
from cluster.errors import ClusterError, ClusterUnreachableError, LoginError, OneAnswerError

_PARALLEL = 8

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def at_once() -> Iterator[Executor]:
    """Give threads that ask several things at a time.

    At an error, or Ctrl-C, what was not begun is not begun any more.
    """
    threads = ThreadPoolExecutor(_PARALLEL)
    try:
        yield threads
    finally:
        threads.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class Unseen:
    """What could not be read.

    Attributes:
        what: in words, as `pods`.
        why: the API server's answer.
        but: the namespace of which it could be read; empty where it could not at all.
    """

    what: str
    why: str
    but: str = ""

    @override
    def __str__(self) -> str:
        """As a person reads it."""
        return f"{self.what}: {self.why}"


class Reader(AbstractContextManager["Reader"]):
    """Asks several things at a time. Each is asked at once, and called for its answer.

    At an error, or Ctrl-C, what was not begun is not begun any more.

    Attributes:
        unseen: what could not be read, of what was called for so far.
    """

    def __init__(self, cluster: Cluster, *, insists: bool = True, whole: bool = False) -> None:
        """Ask nothing yet.

        Args:
            cluster: where.
            insists: whether no answer, or no login, is an error, and not noted down as a refusal is.
            whole: whether it is one too where the API server answers and fails.
        """
        self.unseen: list[Unseen] = []
        self._cluster = cluster
        self._insists = insists
        self._whole = whole
        self._pool = ThreadPoolExecutor(_PARALLEL)

    @override
    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def ask(
        self, what: str, otherwise: T, question: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Callable[[], T]:
        """Ask anything.

        Args:
            what: it is, in words.
            otherwise: what the answer is where the API server refuses it, or fails at it.
            question: what asks, with its arguments.
            args: of the question.
            kwargs: of the question.

        Raises:
            ClusterUnreachableError: when called for the answer, if the API server does not answer.
            LoginError: likewise, if the login is not accepted.
        """
        answer = self._pool.submit(question, *args, **kwargs)

        def taken() -> T:
            try:
                return answer.result()
            except ClusterError as error:
                silent = self._whole or not isinstance(error, OneAnswerError)
                if self._insists and silent and isinstance(error, ClusterUnreachableError | LoginError):
                    raise
                self.unseen.append(Unseen(what, str(error).splitlines()[0]))
                return otherwise

        return taken

    def objects(  # noqa: PLR0913 - the parts of a request
        self,
        what: str,
        path: str,
        kind: type[T],
        *,
        params: dict[str, str] | None = None,
        metadata: bool = False,
        namespace: str = "",
    ) -> Callable[[], tuple[T, ...]]:
        """Ask for every object under a path of the API; there is none where the API server does not know the kind.

        Args:
            what: they are, in words.
            path: of a list.
            kind: the model that each object is read as.
            params: of the request, such as a selector.
            metadata: whether to ask for nothing but that.
            namespace: whose objects are read where those of all namespaces may not be.

        Raises:
            ClusterUnreachableError: when called for the answer, if the API server does not answer.
            LoginError: likewise, if the login is not accepted.
        """

        def read(place: str) -> tuple[T, ...]:
            return tuple(self._cluster.objects(place, kind, params=params, metadata=metadata))

        everywhere = self.ask(what, None, read, path)

        def taken() -> tuple[T, ...]:
            objects = everywhere()
            if objects is None and namespace:
                group, _, plural = path.rpartition("/")
                with suppress(ClusterError):
                    objects = read(f"{group}/namespaces/{namespace}/{plural}")
                    self.unseen[-1] = replace(self.unseen[-1], but=namespace)
            return objects or ()

        return taken
