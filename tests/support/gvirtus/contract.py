"""What holds of pods with remote GPUs on a real API server, whichever carrier adds to them.

A test module of a carrier has a fixture `api`, the cluster with the carrier in force, and a subclass of `CarrierTests`.
"""

import copy
import re
from collections.abc import Iterator

import httpx2
import pytest
import yaml

from agents.admission.errors import RefusalError
from manifests.gvirtus import backends
from manifests.gvirtus.injection import ENABLED_LABEL, PATH, VOLUME
from manifests.objects import Manifest
from testbed.admission.objects import mutations
from testbed.stacks import ROOT, Json, gvirtus_webhook, parse
from testbed.waiting import eventually
from tests.support.gvirtus.cases import (
    ADDRESSES,
    CASES,
    LOCKED,
    RESTRICTED,
    TEAM,
    annotated,
    as_defaulted,
    create,
    created,
    pod,
    post,
    refused,
    stable,
    stack_of,
    template,
    unlabelled,
)

REMOTE = parse(stack_of(gvirtus_webhook())).gvirtus
assert REMOTE is not None
ENDPOINTS = backends.endpoints(REMOTE, ADDRESSES)
_MUTATION = mutations(stack_of(gvirtus_webhook()))["gvirtus"]


def served(new_pod: Json) -> Json:
    """The pod as the admission server makes it."""
    return dict(_MUTATION.apply(new_pod, ENDPOINTS)[0])


def refusal(new_pod: Json) -> str:
    """Why the admission server refuses the pod."""
    with pytest.raises(RefusalError) as caught:
        served(new_pod)
    return str(caught.value)


_MERGE = {"Content-Type": "application/merge-patch+json"}


class CarrierTests:
    """The tests; every pod is compared with what the admission server says, whoever carries it."""

    def placed(self, of: Manifest) -> Manifest:
        """What the carrier adds besides: the policies, a node selector."""
        return of

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def cron_job(cls, api: httpx2.Client) -> Iterator[str]:
        """Made first, since its first Job starts with the next minute."""
        job = {"template": template(), "backoffLimit": 0}
        manifest = {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"name": "every-minute", "namespace": TEAM},
            "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job}},
        }
        path = post(api, manifest)
        yield path
        api.delete(path, params={"propagationPolicy": "Background"})

    @pytest.fixture
    def pods(self, api: httpx2.Client) -> Iterator[str]:
        """Path of the team's pods; the test's own pod is gone afterwards."""
        path = f"/api/v1/namespaces/{TEAM}/pods"
        yield path
        api.delete(f"{path}/app", params={"gracePeriodSeconds": "0"})
        eventually(lambda: api.get(f"{path}/app").status_code == httpx2.codes.NOT_FOUND)

    @pytest.mark.parametrize("name", CASES)
    def test_a_pod_becomes_what_the_server_says(self, api: httpx2.Client, name: str) -> None:
        new_pod = CASES[name]()
        expected = self.placed(served(as_defaulted(api, new_pod)))
        got = created(api, new_pod)
        assert stable(got) == stable(expected)

    @pytest.mark.parametrize("name", CASES)
    def test_a_second_pass_changes_nothing(self, api: httpx2.Client, name: str) -> None:
        once = created(api, CASES[name]())
        assert served(once) == once
        again = copy.deepcopy(once)
        again["metadata"] = {key: v for key, v in once["metadata"].items() if key not in {"uid", "resourceVersion"}}
        assert stable(created(api, again)) == stable(once)

    def test_what_a_pod_gets_in_plain_words(self, api: httpx2.Client) -> None:
        made = created(api, pod())
        assert made["metadata"]["annotations"] == {
            "gvirtus.io/backend": "gpu-a",
            "gvirtus.io/properties": (
                '{"communicator":[{"endpoint":{"suite":"tcp/ip","protocol":"tcp",'
                '"server_address":"10.96.7.7","port":"9999"}}]}'
            ),
        }
        [container] = made["spec"]["containers"]
        assert container["env"] == [{"name": "GVIRTUS_CONFIG", "value": "/run/gvirtus/properties.json"}]
        assert "command" not in container
        lupine = created(api, CASES["lupine"]())
        assert lupine["metadata"]["annotations"] == {"gvirtus.io/backend": "gpu-b"}
        assert lupine["spec"]["containers"][0]["env"] == [{"name": "LUPINE_SERVER", "value": "10.96.7.8:14833"}]
        assert not [v for v in lupine["spec"]["volumes"] if v["name"] == VOLUME]

    @pytest.mark.parametrize("value", ["false", "True", "1", ""])
    def test_a_pod_that_does_not_ask_is_left_alone(self, api: httpx2.Client, value: str) -> None:
        new_pod = pod()
        new_pod["metadata"]["labels"][ENABLED_LABEL] = value
        made = created(api, new_pod)
        assert "annotations" not in made["metadata"]
        assert "env" not in made["spec"]["containers"][0]

    @pytest.mark.parametrize("name", ["nowhere", "", "GPU-A"])
    def test_an_unknown_backend_is_refused_with_the_names_that_there_are(self, api: httpx2.Client, name: str) -> None:
        new_pod = annotated(gvirtus_io__backend=name)
        message = refused(api, new_pod)
        assert refusal(new_pod) in message
        assert "gpu-a, gpu-b, gpu-c; without it, pods get gpu-a" in message

    def test_a_volume_in_the_way_is_refused(self, api: httpx2.Client) -> None:
        new_pod = pod()
        new_pod["spec"]["volumes"] = [{"name": VOLUME, "emptyDir": {}}]
        message = refused(api, new_pod)
        assert refusal(new_pod) in message
        assert "rename your volume" in message

    @pytest.mark.parametrize("labelled", [True, False])
    @pytest.mark.parametrize("spec", [{}, {"containers": None}, {"containers": []}])
    def test_a_pod_without_containers_is_refused_in_kubernetes_own_words(
        self, api: httpx2.Client, spec: Json, labelled: bool
    ) -> None:
        new_pod = (pod() if labelled else unlabelled(pod())) | {"spec": spec}
        assert refused(api, new_pod) == 'Pod "app" is invalid: spec.containers: Required value'

    @pytest.mark.parametrize("where", ["containers", "initContainers"])
    @pytest.mark.parametrize("path", [PATH, f"{PATH}/"])
    def test_a_mount_in_the_way_is_refused(self, api: httpx2.Client, where: str, path: str) -> None:
        new_pod = pod()
        new_pod["spec"]["volumes"] = [{"name": "mine", "emptyDir": {}}]
        mounts = [{"name": "mine", "mountPath": path}]
        if where == "containers":
            new_pod["spec"]["containers"][0]["volumeMounts"] = mounts
        else:
            new_pod["spec"]["initContainers"] = [{"name": "first", "image": "b:1", "volumeMounts": mounts}]
        message = refused(api, new_pod)
        assert refusal(new_pod) in message

    def test_a_volume_of_that_name_is_nobodys_business_with_lupine(self, api: httpx2.Client) -> None:
        new_pod = CASES["lupine"]()
        new_pod["spec"]["volumes"] = [{"name": VOLUME, "emptyDir": {}}]
        created(api, new_pod)

    def test_a_pod_that_breaks_the_rules_of_its_namespace_is_refused_all_the_same(self, api: httpx2.Client) -> None:
        new_pod = pod()
        new_pod["metadata"]["namespace"] = RESTRICTED
        answer = create(api, new_pod)
        assert answer.status_code == httpx2.codes.FORBIDDEN
        assert 'violates PodSecurity "restricted' in answer.json()["message"]

    def test_a_dry_run_leaves_nothing(self, api: httpx2.Client, pods: str) -> None:
        created(api, pod(), dry_run=True)
        assert api.get(f"{pods}/app").status_code == httpx2.codes.NOT_FOUND

    def test_kai_and_others_may_change_the_pod_afterwards(self, api: httpx2.Client, pods: str) -> None:
        made = created(api, pod(), dry_run=False)
        patches: list[Json] = [
            {"metadata": {"labels": {"runai/queue": "robots"}, "annotations": {"pod-group-name": "pg-1"}}},
            {"metadata": {"labels": {ENABLED_LABEL: None}}},
            {"metadata": {"labels": {ENABLED_LABEL: "true"}, "annotations": {"gvirtus.io/backend": "nowhere"}}},
            {"metadata": {"finalizers": ["example.com/hold"]}},
            {"metadata": {"finalizers": None}},
        ]
        for patch in patches:
            answer = api.patch(f"{pods}/app", json=patch, headers=_MERGE)
            assert answer.status_code == httpx2.codes.OK, answer.text
        now = api.get(f"{pods}/app").json()
        ours = ("containers", "volumes", "initContainers")
        assert {k: now["spec"].get(k) for k in ours} == {k: made["spec"].get(k) for k in ours}

    @pytest.mark.parametrize("owner", [TEAM, RESTRICTED])
    def test_a_job_runs_to_its_end_with_the_injected_pod(self, api: httpx2.Client, owner: str) -> None:
        """Its controller takes a finalizer off the pod by an update."""
        new_pod = template()
        if owner == RESTRICTED:
            new_pod["spec"]["containers"][0]["securityContext"] = LOCKED
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once", "namespace": owner}}
        path = post(api, job | {"spec": {"template": new_pod, "backoffLimit": 0}})
        eventually(lambda: api.get(path).json()["status"].get("succeeded") == 1, within_seconds=240)
        listed = api.get(f"/api/v1/namespaces/{owner}/pods", params={"labelSelector": "job-name=once"}).json()["items"]
        assert listed
        for made in listed:
            assert_injected(made)

    def test_a_cron_job_makes_injected_pods(self, api: httpx2.Client) -> None:
        def its_pods() -> list[Json]:
            listed = api.get(f"/api/v1/namespaces/{TEAM}/pods").json()["items"]
            return [p for p in listed if p["metadata"]["labels"].get("job-name", "").startswith("every-")]

        eventually(its_pods, within_seconds=240)
        for made in its_pods():
            assert_injected(made)

    @pytest.mark.parametrize(
        ("file", "variable"),
        [("examples/gvirtus-app/job.yaml", "GVIRTUS_CONFIG"), ("examples/lupine-app/job.yaml", "LUPINE_SERVER")],
    )
    def test_the_pod_of_an_example_is_welcome_and_gets_its_gpu(
        self, api: httpx2.Client, file: str, variable: str
    ) -> None:
        job: Json = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))
        answer = api.post("/apis/batch/v1/namespaces/default/jobs", json=job, params={"dryRun": "All"})
        assert answer.status_code == httpx2.codes.CREATED, answer.text
        assert "Warning" not in answer.headers
        its = job["spec"]["template"]
        metadata = its["metadata"] | {"name": "app", "namespace": RESTRICTED}
        made = created(api, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": its["spec"]})
        assert [e["name"] for e in made["spec"]["containers"][0]["env"]] == [variable]

    def test_the_pod_of_the_document_is_welcome_and_gets_its_gpu(self, api: httpx2.Client) -> None:
        text = (ROOT / "docs/gvirtus.md").read_text(encoding="utf-8")
        snippets = [yaml.safe_load(block) for block in re.findall(r"(?ms)^```yaml\n(.*?)^```$", text)]
        [new_pod] = [snippet for snippet in snippets if snippet.get("kind") == "Pod"]
        assert created(api, new_pod)["spec"]["containers"][0]["env"][0]["name"] == "GVIRTUS_CONFIG"


def assert_injected(made: Json) -> None:
    """A pod of `template` has its remote GPU."""
    assert made["metadata"]["annotations"]["gvirtus.io/backend"] == "gpu-a"
    assert [e["name"] for e in made["spec"]["containers"][0]["env"]] == ["GVIRTUS_CONFIG"]
