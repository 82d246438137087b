"""Whose an object is, and what of it goes back: pure functions."""

from typing import Any

from manifests.ownership import annotated, before, field_manager, kept_values, owned, owner, stack_of, to_give_back

_OURS: dict[str, Any] = {
    "apiVersion": "scheduling.run.ai/v2",
    "kind": "Queue",
    "metadata": {"name": "q", "labels": {"a": "ours"}},
    "spec": {"resources": {"gpu": {"quota": 0, "limit": -1}}, "rules": [{"verbs": ["get"]}]},
}


def test_a_field_manager_says_its_stack_and_fits_kubernetes() -> None:
    manager = field_manager("project/stack", "queue")
    assert manager == "kai-anywhere/project/stack/queue"
    assert manager.startswith(owner("project/stack"))
    assert stack_of(manager) == "project/stack"
    long = field_manager("p" * 100 + "/" + "s" * 100, "node-labels-" + "n" * 253)
    assert len(f"given-back/{long}") <= 128
    assert long != field_manager("p" * 100 + "/" + "s" * 100, "node-labels-" + "n" * 252)


def test_managers_of_others_belong_to_no_stack() -> None:
    for manager in ("kubectl-label", "pulumi-kubernetes-1a2b", "given-back/kai-anywhere/p/s/q", "kai-anywhere", ""):
        assert stack_of(manager) is None


def test_only_fields_that_we_set_are_kept_and_lists_are_kept_whole() -> None:
    live = {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": "q", "uid": "u", "labels": {"a": "theirs", "b": "stays"}},
        "spec": {
            "resources": {"gpu": {"quota": 3, "weight": 9}},
            "rules": [{"verbs": ["list"], "x": 1}],
            "priority": 2,
        },
        "status": {"used": 1},
    }
    assert before(live, _OURS) == {
        "metadata": {"labels": {"a": "theirs"}},
        "spec": {"resources": {"gpu": {"quota": 3}}, "rules": [{"verbs": ["list"], "x": 1}]},
    }


def test_what_somebody_changed_since_stays_his() -> None:
    kept = {"metadata": {"labels": {"a": "theirs"}}, "spec": {"resources": {"gpu": {"quota": 3}}, "rules": [{"x": 1}]}}
    live: dict[str, Any] = {
        "metadata": {"labels": {"a": "ours"}},
        "spec": {"resources": {"gpu": {"quota": 0}}, "rules": [{"verbs": ["get"], "filled-in": True}]},
    }
    assert to_give_back(kept, _OURS, live) == kept
    live["spec"]["resources"]["gpu"]["quota"] = 5
    live["metadata"]["labels"]["a"] = "hers"
    assert to_give_back(kept, _OURS, live) == {"spec": {"rules": [{"x": 1}]}}


def test_a_field_that_somebody_took_over_is_his_though_a_refresh_made_his_value_ours() -> None:
    kept = {"metadata": {"labels": {"a": "theirs"}}, "spec": {"resources": {"gpu": {"quota": 3}}}}
    live: dict[str, Any] = {
        "metadata": {"labels": {"a": "hers"}, "name": "q"},
        "spec": {"resources": {"gpu": {"quota": 0, "limit": -1}}, "rules": [{"verbs": ["get"]}]},
    }
    refreshed = _OURS | {"metadata": live["metadata"]}
    fields: dict[str, Any] = {"f:spec": {"f:resources": {"f:gpu": {"f:quota": {}}}, "f:rules": {}}}
    assert owned(live, fields) == {"spec": {"resources": {"gpu": {"quota": 0}}, "rules": [{"verbs": ["get"]}]}}
    assert to_give_back(kept, refreshed, owned(live, fields)) == {"spec": {"resources": {"gpu": {"quota": 3}}}}
    assert to_give_back(kept, refreshed, owned(live, {})) == {}


def test_the_annotation_holds_the_kept_values_beside_the_others() -> None:
    manifest: dict[str, Any] = {"kind": "Queue", "metadata": {"name": "q", "annotations": {"x": "y"}}}
    annotations = annotated(manifest, {"spec": {"a": 1}})["metadata"]["annotations"]
    assert annotations["x"] == "y"
    assert kept_values(annotations["kai-anywhere.io/before"]) == {"spec": {"a": 1}}
    assert "kai-anywhere.io/before" not in manifest["metadata"]["annotations"], "the manifest itself is as it was"
