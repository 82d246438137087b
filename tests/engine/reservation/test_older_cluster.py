"""Kubernetes before MutatingAdmissionPolicy v1, with v1beta1 switched on, and its upgrade under a stack that is up."""

from pathlib import Path

import httpx2

import simulator
from testbed.engine import Stack
from testbed.inventory import connect
from testbed.simulated import stack_settings, start
from testbed.stacks import Json, beta_policies, changed, jetson, parse, without

GROUP = "/apis/admissionregistration.k8s.io"
KINDS = ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings")


def _served(api: httpx2.Client, version: str) -> set[str]:
    answer = api.get(f"{GROUP}/{version}")
    return {resource["name"] for resource in answer.json()["resources"]} if answer.is_success else set()


def _objects(api: httpx2.Client, version: str) -> dict[str, str]:
    """The identity of each policy and binding, by name."""
    return {
        f"{kind}/{item['metadata']['name']}": item["metadata"]["uid"]
        for kind in KINDS
        for item in api.get(f"{GROUP}/{version}/{kind}").json()["items"]
    }


def _tokens(stack: Stack) -> list[str]:
    return [resource["type"] for resource in stack.resources() if ":MutatingAdmissionPolicy" in resource["type"]]


def _older(cluster: simulator.ControlPlane) -> Json:
    """The Jetson stack for it: who says nothing of the carrier gets the policy."""
    settings = changed(without(jetson(), "reservation.carrier"), "cluster", beta_policies()["cluster"])
    return stack_settings(changed(settings, "cluster.kubernetes_version", "1.34"), cluster)


def test_an_upgrade_of_the_cluster_updates_the_policies_and_never_takes_them_away(
    tmp_path: Path, engine_environment: dict[str, str]
) -> None:
    with start(tmp_path / "simulator", older=True) as cluster:
        stack = Stack(tmp_path / "stack", _older(cluster), engine_environment)
        newer = changed(without(stack.settings, "cluster.mutating_policies"), "cluster.kubernetes_version", "1.36")
        with connect(cluster) as api:
            assert not _served(api, "v1") & set(KINDS)
            assert _served(api, "v1beta1") >= set(KINDS)
            for wrong, said in (
                (newer, "older than cluster.kubernetes_version 1.36"),
                (without(newer, "cluster.kubernetes_version"), "serves MutatingAdmissionPolicy v1beta1 and not v1"),
            ):
                stack.settings = wrong
                assert said in stack.up(expect=None).output
                assert _objects(api, "v1beta1") == {}
            stack.settings = _older(cluster)
            stack.up()
            before = _objects(api, "v1beta1")
            assert set(before) == {
                f"{kind}/kai-anywhere-reservation-{name}" for kind in KINDS for name in ("index", "overrides")
            }
            assert all("/v1beta1:" in token for token in _tokens(stack))
            assert stack.preview().changed == frozenset()

        # All of it: a garbage collector that goes on from before does not delete what is served under another version.
        simulator.down(cluster.folder)
        with connect(simulator.up(cluster.folder)) as api:
            assert _objects(api, "v1") == before, "the newer server has what the older one stored"
            assert "Remove cluster.mutating_policies." in stack.up(expect=None).output
            stack.settings = newer
            assert parse(newer).cluster.policies_version == "v1"
            run = stack.up()
            names = ("policy", "binding", "index-policy", "index-binding")
            assert run.changed == {f"reservation-{name}" for name in names}
            assert not {"create", "delete", "replace"} & set(run.changes), run.changes
            assert _objects(api, "v1") == before
            assert all("/v1:" in token for token in _tokens(stack))
            assert stack.preview().changed == frozenset()
            stack.destroy()
            assert _objects(api, "v1") == {}
