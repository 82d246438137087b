"""What is asked at once, and what is said of what could not be seen."""

from threading import Barrier, Event, Timer

import pytest

from cluster.access.answers.nodes import Node
from cluster.access.answers.pods import Pod
from cluster.access.client import Cluster
from cluster.access.lists import Reader, at_once
from cluster.errors import ClusterUnreachableError
from tests.support.api_server import ApiServer

_PODS = "/api/v1/pods"
_ROBOTS = "/api/v1/namespaces/robots/pods"


def test_answers_have_the_order_in_which_they_are_called_for(api: ApiServer, cluster: Cluster) -> None:
    with Reader(cluster) as reader:
        pods, nodes = reader.objects("pods", _PODS, Pod), reader.objects("nodes", "/api/v1/nodes", Node)
        assert [node.name for node in nodes()] == ["jetson-1"]
        assert pods() == ()
    assert reader.unseen == []
    assert {request.path for request in api.asked} == {_PODS, "/api/v1/nodes"}


def test_a_refusal_is_noted_down_in_a_line_and_the_rest_is_read(api: ApiServer, cluster: Cluster) -> None:
    api.fail(_PODS, 403)
    with Reader(cluster) as reader:
        pods, nodes = reader.objects("pods", _PODS, Pod), reader.objects("nodes", "/api/v1/nodes", Node)
        assert (pods(), len(nodes())) == ((), 1)
    [unseen] = reader.unseen
    assert str(unseen).startswith("pods: The cluster at ")
    assert "\n" not in unseen.why


def test_what_is_no_list_has_another_answer_instead(api: ApiServer, cluster: Cluster) -> None:
    api.fail("/version", 403)
    with Reader(cluster) as reader:
        assert reader.ask("version", None, cluster.version)() is None
    assert [gap.what for gap in reader.unseen] == ["version"]


def test_a_namespace_is_read_where_no_others_may_be(api: ApiServer, cluster: Cluster) -> None:
    api.fail(_PODS, 403)
    pod = {"metadata": {"name": "arm", "namespace": "robots"}, "spec": {}, "status": {}}
    api.serve(_ROBOTS, {"items": [pod]})
    with Reader(cluster) as reader:
        assert [pod.name for pod in reader.objects("pods", _PODS, Pod, namespace="robots")()] == ["arm"]
    assert [(gap.what, gap.but) for gap in reader.unseen] == [("pods", "robots")]


def test_a_namespace_that_may_not_be_read_either_is_no_exception(api: ApiServer, cluster: Cluster) -> None:
    api.fail(_PODS, 403)
    api.fail(_ROBOTS, 403)
    with Reader(cluster) as reader:
        assert reader.objects("pods", _PODS, Pod, namespace="robots")() == ()
    assert [(gap.what, gap.but) for gap in reader.unseen] == [("pods", "")]


def test_an_answer_that_does_not_come_is_an_error_unless_nobody_insists(api: ApiServer, cluster: Cluster) -> None:
    api.fail(_PODS, 503)
    with Reader(cluster) as reader, pytest.raises(ClusterUnreachableError, match="503"):
        reader.objects("pods", _PODS, Pod)()
    with Reader(cluster, insists=False) as reader:
        assert reader.objects("pods", _PODS, Pod)() == ()
    assert [gap.what for gap in reader.unseen] == ["pods"]


@pytest.mark.parametrize("status", [410, 500])
def test_a_list_at_which_the_api_server_fails_is_noted_down_and_the_rest_is_read(
    status: int, api: ApiServer, cluster: Cluster
) -> None:
    """So it answers for a kind whose conversion webhook is away; who looks why nothing works, needs all others."""
    api.fail(_PODS, status)
    api.serve(_ROBOTS, {"items": []})
    with Reader(cluster) as reader:
        assert reader.objects("pods", _PODS, Pod)() == ()
        assert reader.objects("pods of robots", _ROBOTS, Pod)() == ()
    assert list(map(str, reader.unseen)) == [
        f"pods: The cluster at {api.url} answered GET {_PODS} with status {status}."
    ]
    with Reader(cluster, whole=True) as reader, pytest.raises(ClusterUnreachableError, match=str(status)):
        reader.objects("pods", _PODS, Pod)()


def _fail_while_it_asks(cluster: Cluster, asked: list[str]) -> None:
    answered = Event()
    with Reader(cluster) as reader:
        for _ in range(100):
            reader.ask("numbers", False, answered.wait)
        reader.ask("more", None, asked.append, "more")
        Timer(0.5, answered.set).start()
        raise ClusterUnreachableError


def test_after_an_error_what_was_not_begun_is_not_asked(cluster: Cluster) -> None:
    asked: list[str] = []
    with pytest.raises(ClusterUnreachableError):
        _fail_while_it_asks(cluster, asked)
    assert asked == []


def test_several_questions_are_under_way_at_a_time() -> None:
    all_there = Barrier(3)
    with at_once() as threads:
        assert sorted(threads.map(lambda _: all_there.wait(timeout=60), range(3))) == [0, 1, 2]
