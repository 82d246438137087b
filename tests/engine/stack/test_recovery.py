"""docs/recovery.md, executed: what a person types after a run was killed, and that it converges without duplicates.

A run killed inside of Helm's installation, a cluster that goes away, and a second stack are in test_faults.py; state on
S3 is in test_s3_state.py. What `kai-anywhere rollback` does is in test_rollback.py.
"""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

import simulator
from operations import engine
from operations.target import Target
from testbed.engine import Stack
from testbed.inventory import connect, inventory
from testbed.simulated import kill
from testbed.stacks import ROOT, Json, changed, jetson, parse
from testbed.waiting import eventually

GUIDE = (ROOT / "docs" / "recovery.md").read_text(encoding="utf-8")
_CHAPTERS = [chapter.split("\n", 1) for chapter in GUIDE.split("\n## ")[1:]]
BLOCKS = {title: blocks[0] for title, text in _CHAPTERS if (blocks := re.findall(r"(?ms)^```bash\n(.*?)^```$", text))}
"""The commands of each chapter."""


@pytest.fixture(scope="module")
def stack(new_stack: Callable[[Json], Stack]) -> Stack:
    """One installation, which is killed and goes on, and then suffers what a stack that is up can suffer."""
    return new_stack(jetson())


def follow(stack: Stack, chapter: str, home: Path | None = None) -> str:
    """Type what a chapter says, in the stack's folder; questions of `pulumi up` are answered with yes.

    `home` is the folder that `~` stands for.
    """
    script, repair, _ = BLOCKS[chapter].partition("make repair KUBECONFIG=~/.kube/config")
    script = script.replace("pulumi up", "pulumi up --yes").replace("--stack jetson", f"--stack {stack.name}")
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=stack.folder,
        env=stack.environment | ({"HOME": str(home)} if home else {}),
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    if repair:
        # What the target of make does, for a stack that is no checkout's.
        target = Target(stack.name, parse(stack.settings), stack.folder, stack.environment, ("answers yes",))
        engine.up(target, "--refresh")
    return done.stdout + done.stderr


def converged(stack: Stack, cluster: simulator.ControlPlane) -> None:
    """Another run changes nothing; state and cluster have each thing once."""
    assert set(stack.up().changes) == {"same"}
    urns = [resource["urn"] for resource in stack.resources()]
    assert len(urns) == len(set(urns))
    with connect(cluster) as api:
        secrets = api.get("/api/v1/secrets", params={"labelSelector": "owner=helm"}).json()["items"]
    releases = {secret["metadata"]["labels"]["name"] for secret in secrets}
    assert releases == {"gpu-operator", "kai-scheduler"}
    assert {secret["metadata"]["labels"]["status"] for secret in secrets} <= {"deployed", "superseded"}


def exists(api: httpx2.Client, path: str) -> Callable[[], bool]:
    """Whether the cluster has an object."""
    return lambda: api.get(path).status_code == httpx2.codes.OK


def test_a_run_killed_between_objects_goes_on_where_it_was(stack: Stack, cluster: simulator.ControlPlane) -> None:
    queue = "/apis/scheduling.run.ai/v2/queues/edge"
    with connect(cluster) as api:
        with stack.up_until_killed():
            eventually(exists(api, "/api/v1/namespaces/kai-resource-reservation"), within_seconds=180)
        assert not exists(api, queue)(), "it was killed among its first objects"
        assert "the stack is currently locked" in stack.up(expect=None).output
        stack.run("cancel", "--yes")
        # It goes on, past both releases of Helm, up to where it is killed once more.
        with stack.up_until_killed():
            eventually(exists(api, queue), within_seconds=180)
        assert "the stack is currently locked" in stack.up(expect=None).output
        follow(stack, "A run was killed")
        after = inventory(api)
    converged(stack, cluster)
    with connect(cluster) as api:
        assert inventory(api) == after


class TestADeployedStack:
    """What a stack that is up can suffer, one after the other: each test leaves it converged."""

    @pytest.fixture(scope="class")
    @staticmethod
    def deployed(stack: Stack) -> Stack:
        """The stack that the test above has left up, or one that is, where that test alone was not run."""
        if not stack.resources():
            stack.up()
        return stack

    def test_a_run_killed_while_helm_upgrades_is_repaired(
        self, deployed: Stack, cluster: simulator.ControlPlane
    ) -> None:
        kill(cluster, "kwok")
        deployed.settings = changed(deployed.settings, "kai.scheduler.args", {"v": "5"})
        secrets = "/api/v1/namespaces/kai-scheduler/secrets"
        half_done = {"labelSelector": "owner=helm,status=pending-upgrade"}
        with connect(cluster) as api:
            with deployed.up_until_killed():
                eventually(lambda: api.get(secrets, params=half_done).json()["items"], within_seconds=180)
            simulator.up(cluster.folder)
            deployed.run("cancel", "--yes")
            run = deployed.up(expect=None)
            assert run.code != 0
            assert "Helm release 'kai-scheduler' is 'pending-upgrade'" in run.output
            # Nobody's kubectl takes this cluster by itself.
            kubectl = f"kubectl --kubeconfig {cluster.kubeconfig} --context kai-anywhere-simulator"
            [remedy] = re.findall(rf"{re.escape(kubectl)} --namespace kai-scheduler delete secret (\S+)", run.output)
            assert remedy == "sh.helm.release.v1.kai-scheduler.v2"
            assert api.delete(f"{secrets}/{remedy}").status_code == httpx2.codes.OK
        deployed.up()
        converged(deployed, cluster)

    def test_two_runs_at_once_one_ends_and_the_other_is_told(
        self, deployed: Stack, cluster: simulator.ControlPlane
    ) -> None:
        kill(cluster, "kwok")  # so that Helm waits, with the first
        deployed.settings = changed(deployed.settings, "kai.scheduler.args", {"v": "6"})
        at_work = {"labelSelector": "owner=helm,status=pending-upgrade"}
        with deployed.started() as first, connect(cluster) as api:
            eventually(
                lambda: api.get("/api/v1/namespaces/kai-scheduler/secrets", params=at_work).json()["items"],
                within_seconds=180,
            )
            second = deployed.up(expect=None)
            simulator.up(cluster.folder)
            output, _ = first.communicate(timeout=600)
        assert first.returncode == 0, output
        assert second.code != 0
        assert "the stack is currently locked" in second.output
        converged(deployed, cluster)

    def test_a_state_put_back_from_an_older_one_catches_up(
        self, deployed: Stack, cluster: simulator.ControlPlane
    ) -> None:
        backup = deployed.run("stack", "export").output
        (deployed.folder / "backup.json").write_text(backup, encoding="utf-8")
        deployed.settings = changed(
            deployed.settings, "kai.queues.late", {"gpu": {"quota": 1, "limit": -1, "over_quota_weight": 1}}
        )
        deployed.up()
        follow(deployed, "The state is lost or broken")
        converged(deployed, cluster)
        with connect(cluster) as api:
            assert api.get("/apis/scheduling.run.ai/v2/queues/late").status_code == httpx2.codes.OK

    def test_a_run_killed_while_it_wrote_attributes_left_a_whole_state(
        self, deployed: Stack, cluster: simulator.ControlPlane
    ) -> None:
        state = deployed.folder / "state"
        # As after `pulumi login --local`: attributes beside every file.
        without_attributes = deployed.environment["PULUMI_BACKEND_URL"]
        deployed.environment |= {"PULUMI_BACKEND_URL": state.as_uri()}
        deployed.up()
        [attributes] = state.glob(f".pulumi/stacks/*/{deployed.name}.json.attrs")
        attributes.write_bytes(b"")
        assert "failed to load checkpoint: EOF" in deployed.up(expect=None).output
        follow(deployed, "The state can't be read", home=state)
        converged(deployed, cluster)
        deployed.environment |= {"PULUMI_BACKEND_URL": without_attributes}

    def test_a_checkpoint_copied_back_catches_up(self, deployed: Stack, cluster: simulator.ControlPlane) -> None:
        [checkpoint] = deployed.folder.glob(f"state/.pulumi/stacks/*/{deployed.name}.json")
        checkpoint.write_bytes(checkpoint.read_bytes()[:100])
        assert "failed to load checkpoint" in deployed.up(expect=None).output
        shutil.copy(checkpoint.with_suffix(".json.bak"), checkpoint)
        deployed.up("--refresh")
        converged(deployed, cluster)

    def test_somebody_who_changes_the_cluster_by_hand_is_overruled(
        self, deployed: Stack, cluster: simulator.ControlPlane
    ) -> None:
        with connect(cluster) as api:
            api.delete("/apis/scheduling.run.ai/v2/queues/robots").raise_for_status()
            follow(deployed, "The cluster is not as the program says")
            assert api.get("/apis/scheduling.run.ai/v2/queues/robots").status_code == httpx2.codes.OK
        converged(deployed, cluster)


def test_every_chapter_with_commands_is_executed_here() -> None:
    # What is adopted is in test_docs.py, and in test_first_contact.py.
    assert set(BLOCKS) - {"Something is there already"} == {
        "A run was killed",
        "A run was killed inside Helm",
        "Undo everything",
        "The cluster is not as the program says",
        "The state can't be read",
        "The state is lost or broken",
    }


def test_the_remedy_for_helm_is_the_one_that_preflight_prints() -> None:
    assert "\nkubectl --namespace kai-scheduler delete secret sh.helm.release.v1.kai-scheduler.v2\n" in GUIDE
