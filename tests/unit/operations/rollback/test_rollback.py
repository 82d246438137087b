"""What a rollback shows, what it takes away and what it leaves alone."""

import json
from collections.abc import Callable

import pytest

from cluster.access.client import object_path
from manifests import every_object
from manifests.ownership import BEFORE, field_manager
from operations.errors import OperationError
from operations.exit_status import ExitStatus
from operations.rollback.planning import Choice, make_plan
from operations.rollback.steps import Rollback
from testbed.stacks import Json
from tests.support.api_server import UID
from tests.unit.operations.rollback.world import KINDS, World, namespace, of_helm, owned, release, stack_in

HEAL = Choice(only_heal=True)
ALL = Choice()
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
HOOK = {"helm.sh/hook": "pre-install,pre-upgrade"}
BY_PULUMI = [{"manager": "pulumi-resource-kubernetes"}]


def _role(name: str) -> Json:
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}}


def heal(world: World) -> Rollback:
    stack = stack_in(world)
    planned = make_plan(stack, HEAL)
    work = Rollback(stack, lambda _: None)
    work.take_over()
    work.heal(planned.half_done)
    return work


def run(world: World, choice: Choice = ALL) -> Rollback:
    """Everything that the command does once the answer is yes."""
    stack = stack_in(world)
    planned = make_plan(stack, choice)
    assert planned.plan.blockers == []
    work = Rollback(stack, lambda _: None)
    work.take_over()
    work.heal(planned.half_done)
    work.remove_temporary()
    work.remove(planned.leftovers)
    work.destroy()
    work.remove(work.stack.beside_state())
    if choice.definitions:
        work.remove_definitions()
    return work


class TestHealing:
    """Helm releases that a killed run left half done."""

    def test_a_half_done_upgrade_makes_the_deployed_revision_the_newest_again(self, world: World) -> None:
        world.remember([release("kai-scheduler")])
        deployed = world.revision("kai-scheduler", 1, "deployed")
        pending = world.revision("kai-scheduler", 2, "pending-upgrade")
        text = make_plan(stack_in(world), HEAL).plan.text()
        assert "kai-scheduler in namespace kai-scheduler is pending-upgrade since 2026-11-23T12:00:00Z" in text
        assert (
            "delete the Secret sh.helm.release.v1.kai-scheduler.v2; revision 1 (deployed) is the newest again." in text
        )
        heal(world)
        assert world.deleted == [pending]
        assert deployed in world.objects

    def test_a_half_done_installation_is_taken_back_so_that_the_next_up_installs_anew(self, world: World) -> None:
        world.remember([namespace("kai-scheduler")], pending=[release("kai-scheduler")])
        pending = world.revision("kai-scheduler", 1, "pending-install")
        plan = make_plan(stack_in(world), HEAL).plan
        assert plan.heals[0].then == "the next up installs the release anew."
        assert plan.pending == ["kai-scheduler (creating)"]
        heal(world)
        assert world.deleted == [pending]
        assert make_plan(stack_in(world), HEAL).plan.empty, "the state forgot it too"

    def test_an_installation_that_the_state_forgot_is_ours_by_its_namespace(self, world: World) -> None:
        world.remember([namespace("kai-scheduler")])
        world.put("/api/v1/namespaces/kai-scheduler", managedFields=owned("kai-scheduler-namespace"))
        pending = world.revision("kai-scheduler", 1, "pending-install")
        heal(world)
        assert world.deleted == [pending]

    @pytest.mark.parametrize(
        "somebodys",
        [
            lambda world: world.revision("prometheus", 3, "pending-upgrade"),
            lambda world: world.revision("kai-scheduler", 1, "pending-install", namespace="lab"),
            lambda world: world.revision("kai-scheduler", 1, "pending-install"),
            lambda world: (
                world.put("/api/v1/namespaces/kai-scheduler", managedFields=owned("kai-scheduler-namespace")),
                world.revision_by_hand("kai-scheduler", 1, "deployed"),
                world.revision_by_hand("kai-scheduler", 2, "pending-upgrade"),
            ),
            lambda world: (
                world.put("/api/v1/namespaces/kai-scheduler", managedFields=owned("kai-scheduler-namespace")),
                world.revision_by_hand("kai-scheduler", 1, "pending-install"),
            ),
        ],
        ids=[
            "another-name",
            "another-namespace",
            "a-namespace-that-is-not-ours",
            "a-whole-one-that-we-do-not-know",
            "by-hand-in-our-namespace",
        ],
    )
    def test_somebody_elses_is_named_and_left_alone(self, world: World, somebodys: Callable[[World], object]) -> None:
        world.remember([namespace("robots")])
        somebodys(world)
        plan = make_plan(stack_in(world), HEAL).plan
        assert plan.heals == []
        assert [line for line in plan.stays if line.endswith("it is not this stack's.")]
        heal(world)
        assert world.deleted == []

    def test_a_secret_of_somebodys_that_only_looks_like_helms_keeps_nobody_from_healing(self, world: World) -> None:
        world.remember([release("kai-scheduler")])
        pending = world.revision("kai-scheduler", 2, "pending-upgrade")
        labels = {"owner": "helm", "name": "kai-scheduler", "version": "one", "status": "pending-install"}
        theirs = "/api/v1/namespaces/team/secrets/looks-like-it"
        world.put(theirs, labels=labels, creationTimestamp="2026-11-23T12:00:00Z")
        [line] = [line for line in make_plan(stack_in(world), HEAL).plan.stays if "in namespace team" in line]
        assert line.endswith("is pending-install since 2026-11-23T12:00:00Z: it is not this stack's.")
        heal(world)
        assert world.deleted == [pending]
        assert theirs in world.objects

    def test_what_hooks_left_goes_before_the_half_done_revision_that_lists_them(self, world: World) -> None:
        world.remember([namespace("gpu-operator")], pending=[release("gpu-operator")])
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "upgrade"}}
        ingress = {"apiVersion": "networking.k8s.io/v1beta1", "kind": "Ingress", "metadata": {"name": "upgrade"}}
        unknown = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "upgrade"}}
        roles = [_role(name) for name in ("upgrade", "theirs", "plain", "gone")]
        pending = world.revision("gpu-operator", 1, "pending-install", hooks=[job, ingress, unknown, {}, *roles])
        left = [
            "/apis/batch/v1/namespaces/gpu-operator/jobs/upgrade",
            "/apis/networking.k8s.io/v1/namespaces/gpu-operator/ingresses/upgrade",
            f"{ROLE}/upgrade",
        ]
        for path in left:
            world.put(path, annotations=HOOK, managedFields=BY_PULUMI)
        world.put(f"{ROLE}/theirs", annotations=HOOK, managedFields=[{"manager": "helm"}])
        world.put(f"{ROLE}/plain", managedFields=BY_PULUMI)
        world.put(f"{ROLE}/unlisted", annotations=HOOK, managedFields=BY_PULUMI)
        text = make_plan(stack_in(world), HEAL).plan.text()
        assert (
            "delete what its hooks left (Job/gpu-operator/upgrade, Ingress/gpu-operator/upgrade, ClusterRole/upgrade), "
            "then the Secret sh.helm.release.v1.gpu-operator.v1; the next up installs the release anew." in text
        )
        heal(world)
        assert world.deleted == [*left, pending]

    def test_what_a_hook_of_an_earlier_revision_made_stays_where_it_is_used(self, world: World) -> None:
        world.remember([release("gpu-operator")])
        hooks = [_role("earlier"), _role("now")]
        world.revision("gpu-operator", 1, "deployed", hooks=hooks[:1])
        pending = world.revision("gpu-operator", 2, "pending-upgrade", hooks=hooks)
        for name, created in (("earlier", "2026-11-01T08:00:00Z"), ("now", "2026-11-23T12:00:00Z")):
            world.put(f"{ROLE}/{name}", annotations=HOOK, managedFields=BY_PULUMI, creationTimestamp=created)
        assert list(make_plan(stack_in(world), HEAL).plan.heals[0].hooks) == ["ClusterRole/now"]
        heal(world)
        assert world.deleted == [f"{ROLE}/now", pending]

    def test_nothing_of_hooks_is_deleted_where_somebody_works_on_the_release(self, world: World) -> None:
        world.remember([release("gpu-operator")])
        path = world.revision("gpu-operator", 1, "pending-install", hooks=[_role("hook")])
        world.put(f"{ROLE}/hook", annotations=HOOK, managedFields=BY_PULUMI)
        stack = stack_in(world)
        planned = make_plan(stack, HEAL)
        world.objects[path]["metadata"]["resourceVersion"] = "8"
        with pytest.raises(OperationError, match="If it changed just now, somebody works on the release"):
            Rollback(stack, lambda _: None).heal(planned.half_done)
        assert world.deleted == []

    def test_while_another_run_holds_the_lock_nothing_is_changed(self, world: World) -> None:
        world.remember([release("kai-scheduler")])
        world.revision("kai-scheduler", 2, "pending-upgrade")
        (world.folder / "locked").touch()
        with pytest.raises(
            OperationError, match=r"(?s)currently locked.*If it is dead.*pulumi cancel --yes --stack jet"
        ):
            heal(world)
        assert world.deleted == []

    def test_a_revision_that_changed_since_it_was_shown_is_left(self, world: World) -> None:
        world.remember([release("kai-scheduler")])
        path = world.revision("kai-scheduler", 2, "pending-upgrade")
        stack = stack_in(world)
        planned = make_plan(stack, HEAL)
        world.objects[path]["metadata"]["resourceVersion"] = "8"
        with pytest.raises(OperationError, match="If it changed just now, somebody works on the release"):
            Rollback(stack, lambda _: None).heal(planned.half_done)
        assert path in world.objects

    def test_a_run_that_came_between_stops_it(self, world: World) -> None:
        world.remember([release("kai-scheduler")])
        world.revision("kai-scheduler", 2, "pending-upgrade")
        stack = stack_in(world)
        world.remember([release("kai-scheduler"), namespace("late")])
        with pytest.raises(OperationError, match="Another run changed the state since the plan was shown"):
            Rollback(stack, lambda _: None).take_over()

    def test_nothing_else_is_looked_at_or_touched(self, world: World) -> None:
        world.remember([release("kai-scheduler")])
        world.revision("kai-scheduler", 2, "pending-upgrade")
        world.put("/api/v1/nodes/jetson-1", labels={"a": "b"}, managedFields=owned("node-labels", labels={"a": "b"}))
        plan = make_plan(stack_in(world), HEAL).plan
        assert (plan.removes_before, plan.destroys, plan.blockers) == ((), {}, [])
        heal(world)
        assert (world.calls, world.applied) == (["refresh"], [])

    @pytest.mark.parametrize("status", ["deployed", "failed"])
    def test_a_release_that_helm_ended_and_the_state_never_noted_is_not_forgotten(
        self, world: World, status: str
    ) -> None:
        world.remember([namespace("gpu-operator")], pending=[release("gpu-operator")])
        world.revision("gpu-operator", 1, status)
        [blocker] = make_plan(stack_in(world), HEAL).plan.blockers
        assert "Helm came to its end with release gpu-operator in namespace gpu-operator" in blocker.what
        assert "kai-anywhere rollback --stack" in blocker.remedy
        assert make_plan(stack_in(world), ALL).plan.blockers == [], "the whole rollback removes it"


class TestRemoval:
    """What `pulumi destroy` does not see."""

    def test_a_half_installed_release_goes_whole_and_another_one_stays(self, world: World) -> None:
        world.remember([namespace("kai-scheduler")], pending=[release("kai-scheduler")])
        world.revision("kai-scheduler", 1, "pending-install")
        world.put(f"{ROLE}/kai-binder", **of_helm("kai-scheduler"))
        world.put(f"{ROLE}/prometheus", **of_helm("prometheus"))
        config = {"namespace": "kai-scheduler"}
        world.put("/apis/kai.scheduler/v1/configs/kai-config", spec=config)
        run(world)
        assert f"{ROLE}/prometheus" in world.objects
        assert world.deleted[1:] == ["/apis/kai.scheduler/v1/configs/kai-config", f"{ROLE}/kai-binder"]
        assert world.calls == ["refresh", "destroy"]

    def test_of_a_release_that_the_state_never_noted_nothing_stays_in_a_namespace_that_stays(
        self, world: World
    ) -> None:
        """The next `up` would take it for somebody else's, and rollback too."""
        world.remember([], pending=[release("kai-scheduler")])
        place = "/api/v1/namespaces/kai-scheduler"
        before: Json = {"annotations": {BEFORE: json.dumps({"metadata": {}})}}
        world.put(place, managedFields=owned("kai-scheduler-namespace"), **before)
        secret = world.revision("kai-scheduler", 1, "deployed")
        world.put(f"{ROLE}/kai-binder", **of_helm("kai-scheduler"))
        assert make_plan(stack_in(world), ALL).plan.removes_before == [
            "Secret/kai-scheduler/sh.helm.release.v1.kai-scheduler.v1",
            "ClusterRole/kai-binder",
            "Namespace/kai-scheduler (given back)",
        ]
        assert run(world).left == []
        # Without the Secret, a rollback that was killed here finds the rest again.
        assert world.deleted == [secret, f"{ROLE}/kai-binder"]
        assert place in world.objects

    @pytest.mark.parametrize(
        ("manager", "before", "goes"),
        [
            ("pulumi-kubernetes", {}, True),
            ("helm", {}, False),
            ("pulumi-kubernetes", {"annotations": {BEFORE: json.dumps({"metadata": {}})}}, False),
        ],
        ids=["ours", "by helm", "in a namespace that was adopted"],
    )
    def test_a_whole_release_that_a_lost_state_forgot_goes_where_pulumi_installed_it_in_a_namespace_that_we_made(
        self, world: World, manager: str, before: Json, goes: bool
    ) -> None:
        world.put("/api/v1/namespaces/kai-scheduler", managedFields=owned("kai-scheduler-namespace"), **before)
        path = world.revision("kai-scheduler", 1, "deployed")
        world.objects[path]["metadata"]["managedFields"] = [{"manager": manager}]
        world.put(f"{ROLE}/kai-binder", **of_helm("kai-scheduler"))
        config = "/apis/kai.scheduler/v1/configs/kai-config"
        world.put(config, spec={"namespace": "kai-scheduler"})
        run(world, Choice(cluster=UID))
        assert [name for name in (config, f"{ROLE}/kai-binder") if name in world.deleted] == (
            [config, f"{ROLE}/kai-binder"] if goes else []
        )

    def test_what_a_release_left_that_helm_has_forgotten_goes_once_its_cluster_is_named(self, world: World) -> None:
        """A destroy ended without KAI's last hook: with the state, Helm's own notes and the namespace are gone."""
        world.definition("kai.scheduler", "configs")
        config, role = "/apis/kai.scheduler/v1/configs/kai-config", f"{ROLE}/kai-binder"
        world.put(config, spec={"namespace": "kai-scheduler"})
        world.put(role, **of_helm("kai-scheduler"), managedFields=BY_PULUMI)
        world.put(f"{ROLE}/by-helm", **of_helm("kai-scheduler"), managedFields=[{"manager": "helm"}])
        world.put(
            f"{ROLE}/taken", **of_helm("kai-scheduler"), managedFields=[*BY_PULUMI, {"manager": "kubectl-create"}]
        )
        hook = f"{ROLE}/post-delete-cleanup"
        world.put(hook, annotations={"helm.sh/hook": "post-delete"}, managedFields=BY_PULUMI)
        plan = make_plan(stack_in(world), ALL).plan
        assert plan.removes_before == ["ClusterRole/kai-binder", "Config/kai-config", "ClusterRole/post-delete-cleanup"]
        [blocker] = plan.blockers
        assert blocker.remedy == f"If all of this is its own, name the cluster: --cluster {UID}"
        [stays] = [line for line in plan.stays if line.startswith("ClusterRole/")]
        assert stays.startswith("ClusterRole/taken, of a Helm release that is gone: kubectl-create wrote it too.")
        run(world, Choice(cluster=UID))
        assert world.deleted == [config, role, hook]

    def test_a_namespace_that_others_have_made_again_hides_nothing_of_what_the_stack_left_outside_of_it(
        self, world: World
    ) -> None:
        world.remember([namespace("gpu-operator")])
        world.put("/api/v1/namespaces/kai-scheduler", managedFields=[{"manager": "kubectl-create"}])
        world.put(f"{ROLE}/kai-binder", **of_helm("kai-scheduler"), managedFields=BY_PULUMI)
        run(world)
        assert world.deleted == [f"{ROLE}/kai-binder"]
        assert "/api/v1/namespaces/kai-scheduler" in world.objects

    @pytest.mark.parametrize(
        "whose",
        [
            lambda world: world.revision_by_hand("kai-scheduler", 1, "deployed"),
            lambda world: world.put("/apis/apps/v1/namespaces/team/deployments/kai-operator"),
            lambda world: world.definition("kai.scheduler", "configs", manager="helm"),
            lambda world: world.put(
                "/api/v1/namespaces/kai-scheduler",
                managedFields=[{"manager": field_manager("team/edge", "kai-scheduler-namespace")}],
            ),
        ],
        ids=["of a KAI by hand", "of a KAI without Helm", "by another Helm than Pulumi's", "of another stack"],
    )
    def test_a_config_that_may_be_somebody_elses_stays(self, world: World, whose: Callable[[World], object]) -> None:
        world.definition("kai.scheduler", "configs")
        config = "/apis/kai.scheduler/v1/configs/kai-config"
        world.put(config, spec={"namespace": "kai-scheduler"})
        whose(world)
        assert make_plan(stack_in(world), ALL).plan.removes_before == []
        run(world, Choice(cluster=UID))
        assert world.deleted == []

    def test_a_config_of_unknown_origin_is_told_with_why_it_stays(self, world: World) -> None:
        world.definition("kai.scheduler", "configs", manager="helm")
        world.put("/apis/kai.scheduler/v1/configs/kai-config", spec={"namespace": "kai-scheduler"})
        stays = make_plan(stack_in(world), ALL).plan.stays
        assert any(
            line.startswith("Config/kai-config, of a KAI in namespace kai-scheduler that is gone, whose webhooks")
            for line in stays
        )

    def test_a_release_of_somebodys_stays_though_a_killed_run_had_once_begun_one_of_its_name(
        self, world: World
    ) -> None:
        """What was begun stays in the state until it is told to forget that; ours is gone since."""
        world.remember([release("kai-scheduler")], pending=[release("gpu-operator")])
        theirs = world.revision_by_hand("gpu-operator", 1, "deployed")
        world.put(f"{ROLE}/gpu-operator", **of_helm("gpu-operator"))
        assert make_plan(stack_in(world), ALL).plan.removes_before == []
        run(world)
        assert {theirs, f"{ROLE}/gpu-operator"} <= world.objects.keys()

    def test_what_hooks_of_a_whole_release_made_and_helm_keeps_goes_after_it(self, world: World) -> None:
        world.remember([release("gpu-operator")])
        world.revision("gpu-operator", 1, "deployed", hooks=[_role("kept"), _role("theirs")])
        world.put(f"{ROLE}/kept", annotations=HOOK, managedFields=BY_PULUMI)
        world.put(f"{ROLE}/theirs", annotations=HOOK, managedFields=[{"manager": "helm"}])
        plan = make_plan(stack_in(world), ALL).plan
        assert plan.removes_before == [], "pods of the release may use it"
        assert plan.removes_after == ["ClusterRole/kept"]
        assert run(world).left == []
        assert [path for path in world.deleted if path.startswith(ROLE)] == [f"{ROLE}/kept"]

    def test_a_revision_that_nobody_can_unpack_has_no_hooks(self, world: World) -> None:
        world.remember([namespace("gpu-operator")], pending=[release("gpu-operator")])
        path = world.revision("gpu-operator", 1, "pending-install")
        world.objects[path]["data"] = {"release": "bm8gZ3ppcA=="}
        assert run(world).left == []
        assert world.deleted == [path]

    def test_what_came_with_a_whole_release_is_left_to_pulumi(self, world: World) -> None:
        world.remember([release("kai-scheduler")])
        world.put(f"{ROLE}/kai-binder", **of_helm("kai-scheduler"))
        assert make_plan(stack_in(world), ALL).plan.removes_before == []

    def test_what_pulumi_left_of_a_release_goes_after_it(self, world: World) -> None:
        world.remember([release("kai-scheduler")])
        world.put(f"{ROLE}/of-a-half-done-upgrade", **of_helm("kai-scheduler"))
        work = run(world)
        assert world.deleted == [f"{ROLE}/of-a-half-done-upgrade"]
        assert work.left == []

    def test_an_object_that_a_killed_run_made_goes_by_its_field_manager_and_namespaces_last(self, world: World) -> None:
        world.remember([release("gpu-operator")])
        ours = "/api/v1/namespaces/kai-resource-reservation"
        world.put(ours, managedFields=owned("reservation-namespace"))
        queue = "/apis/scheduling.run.ai/v2/queues/default-queue"
        world.put(queue, managedFields=owned("kai-scheduler-queue-default-queue"))
        theirs = "/apis/scheduling.run.ai/v2/queues/default-parent-queue"
        world.put(theirs, managedFields=[{"manager": "kubectl"}])
        run(world)
        assert world.deleted == [queue, ours]
        assert theirs in world.objects

    def test_what_the_state_knows_under_a_namespace_that_its_kind_has_not_is_left_to_pulumi(self, world: World) -> None:
        rule = every_object.objects(world.target.settings)["gpu-operator-tegra"]
        metadata = rule["metadata"] | {"namespace": "default"}
        world.remember([namespace("robots") | {"outputs": {"__inputs": rule | {"metadata": metadata}}}])
        world.put(object_path(rule), managedFields=owned("gpu-operator-tegra"))
        assert make_plan(stack_in(world), ALL).plan.removes_before == []

    def test_an_object_made_anew_since_the_plan_was_shown_is_left(self, world: World) -> None:
        world.remember([release("gpu-operator")])
        path = "/api/v1/namespaces/kai-resource-reservation"
        world.put(path, managedFields=owned("reservation-namespace"))
        stack = stack_in(world)
        leftovers = make_plan(stack, ALL).leftovers
        world.objects[path]["metadata"]["uid"] = "another"
        work = Rollback(stack, lambda _: None)
        work.remove(leftovers)
        assert path in world.objects
        assert "has been modified" in work.left[0]

    def test_labels_are_let_go_by_their_field_manager_and_those_of_others_stay(self, world: World) -> None:
        world.remember([release("gpu-operator")])
        labels = {"nvidia.com/gpu.memory": "122880"}
        [entry] = owned("node-labels-jetson-1", labels=labels)
        world.put("/api/v1/nodes/jetson-1", labels=labels | {"rack": "3"}, managedFields=[entry])
        run(world)
        assert world.applied == [(entry["manager"], "/api/v1/nodes/jetson-1")]
        assert "/api/v1/nodes/jetson-1" in world.objects

    def test_what_was_adopted_is_given_back_and_not_deleted(self, world: World) -> None:
        world.remember([release("gpu-operator")])
        path = "/api/v1/namespaces/gpu-operator"
        before = json.dumps({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}})
        labels = {"pod-security.kubernetes.io/enforce": "privileged", "app.kubernetes.io/part-of": "kai-anywhere"}
        fields = owned("gpu-operator-namespace")
        world.put(path, labels=labels, annotations={BEFORE: before}, managedFields=fields)
        assert make_plan(stack_in(world), ALL).plan.removes_before == ["Namespace/gpu-operator (given back)"]
        run(world)
        assert [manager for manager, _ in world.applied] == [
            f"given-back/{fields[0]['manager']}",
            fields[0]["manager"],
        ]
        assert path in world.objects

    def test_what_others_wrote_before_the_stack_did_stays_though_nothing_says_that_it_was_adopted(
        self, world: World
    ) -> None:
        world.remember([], cluster=None)
        ours, theirs = (f"/api/v1/namespaces/{name}" for name in ("kai-resource-reservation", "gpu-operator"))
        [mine] = owned("reservation-namespace")
        then, later = ({"time": f"2026-11-0{day}T00:00:00Z"} for day in (1, 2))
        chart = {"manager": "pulumi-resource-kubernetes"}
        world.put(ours, managedFields=[chart | then, mine | then, {"manager": "rancher"} | later])
        [mine] = owned("gpu-operator-namespace")
        world.put(theirs, managedFields=[{"manager": "kubectl-create"} | then, mine | later])
        plan = make_plan(stack_in(world), Choice(cluster=UID)).plan
        assert plan.removes_before == ["Namespace/kai-resource-reservation"]
        [stays] = plan.stays
        assert stays.startswith("Namespace/gpu-operator, with fields of this stack's: kubectl-create wrote it before")
        run(world, Choice(cluster=UID))
        assert (world.deleted, world.applied) == ([ours], [])

    def test_what_does_not_go_is_said(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("operations.rollback.steps.GONE_SECONDS", 0)
        path = "/api/v1/namespaces/kai-resource-reservation"
        world.stubborn = frozenset({path})
        world.remember([release("gpu-operator")])
        world.put(path, managedFields=owned("reservation-namespace"))
        left = set(run(world).left)
        assert left == {"Namespace/kai-resource-reservation is being deleted and is still there after 0 s"}

    def test_a_namespace_that_does_not_go_is_said_with_what_holds_it_up(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("operations.rollback.steps.GONE_SECONDS", 0)
        path = "/api/v1/namespaces/kai-resource-reservation"
        world.stubborn = frozenset({path})
        world.remember([release("gpu-operator")])
        says = {"type": "NamespaceFinalizersRemaining", "status": "True", "message": "remaining: example.com/x"}
        world.put(path, managedFields=owned("reservation-namespace"))["status"] = {"conditions": [says]}
        [left] = set(run(world).left)
        assert "after 0 s: remaining: example.com/x. Something else has to end it" in left

    def test_a_failed_destroy_removes_nothing_after_it(self, world: World) -> None:
        world.remember([release("kai-scheduler")])
        definition = world.definition("scheduling.run.ai", "queues")
        (world.folder / "fails").touch()
        with pytest.raises(OperationError, match="pulumi destroy failed"):
            run(world, Choice(definitions=True))
        assert definition in world.objects

    def test_the_namespace_of_a_killed_verify_goes_and_one_of_that_name_of_somebody_stays(self, world: World) -> None:
        world.remember([release("gpu-operator")])
        ours, theirs = (f"/api/v1/namespaces/kai-anywhere-{name}" for name in ("verify", "privilege-probe"))
        world.put(ours, labels={"kai-anywhere.io/verify": "true"})
        world.put(theirs)
        assert make_plan(stack_in(world), ALL).plan.removes_before == [
            "Namespace/kai-anywhere-verify of the verification"
        ]
        run(world)
        assert world.deleted == [ours]
        assert theirs in world.objects


class TestDefinitions:
    """CustomResourceDefinitions, which Helm never deletes."""

    def test_without_the_flag_they_stay_and_are_named(self, world: World) -> None:
        world.remember([release("kai-scheduler")])
        definition = world.definition("scheduling.run.ai", "queues")
        text = make_plan(stack_in(world), ALL).plan.text()
        assert "1 CustomResourceDefinition of scheduling.run.ai, with 0 objects now" in text
        assert "--remove-definitions does" in text
        run(world)
        assert definition in world.objects

    def test_with_it_a_group_goes_that_has_no_object(self, world: World) -> None:
        world.remember([release("kai-scheduler")])
        queues = world.definition("scheduling.run.ai", "queues")
        policies = world.definition("nvidia.com", "clusterpolicies", manager="helm")
        work = run(world, Choice(definitions=True))
        assert world.deleted == [queues]
        assert policies in world.objects, "somebody installed it with Helm itself"
        assert work.left == []

    def test_a_group_in_which_somebody_has_an_object_stays_whole(self, world: World) -> None:
        world.remember([release("kai-scheduler")])
        queues = world.definition("scheduling.run.ai", "queues")
        groups = world.definition("scheduling.run.ai", "podgroups")
        world.put("/apis/scheduling.run.ai/v1/queues/somebodys", managedFields=[{"manager": "kubectl"}])
        work = run(world, Choice(definitions=True))
        assert {queues, groups} <= world.objects.keys()
        assert work.left == ["the definitions of scheduling.run.ai, which have 1 object"]

    @pytest.mark.parametrize("how", ["in no version", "not yet"])
    def test_a_group_stays_of_which_the_api_server_does_not_serve_the_objects(self, world: World, how: str) -> None:
        world.remember([release("kai-scheduler")])
        queues = world.definition("scheduling.run.ai", "queues")
        if how == "not yet":
            world.objects[queues]["status"]["conditions"][0]["status"] = "False"
        else:
            world.objects[queues]["spec"]["versions"][0]["served"] = False
        why = "an unknown number of objects, since the API server does not serve queues.scheduling.run.ai"
        plan = make_plan(stack_in(world), Choice(definitions=True)).plan
        assert plan.removes_after == [f"1 CustomResourceDefinition of scheduling.run.ai, with {why} now"]
        assert run(world, Choice(definitions=True)).left == [f"the definitions of scheduling.run.ai, which have {why}"]
        assert queues in world.objects

    def test_definitions_of_others_are_not_looked_at(self, world: World) -> None:
        world.remember([release("kai-scheduler")])
        world.definition("cert-manager.io", "certificates")
        run(world, Choice(definitions=True))
        assert f"{KINDS}/certificates.cert-manager.io" in world.objects


class TestBlockers:
    """What stops it before anything is changed."""

    def _pod(self, world: World, path: str, scheduler: str = "kai-scheduler", phase: str = "Running") -> None:
        world.put(path, spec={"schedulerName": scheduler})["status"] = {"phase": phase}

    def test_pods_of_kai_stop_it_unless_they_are_to_be_left(self, world: World) -> None:
        world.remember([release("kai-scheduler")])
        self._pod(world, "/api/v1/namespaces/robots/pods/arm")
        self._pod(world, "/api/v1/namespaces/robots/pods/waits", phase="Pending")
        self._pod(world, "/api/v1/namespaces/robots/pods/done", phase="Succeeded")
        self._pod(world, "/api/v1/namespaces/web/pods/nginx", scheduler="default-scheduler")
        plan = make_plan(stack_in(world), ALL).plan
        assert plan.status is ExitStatus.FAILED
        assert plan.blockers[0].what == "KAI is used by 2 pods: robots/arm, robots/waits."
        run(world, Choice(leave_pods=True))
        assert not any("pods" in path for path in world.deleted)

    def test_a_pod_of_somebody_in_the_reservation_namespace_stops_it(self, world: World) -> None:
        world.remember([release("kai-scheduler")])
        place = "/api/v1/namespaces/kai-resource-reservation/pods"
        self._pod(world, f"{place}/mine", scheduler="default-scheduler")
        world.put(f"{place}/gpu-reservation", labels={"app": "kai-resource-reservation"})
        plan = make_plan(stack_in(world), ALL).plan
        assert plan.blockers[0].what == "KAI is used by 1 pod: kai-resource-reservation/mine."
        assert plan.reservation_pods == 1
        assert "with 1 reservation pod, to hold GPUs for other pods" in plan.text()

    def test_pods_of_a_kai_that_is_not_ours_are_no_concern(self, world: World) -> None:
        world.remember([release("gpu-operator")])
        self._pod(world, "/api/v1/namespaces/robots/pods/arm")
        assert make_plan(stack_in(world), ALL).plan.blockers == []

    def test_a_protected_resource_stops_it(self, world: World) -> None:
        world.remember([release("kai-scheduler") | {"protect": True}])
        [blocker] = make_plan(stack_in(world), ALL).plan.blockers
        assert "somebody protected kai-scheduler" in blocker.what

    def test_a_stack_that_remembers_no_cluster_needs_its_name(self, world: World) -> None:
        world.put("/api/v1/namespaces/kai-resource-reservation", managedFields=owned("reservation-namespace"))
        [blocker] = make_plan(stack_in(world), ALL).plan.blockers
        uid = stack_in(world).uid
        assert blocker.remedy == f"If all of this is its own, name the cluster: --cluster {uid}"
        run(world, Choice(cluster=uid))
        assert world.deleted == ["/api/v1/namespaces/kai-resource-reservation"]


def test_a_plan_without_anything_to_do_says_so(world: World) -> None:
    plan = make_plan(stack_in(world), ALL).plan
    assert (plan.empty, plan.status) == (True, ExitStatus.WELL)
    assert plan.text().endswith("There is nothing to undo.")


def test_the_parts_of_a_plan_come_in_the_order_in_which_they_are_done(world: World) -> None:
    world.remember([release("kai-scheduler"), namespace("kai-scheduler")], pending=[namespace("late")])
    world.revision("kai-scheduler", 2, "pending-upgrade")
    world.put("/api/v1/namespaces/kai-resource-reservation", managedFields=owned("reservation-namespace"))
    world.definition("kai.scheduler", "configs")
    lines = make_plan(stack_in(world), Choice(definitions=True)).plan.text().splitlines()
    assert [line for line in lines if line[0].isdigit()] == [
        "1. Heal Helm releases that a killed run left half done:",
        "2. Let the state forget what that run had begun:",
        "3. Remove what pulumi destroy can't see:",
        "4. pulumi destroy:",
        "5. Remove what is left then:",
    ]
    assert "   1 Helm release, 1 Namespace" in lines
