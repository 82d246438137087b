"""How long the lists of a pod may be that the guard of all pods looks into."""

import copy
import time
from collections.abc import Iterator

import httpx2
import pytest

from manifests import pod_guard
from testbed.inventory import connect
from testbed.simulated import start
from testbed.stacks import Json
from tests.policy.objects import changed, without
from tests.support.pods.corpus import CONTAINER, IMAGE, KINDS, plain
from tests.support.pods.twin import DRY, FREE, GUARDED, MERGE, create, denied, path_of, post, prepare, unguarded


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A cluster with the twin of the Jetson stack, a guarded namespace, one without the label, and what was before."""
    with start(tmp_path_factory.mktemp("cluster") / "simulator") as control_plane, connect(control_plane) as connected:
        prepare(connected)
        yield connected


def test_a_pod_of_many_containers_is_judged_within_the_servers_budget(api: httpx2.Client) -> None:
    pod = plain()
    many = [
        copy.deepcopy(pod["spec"]["containers"][0])
        | {"name": f"c{index}", "env": [{"name": f"E{each}", "value": "x" * 20} for each in range(50)]}
        for index in range(60)
    ]
    pod = changed(pod, "spec.containers", many)
    assert create(api, pod).is_success
    worse = changed(pod, "spec.containers.59.securityContext.privileged", True)
    response = create(api, worse)
    assert denied(response)
    assert "spec.containers[c59].securityContext.privileged is true" in response.json()["message"]


def _with(count: int, field: str) -> Json:
    """The plain pod with a list or map of so many entries."""
    entries = {
        "containers": [{"name": f"c{index}", "image": IMAGE} for index in range(count)],
        "initContainers": [{"name": f"c{index}", "image": IMAGE} for index in range(count)],
        "volumes": [
            *plain()["spec"]["volumes"],
            *({"name": f"v{index}", "emptyDir": {}} for index in range(count - 2)),
        ],
        "env": [{"name": f"E{index}"} for index in range(count)],
        "volumeMounts": [{"name": "cache", "mountPath": f"/{index}"} for index in range(count)],
        "annotations": {f"a/{index}": "" for index in range(count)},
    }[field]
    places = {"annotations": "metadata", "env": CONTAINER, "volumeMounts": CONTAINER}
    # Otherwise Kubernetes itself adds a volume and mounts of it.
    pod = changed(plain("long"), "spec.automountServiceAccountToken", False)
    return changed(pod, f"{places.get(field, 'spec')}.{field}", entries)


class TestLongLists:
    """What the API server takes to judge a list grows faster than the list."""

    @pytest.mark.parametrize(
        ("field", "bound"),
        [
            ("containers", pod_guard.MAX_CONTAINERS),
            ("initContainers", pod_guard.MAX_CONTAINERS),
            ("volumes", pod_guard.MAX_ENTRIES),
            ("env", pod_guard.MAX_ENTRIES),
            ("volumeMounts", pod_guard.MAX_ENTRIES),
            ("annotations", pod_guard.MAX_ENTRIES),
        ],
    )
    def test_a_list_at_the_bound_is_judged_and_a_longer_one_is_refused(
        self, api: httpx2.Client, field: str, bound: int
    ) -> None:
        assert create(api, _with(bound, field)).is_success
        for kind in ("Pod", "Deployment", "CronJob"):
            response = create(api, KINDS[kind](_with(bound + 1, field)))
            assert denied(response)
            message = response.json()["message"]
            assert f"{field} has more than {bound} entries" in message
            assert message.endswith("make several pods of it, or leave such a list as it was")
        assert create(api, _with(bound + 1, field), FREE).is_success

    def test_thousands_of_containers_are_refused_at_once(self, api: httpx2.Client) -> None:
        begin = time.monotonic()
        assert denied(create(api, _with(4000, "containers")))
        assert time.monotonic() - begin < 8, "it took 17 s while the guard looked into each"

    def test_what_was_long_before_can_go_and_stay_but_not_change(self, api: httpx2.Client) -> None:
        pod = KINDS["Deployment"](_with(pod_guard.MAX_CONTAINERS + 1, "containers"))
        path = f"/apis/apps/v1/namespaces/{GUARDED}/deployments/long"
        with unguarded(api, pod):
            stored = post(api, path_of(pod, GUARDED), changed(pod, "metadata.finalizers", ["example.com/stays"]))
        stored = without(stored, "metadata.resourceVersion")

        def put(body: Json) -> httpx2.Response:
            return api.put(path, json=body, params=DRY)

        assert put(without(stored, "metadata.finalizers")).is_success
        assert put(changed(stored, "spec.replicas", 0)).is_success
        assert put(changed(pod, "spec.template.spec.containers", plain()["spec"]["containers"])).is_success
        worse = changed(stored, "spec.template.spec.containers.7.securityContext", {"privileged": True})
        assert denied(put(worse)), "nobody looks into it"
        assert denied(put(changed(stored, "spec.template.spec.hostPID", True)))
        api.patch(path, json={"metadata": {"finalizers": None}}, headers=MERGE).raise_for_status()
        assert api.delete(path).is_success
