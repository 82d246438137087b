"""Preflight as a whole, against a real HTTP server."""

import dataclasses
import json
import re
import socket
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

import simulator
from cluster.access.client import Cluster
from cluster.errors import ClusterError, ClusterUnreachableError
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.run import PreflightError, PreflightResult, read_facts, run_preflight
from config.stack import StackSettings
from manifests.node_labels import GPU_MEMORY, NVIDIA_PCI_DEVICE, node_labels
from testbed.stacks import Json, changed, jetson, monitoring, monitoring_full, operator_elsewhere, parse, x86
from tests.support.api_server import POLICIES, UID, ApiServer, kubeconfig, node, write_kubeconfig

_NEVER_DEPLOYED = DeployedState()
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


_STACK: tuple[str, dict[str, object]] = ("pulumi:pulumi:Stack", {})
_PROVIDER = ("pulumi:providers:kubernetes", {"clusterIdentifier": UID})
_RELEASE = ("kubernetes:helm.sh/v3:Release", {"name": "kai-scheduler", "namespace": "kai"})


@pytest.mark.parametrize(
    ("resources", "state"),
    [
        ([], DeployedState()),
        ([_STACK], DeployedState()),
        ([_STACK, _PROVIDER], DeployedState(cluster_uid=UID)),
        ([_STACK, ("pulumi:providers:kubernetes", {}), ("a:b:C", {})], DeployedState(deployed=True)),
        (
            [_STACK, _PROVIDER, _RELEASE],
            DeployedState(deployed=True, cluster_uid=UID, releases=frozenset({("kai", "kai-scheduler")})),
        ),
    ],
)
def test_what_a_stack_remembers_is_read_from_its_resources(
    resources: list[tuple[str, dict[str, object]]], state: DeployedState
) -> None:
    assert DeployedState.of(resources) == state


def test_an_object_whose_kind_came_with_the_first_run_is_known_by_the_name_it_is_looked_up_by() -> None:
    # The provider notes the namespace `default` down where it does not know yet that the kind has none.
    rule = {"kind": "NodeFeatureRule", "metadata": {"name": "kai-anywhere-tegra", "namespace": "default"}}
    state = DeployedState.of([("kubernetes:nfd.k8s-sigs.io/v1alpha1:NodeFeatureRule", {"__inputs": rule})])
    assert "NodeFeatureRule/kai-anywhere-tegra" in state.objects


def test_what_was_adopted_is_remembered_beside_the_objects_as_long_as_they_are_the_stacks() -> None:
    kept = {"metadata": {"labels": {"a": "theirs"}}}
    remembered = {"Namespace/gpu-operator": json.dumps(kept), "Queue/gone": "{}"}
    top = ("kai-anywhere:index:KaiAnywhere", {"adopted": remembered})
    refreshed = {"__inputs": {"kind": "Namespace", "metadata": {"name": "gpu-operator"}}}
    stash = ("pulumi:index:Stash", {"input": {"kai-anywhere.io/before": remembered}})
    others = ("pulumi:index:Stash", {"input": "a value of the program around this one"})
    for by in (top, stash):
        state = DeployedState.of([by, others, ("kubernetes:core/v1:Namespace", refreshed)])
        assert state.adopted == {"Namespace/gpu-operator": kept}, "a refresh forgot the annotation, which somebody took"
        assert state.begun == {"Queue/gone": {}}
    assert not DeployedState.of([stash]).deployed, "nothing is in the cluster yet"


def _settings(config_path: str, stack: Json | None = None) -> StackSettings:
    return parse(changed(stack or jetson(), "cluster.kubeconfig", config_path))


@pytest.mark.parametrize("preview", [True, False])
def test_a_ready_cluster_passes_with_its_identity(config_path: str, api: ApiServer, *, preview: bool) -> None:
    result = run_preflight(_settings(config_path), _NEVER_DEPLOYED, preview=preview)
    assert (result.cluster_uid, result.warnings, dict(result.adopted)) == (UID, (), {})
    assert result.checked.startswith(
        f"Looked at the cluster at {api.url} (context 'loopback'): its version (v1.36.2), 1 "
    )
    assert "Not looked at: hosts, images, and what the charts bring." in result.checked


def test_a_cluster_that_does_not_answer_is_found_out_by_one_question(config_path: str, api: ApiServer) -> None:
    api.fail("/version", 503)
    with pytest.raises(ClusterUnreachableError, match="GET /version with status 503"):
        run_preflight(_settings(config_path), _NEVER_DEPLOYED, preview=False)
    assert [request.path for request in api.asked] == ["/version"]


@pytest.mark.parametrize("path", ["/api/v1/nodes", POLICIES, "/apis/apps/v1/deployments"])
def test_a_question_that_the_cluster_refuses_ends_the_preflight(config_path: str, api: ApiServer, path: str) -> None:
    api.fail(path, 403)
    with pytest.raises(ClusterError, match=f"refuses GET {path}"):
        run_preflight(_settings(config_path), _NEVER_DEPLOYED, preview=False)


def test_a_warning_does_not_stop_the_program(config_path: str, api: ApiServer) -> None:
    fake = {"name": "jetson-1", "labels": {"run.ai/fake.gpu": "true"}}
    api.serve("/api/v1/nodes", {"items": [node("jetson-1") | {"metadata": fake}]})
    result = run_preflight(_settings(config_path), _NEVER_DEPLOYED, preview=False)
    assert result.cluster_uid == UID
    [warning] = result.warnings
    assert warning.startswith(f"In the cluster at {api.url} (context 'loopback'): node 'jetson-1' has the label ")


@pytest.mark.parametrize("preview", [True, False])
def test_a_remedy_is_for_the_stacks_cluster_whichever_kubectl_takes_by_itself(
    config_path: str, api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, preview: bool
) -> None:
    """Pasted as it stood, `helm uninstall` took the KAI away of the cluster of kubectl's own context."""
    mine = write_kubeconfig(tmp_path / "mine", kubeconfig("http://127.0.0.1:9"))
    _serve_namespaces(api, "kai-scheduler")
    labels = {"name": "kai-scheduler", "version": "1", "status": "deployed"}
    release = {"metadata": {"name": "sh.helm.release.v1.kai-scheduler.v1", "labels": labels}}
    api.serve("/api/v1/namespaces/kai-scheduler/secrets", {"items": [release]})
    for own, helm in ((mine, f"helm --kubeconfig {config_path} --kube-context loopback"), (config_path, "helm")):
        monkeypatch.setenv("KUBECONFIG", own)
        with pytest.raises(PreflightError) as caught:
            run_preflight(_settings(config_path), _NEVER_DEPLOYED, preview=preview)
        assert f" and may go: {helm} uninstall kai-scheduler --namespace kai-scheduler. " in str(caught.value)


def test_every_fatal_finding_is_listed_and_nothing_was_changed(config_path: str, api: ApiServer) -> None:
    api.serve("/api/v1/nodes", {"items": [node("other")]})
    del api.answers[POLICIES]
    with pytest.raises(PreflightError) as caught:
        run_preflight(_settings(config_path), _NEVER_DEPLOYED, preview=True)
    text = str(caught.value)
    assert text.startswith(
        f"The cluster at {api.url} (context 'loopback') is not ready for this stack. Nothing was changed.\n"
    )
    assert "names the node 'jetson-1'" in text
    assert "reservation.carrier 'policy' can't work" in text
    assert text.count("  error: ") == text.count("    -> ") == 2


@pytest.mark.parametrize("by_release", [True, False])
def test_the_namespace_of_anothers_gpu_operator_is_not_to_be_adopted_by_who_is_told_to_use_it(
    by_release: bool, config_path: str, api: ApiServer
) -> None:
    """With gpu_operator.install false the stack has no such namespace, and an entry in cluster.adopt is an error."""
    _serve_namespaces(api, "gpu-operator", "kai-scheduler")
    labels = {"name": "gpu-operator", "version": "1", "status": "deployed"}
    release = {"metadata": {"name": "sh.helm.release.v1.gpu-operator.v1", "labels": labels}}
    path, where = (
        ("/api/v1/namespaces/gpu-operator/secrets", release)
        if by_release
        else ("/apis/nvidia.com/v1/clusterpolicies", {"metadata": {"name": "cluster-policy"}})
    )
    api.serve(path, {"items": [where]})
    with pytest.raises(PreflightError) as caught:
        run_preflight(_settings(config_path), _NEVER_DEPLOYED, preview=True)
    text = str(caught.value)
    assert "se it: set gpu_operator.install: false." in text
    assert "Namespace 'kai-scheduler' exists already and is not this stack's" in text
    assert "Namespace 'gpu-operator'" not in text

    api.serve(path, {"items": []})
    with pytest.raises(PreflightError, match="Namespace 'gpu-operator' exists already and is not this stack's"):
        run_preflight(_settings(config_path), _NEVER_DEPLOYED, preview=True)


def test_no_setting_is_named_for_the_namespace_of_kais_reservation_pods_which_has_none(
    config_path: str, api: ApiServer
) -> None:
    _serve_namespaces(api, "kai-resource-reservation", "kai-scheduler")
    with pytest.raises(PreflightError) as caught:
        run_preflight(_settings(config_path), _NEVER_DEPLOYED, preview=True)
    [reservations, scheduler] = [line for line in str(caught.value).splitlines() if "given back on destroy" in line]
    assert reservations.endswith("given back on destroy. Or choose another context.")
    assert scheduler.endswith("given back on destroy. Or choose another namespace in the settings.")


def test_another_cluster_behind_the_context_is_refused(config_path: str) -> None:
    with pytest.raises(PreflightError, match="was deployed to the cluster another-uid"):
        run_preflight(_settings(config_path), DeployedState(deployed=True, cluster_uid="another-uid"), preview=True)


@pytest.fixture
def nowhere(tmp_path: Path, config_path: str) -> StackSettings:
    """Settings whose cluster is a closed port."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    text = Path(config_path).read_text()
    moved = tmp_path / "moved"
    moved.write_text(text.replace(text.split("server: ")[1].splitlines()[0], f"http://127.0.0.1:{port}"))
    return _settings(str(moved))


def test_a_stack_never_deployed_is_previewed_without_a_cluster(nowhere: StackSettings) -> None:
    result = run_preflight(nowhere, _NEVER_DEPLOYED, preview=True)
    assert result.cluster_uid is None
    [warning] = result.warnings
    assert warning.startswith("Preview without a cluster: No answer from the cluster at ")


def test_a_stack_never_deployed_is_previewed_without_a_kubeconfig(tmp_path: Path) -> None:
    result = run_preflight(_settings(str(tmp_path / "none")), _NEVER_DEPLOYED, preview=True)
    assert result.cluster_uid is None
    assert "No kubeconfig at" in result.warnings[0]


def test_a_deployed_stack_is_not_previewed_without_its_cluster(nowhere: StackSettings) -> None:
    with pytest.raises(ClusterUnreachableError):
        run_preflight(nowhere, DeployedState(deployed=True, cluster_uid=UID), preview=True)


def test_nothing_is_deployed_without_a_cluster(nowhere: StackSettings) -> None:
    with pytest.raises(ClusterUnreachableError):
        run_preflight(nowhere, _NEVER_DEPLOYED, preview=False)


def test_missing_rights_stop_a_preview_of_a_stack_never_deployed(config_path: str, api: ApiServer) -> None:
    api.fail("/api/v1/nodes", 403)
    with pytest.raises(ClusterError, match="cluster-admin"):
        run_preflight(_settings(config_path), _NEVER_DEPLOYED, preview=True)


def test_a_missing_context_stops_a_preview_of_a_stack_never_deployed(config_path: str) -> None:
    settings = parse(changed(changed(jetson(), "cluster.kubeconfig", config_path), "cluster.context", "gone"))
    with pytest.raises(ClusterError, match="has no context 'gone'"):
        run_preflight(settings, _NEVER_DEPLOYED, preview=True)


def _serve_namespaces(api: ApiServer, *names: str) -> None:
    for name in names:
        api.serve(f"/api/v1/namespaces/{name}", {"metadata": {"name": name, "uid": name}})
        api.serve(f"/api/v1/namespaces/{name}/secrets", {"items": []})


def test_releases_are_asked_for_only_in_namespaces_that_exist(
    config_path: str, api: ApiServer, cluster: Cluster
) -> None:
    _serve_namespaces(api, "kai-scheduler", "kai-resource-reservation")
    facts = read_facts(cluster, _settings(config_path), _NEVER_DEPLOYED)
    assert facts.namespaces.keys() == {"kai-scheduler", "kai-resource-reservation"}
    assert facts.revisions == {("kai-scheduler", "kai-scheduler"): [], ("gpu-operator", "gpu-operator"): []}
    assert not [request for request in api.asked if request.path == "/api/v1/namespaces/gpu-operator/secrets"]
    assert facts.server == api.url


def test_nothing_is_asked_about_an_operator_that_is_not_ours(
    config_path: str, api: ApiServer, cluster: Cluster
) -> None:
    _serve_namespaces(api, "gpu-operator", "kai-scheduler")
    facts = read_facts(cluster, _settings(config_path, operator_elsewhere()), _NEVER_DEPLOYED)
    assert facts.namespaces.keys() == {"kai-scheduler"}
    assert not [request for request in api.asked if "gpu-operator" in request.path or "clusterpolicies" in request.path]


def test_priority_classes_are_asked_for_until_the_stack_has_installed_kai(
    config_path: str, api: ApiServer, cluster: Cluster
) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    names = ("inference", "build", "high")
    api.serve(path, {"items": [{"metadata": {"name": name}} for name in names]})
    assert read_facts(cluster, _settings(config_path), _NEVER_DEPLOYED).taken_priority_classes == ("build", "inference")
    api.asked.clear()
    installed = DeployedState(deployed=True, cluster_uid=UID, releases=frozenset({("kai-scheduler", "kai-scheduler")}))
    assert read_facts(cluster, _settings(config_path), installed).taken_priority_classes == ()
    assert not [request for request in api.asked if request.path == path]


def test_a_local_chart_that_is_not_there_stops_even_a_preview(config_path: str, api: ApiServer, tmp_path: Path) -> None:
    settings = _settings(config_path, changed(jetson(), "kai.chart.source", str(tmp_path / "gone")))
    with pytest.raises(PreflightError, match=r"kai\.chart\.source is .*gone, which is neither a chart folder"):
        run_preflight(settings, _NEVER_DEPLOYED, preview=True)
    assert api.asked == []


def test_a_chart_folder_and_an_archive_are_both_charts(config_path: str, tmp_path: Path) -> None:
    folder, archive = tmp_path / "chart", tmp_path / "chart.tgz"
    folder.mkdir()
    (folder / "Chart.yaml").touch()
    archive.touch()
    for source in (folder, archive):
        stack = changed(jetson(), "kai.chart.source", str(source))
        assert run_preflight(_settings(config_path, stack), _NEVER_DEPLOYED, preview=False).cluster_uid == UID
    (folder / "Chart.yaml").unlink()
    without = _settings(config_path, changed(jetson(), "kai.chart.source", str(folder)))
    with pytest.raises(PreflightError):
        run_preflight(without, _NEVER_DEPLOYED, preview=False)


def test_a_relative_chart_is_looked_for_where_the_program_runs(config_path: str, tmp_path: Path) -> None:
    settings = _settings(config_path, changed(jetson(), "kai.chart.source", "./charts/kai"))
    (tmp_path / "charts" / "kai").mkdir(parents=True)
    (tmp_path / "charts" / "kai" / "Chart.yaml").touch()
    assert run_preflight(settings, _NEVER_DEPLOYED, preview=False, folder=tmp_path).cluster_uid == UID
    with pytest.raises(PreflightError, match=r"kai\.chart\.source is .*charts/kai, which is neither a chart folder"):
        run_preflight(settings, _NEVER_DEPLOYED, preview=False, folder=tmp_path / "elsewhere")


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "archive"])
def test_another_chart_than_the_setting_means_is_refused_before_the_cluster_is_asked(
    config_path: str, api: ApiServer, tmp_path: Path, *, packed: bool
) -> None:
    source = {name: str(simulator.chart_path(name)) for name in ("gpu-operator", "kai-scheduler")}
    if packed:
        for name, folder in source.items():
            source[name] = str(tmp_path / f"{name}.tgz")
            with tarfile.open(source[name], "w:gz") as file:
                file.add(folder, arcname=name)

    def stack(operator: str, kai: str) -> StackSettings:
        settings = changed(x86(), "gpu_operator.chart.source", source[operator])
        return _settings(config_path, changed(settings, "kai.chart.source", source[kai]))

    with pytest.raises(PreflightError) as caught:
        run_preflight(stack("kai-scheduler", "gpu-operator"), _NEVER_DEPLOYED, preview=True)
    for key, other, chart in (
        ("gpu_operator", "kai-scheduler", "gpu-operator"),
        ("kai", "gpu-operator", "kai-scheduler"),
    ):
        said = f"{key}.chart.source is {source[other]}, which is the chart '{other}' and not '{chart}'."
        assert said in str(caught.value)
        assert f"Give the path of the chart '{chart}', or remove 'source'" in str(caught.value)
    assert api.asked == []
    right = stack("gpu-operator", "kai-scheduler")
    assert run_preflight(right, _NEVER_DEPLOYED, preview=False).cluster_uid == UID


def test_a_missing_chart_of_an_operator_that_is_not_installed_does_not_matter(config_path: str, tmp_path: Path) -> None:
    stack = changed(operator_elsewhere(), "gpu_operator.chart.source", str(tmp_path / "gone"))
    assert run_preflight(_settings(config_path, stack), _NEVER_DEPLOYED, preview=False).cluster_uid == UID


def test_kinds_of_the_prometheus_operator_are_asked_for_where_the_stack_makes_them(
    config_path: str, api: ApiServer, cluster: Cluster
) -> None:
    group = "/apis/monitoring.coreos.com/v1"
    whole = _settings(config_path, monitoring_full())
    scraped = _settings(config_path, changed(jetson(), "gpu_operator.dcgm_exporter.service_monitor", True))
    assert read_facts(cluster, whole, _NEVER_DEPLOYED).missing_kinds == {
        "monitoring.service_monitor": ("ServiceMonitor", "PrometheusRule")
    }
    assert read_facts(cluster, scraped, _NEVER_DEPLOYED).missing_kinds == {
        "gpu_operator.dcgm_exporter.service_monitor": ("ServiceMonitor",)
    }
    api.serve(group, {"resources": [{"name": "servicemonitors"}, {"name": "prometheusrules"}]})
    for settings in (whole, scraped):
        assert read_facts(cluster, settings, _NEVER_DEPLOYED).missing_kinds == {}
    api.asked.clear()
    dcgm = "gpu_operator.dcgm_exporter"
    off = changed(jetson(), dcgm, {"enabled": False, "service_monitor": True})
    elsewhere = changed(operator_elsewhere(), f"{dcgm}.service_monitor", True)
    for stack in (jetson(), monitoring(), off, elsewhere):
        assert read_facts(cluster, _settings(config_path, stack), _NEVER_DEPLOYED).missing_kinds == {}
    assert not [request for request in api.asked if request.path.startswith(group)]


_KAI_THERE = frozenset({("kai-scheduler", "kai-scheduler")})
_OPERATOR_THERE = frozenset({("gpu-operator", "gpu-operator")})


def _have_definitions(api: ApiServer, *, served: Sequence[str]) -> None:
    names = ["nodefeaturerules.nfd.k8s-sigs.io", "queues.scheduling.run.ai", "widgets.example.com"]
    spec = {"versions": [{"name": "v2", "served": True}]}
    api.serve(_DEFINITIONS, {"items": [{"metadata": {"name": name}, "spec": spec} for name in names]})
    api.serve("/api", {"items": []})
    groups = [
        {
            "metadata": {"name": name.partition(".")[2]},
            "versions": [{"version": "v2", "resources": [{"resource": name.partition(".")[0]}]}],
        }
        for name in served
    ]
    api.serve("/apis", {"items": groups})


def test_definitions_of_the_charts_that_are_not_served_are_named_before_helm_takes_them_for_served(
    config_path: str, api: ApiServer
) -> None:
    settings = _settings(config_path)
    _have_definitions(api, served=["queues.scheduling.run.ai"])
    one_installed = DeployedState(deployed=True, cluster_uid=UID, releases=_KAI_THERE)
    for state in (_NEVER_DEPLOYED, one_installed):
        with pytest.raises(PreflightError) as caught:
            run_preflight(settings, state, preview=False)
        text = str(caught.value)
        assert "does not serve every CustomResourceDefinition that it has: nodefeaturerules.nfd.k8s-sigs.io. " in text
        assert "Run again: the API server completes them within 5 minutes." in text
        assert "widgets" not in text, "it is none of the charts'"
    api.asked.clear()
    assert not run_preflight(settings, _NEVER_DEPLOYED, preview=True).warnings, "a preview makes nothing"
    run_preflight(settings, DeployedState(releases=_KAI_THERE | _OPERATOR_THERE), preview=False)
    assert not [request for request in api.asked if request.path == _DEFINITIONS], "nothing is installed"
    _have_definitions(api, served=["queues.scheduling.run.ai", "nodefeaturerules.nfd.k8s-sigs.io"])
    assert run_preflight(settings, _NEVER_DEPLOYED, preview=False).warnings == ()


def test_hosts_alone_ask_no_cluster(tmp_path: Path) -> None:
    settings = parse(changed(changed(jetson(), "installs", "hosts"), "cluster.kubeconfig", str(tmp_path / "none")))
    for preview in (True, False):
        assert run_preflight(settings, DeployedState(deployed=True), preview=preview) == PreflightResult(None, ())


def test_a_stack_that_installed_kai_does_not_become_one_of_hosts() -> None:
    settings = parse(changed(jetson(), "installs", "hosts"))
    with pytest.raises(PreflightError, match=r"(?s)installed KAI in the cluster the-uid.*Nothing was changed.*Remove"):
        run_preflight(settings, DeployedState(deployed=True, cluster_uid="the-uid"), preview=True)


@pytest.mark.parametrize("preview", [True, False])
def test_a_node_that_left_cluster_and_settings_is_forgotten_before_it_is_made_again(
    config_path: str, *, preview: bool
) -> None:
    gone = {"kind": "Node", "metadata": {"name": "jetson-9", "labels": {"a": "b"}}}
    many = {"labels": {"a": "b"}, "nodes": {"jetson-8": {}}}
    resources: list[tuple[str, dict[str, object]]] = [
        ("kubernetes:core/v1:NodePatch", {"__inputs": gone}),
        ("kai-anywhere:index:ManyNodeLabels", many),
    ]
    settings, state = _settings(config_path), DeployedState.of(resources)
    says = "jetson-9' left the cluster.*\n?.*pulumi refresh --stack jetson"
    if preview:
        [warning] = run_preflight(settings, state, preview=True, stack="kai-anywhere/jetson").warnings
        assert re.search(says, warning)
        assert "jetson-8" not in warning, "our own provider makes no node"
    else:
        with pytest.raises(PreflightError, match=says):
            run_preflight(settings, state, preview=False, stack="kai-anywhere/jetson")
    assert run_preflight(settings, state, preview=preview, refreshes=True).warnings == (), "the run forgot it"
    adopted = dataclasses.replace(state, adopted={"Node/jetson-9": {}})
    assert run_preflight(settings, adopted, preview=preview).warnings == ()


def test_labels_that_went_with_the_gpu_operator_are_put_back_before_it_is_installed_again(
    config_path: str, api: ApiServer
) -> None:
    settings = _settings(config_path)
    ours = node_labels(settings)["jetson-1"]
    left = {label: value for label, value in ours.items() if label != NVIDIA_PCI_DEVICE}
    api.serve("/api/v1/nodes", {"items": [node("jetson-1") | {"metadata": {"name": "jetson-1", "labels": left}}]})
    state = DeployedState(True, UID, labels={"jetson-1": ours, "left": ours})
    says = f"'jetson-1' lost labels .*: {NVIDIA_PCI_DEVICE}.*\n?.*pulumi refresh --stack jetson"
    with pytest.raises(PreflightError, match=says):
        run_preflight(settings, state, preview=False, stack="kai-anywhere/jetson")
    [warning] = run_preflight(settings, state, preview=True, stack="kai-anywhere/jetson").warnings
    assert re.search(says, warning)
    refreshed = dataclasses.replace(state, labels={"jetson-1": left})
    assert run_preflight(settings, refreshed, preview=False).warnings == ()
    assert run_preflight(settings, state, preview=False, refreshes=True).warnings == (), "the run itself refreshed"


def _with_operator(api: ApiServer, ours: dict[str, str], left: dict[str, str]) -> DeployedState:
    """A stack with its GPU Operator and two nodes to which it gave `ours`, of which they have `left`."""
    nodes = [node(name) | {"metadata": {"name": name, "labels": left}} for name in ("jetson-1", "leaves")]
    api.serve("/api/v1/nodes", {"items": nodes})
    _serve_namespaces(api, "gpu-operator")
    revision = {"name": "gpu-operator", "version": "1", "status": "deployed"}
    secret = {"metadata": {"name": "sh.helm.release.v1.gpu-operator.v1", "labels": revision}}
    api.serve("/api/v1/namespaces/gpu-operator/secrets", {"items": [secret]})
    objects = frozenset({"Namespace/gpu-operator"})
    return DeployedState(True, UID, _OPERATOR_THERE, objects, labels={"jetson-1": ours, "leaves": ours})


def test_a_node_that_joined_again_without_the_stacks_labels_is_told_and_one_that_leaves_the_stack_is_not(
    config_path: str, api: ApiServer
) -> None:
    settings = _settings(config_path)
    ours = node_labels(settings)["jetson-1"]
    state = _with_operator(api, ours, left={NVIDIA_PCI_DEVICE: ours[NVIDIA_PCI_DEVICE]})
    warnings = run_preflight(settings, state, preview=False, stack="kai-anywhere/jetson").warnings
    [warning] = [warning for warning in warnings if "lost labels" in warning]
    assert re.search("'jetson-1' lost labels .*nvidia.com/gpu.memory.*pulumi up --refresh --stack jetson", warning)


def test_labels_that_somebody_changed_are_told_and_those_that_the_run_itself_changes_are_not(
    config_path: str, api: ApiServer
) -> None:
    settings = _settings(config_path)
    ours = node_labels(settings)["jetson-1"]
    state = _with_operator(api, ours, left=ours | {GPU_MEMORY: "1024", "a": "person's"})
    [warning] = [
        warning
        for warning in run_preflight(settings, state, preview=False, stack="kai-anywhere/jetson").warnings
        if "other labels than" in warning
    ]
    assert (
        f"node 'jetson-1' has other labels than the stack gave it: {GPU_MEMORY} is 1024, not {ours[GPU_MEMORY]}. "
        in warning
    )
    assert "pulumi up --refresh --stack jetson" in warning
    assert "Somebody changed them." in warning

    before = dataclasses.replace(state, labels={"jetson-1": ours | {GPU_MEMORY: "1024"}})
    assert not any(
        "other labels than" in warning for warning in run_preflight(settings, before, preview=False).warnings
    )


def test_a_node_that_joined_again_and_that_the_operator_found_first_is_nobodys_change(
    config_path: str, api: ApiServer
) -> None:
    settings = _settings(config_path)
    ours = node_labels(settings)["jetson-1"]
    toolkit = "nvidia.com/gpu.deploy.container-toolkit"
    state = _with_operator(api, ours, left={NVIDIA_PCI_DEVICE: ours[NVIDIA_PCI_DEVICE], toolkit: "true"})
    [warning] = [
        warning
        for warning in run_preflight(settings, state, preview=False, stack="kai-anywhere/jetson").warnings
        if "other labels than" in warning
    ]
    assert f"{toolkit} is true, not false. It joined again, or somebody changed them." in warning


def test_a_jetson_that_is_put_back_after_a_run_that_failed_midway_gets_its_labels_before_the_operator_finds_it(
    config_path: str, api: ApiServer
) -> None:
    """The run without it has changed the rule that marks it, and the operator has taken off what it found there."""
    settings = _settings(config_path)
    ours = node_labels(settings)["jetson-1"]
    left = {
        label: value for label, value in ours.items() if not label.startswith(("nvidia.com/gpu.deploy.", "feature"))
    }
    assert left
    state = _with_operator(api, ours, left=left)
    says = "'jetson-1' lost labels .*would not write them again.*container-toolkit.*\n?.*pulumi refresh --stack jetson"
    with pytest.raises(PreflightError, match=says) as caught:
        run_preflight(settings, state, preview=False, stack="kai-anywhere/jetson")
    assert "leaves" not in str(caught.value)
    refreshed = dataclasses.replace(state, labels={"jetson-1": left, "leaves": ours})
    warnings = run_preflight(settings, refreshed, preview=False).warnings
    assert not any("lost labels" in warning for warning in warnings)


@pytest.mark.parametrize("deleted", [None, "2026-11-28T07:42:34Z"], ids=["gone", "going"])
def test_what_a_run_deleted_that_was_killed_while_it_moved_a_namespace_is_told_when_the_settings_are_put_back(
    config_path: str, api: ApiServer, deleted: str | None
) -> None:
    """The state still says that all of it is there, so that no `up` makes it."""
    metrics = {"enabled": True, "image": "registry.example.com/metrics:0.1.0"}
    settings = parse(changed(changed(jetson(), "cluster.kubeconfig", config_path), "monitoring", metrics))
    inside = "Deployment/kai-anywhere-monitoring/kai-anywhere-metrics"
    state = DeployedState(True, UID, objects=frozenset({"Namespace/kai-anywhere-monitoring", inside}))
    _serve_namespaces(api, "kai-anywhere-monitoring")

    def findings(*, refreshes: bool = False) -> tuple[str, ...]:
        result = run_preflight(settings, state, preview=False, stack="kai-anywhere/jetson", refreshes=refreshes)
        return tuple(warning for warning in result.warnings if "'kai-anywhere-monitoring'" in warning)

    assert findings() == ()
    if deleted is None:
        api.fail("/api/v1/namespaces/kai-anywhere-monitoring", 404)
        assert findings(refreshes=True) == (), "the run itself refreshed"
        [warning] = findings()
        assert re.search(f"is gone .*{inside}.*pulumi up --refresh --stack jetson", warning)
    else:
        metadata = {"name": "kai-anywhere-monitoring", "uid": "u", "deletionTimestamp": deleted}
        api.serve("/api/v1/namespaces/kai-anywhere-monitoring", {"metadata": metadata})
        says = "(?s)is being deleted .*Wait until it is gone.*pulumi up --refresh --stack jetson"
        for refreshes in (False, True):
            with pytest.raises(PreflightError, match=says):
                findings(refreshes=refreshes)
    # A run that is repeated makes all of it.
    api.fail("/api/v1/namespaces/kai-anywhere-monitoring", 404)
    elsewhere = dataclasses.replace(state, objects=frozenset({"Deployment/before/kai-anywhere-metrics"}))
    warnings = run_preflight(settings, elsewhere, preview=False).warnings
    assert not any("'kai-anywhere-monitoring'" in warning for warning in warnings)


def test_a_default_shard_that_is_gone_is_put_back_by_helm_before_it_is_made_again_empty(
    config_path: str, api: ApiServer
) -> None:
    _serve_namespaces(api, "kai-scheduler")
    revision = {"name": "kai-scheduler", "version": "1", "status": "deployed"}
    secret = {"metadata": {"name": "sh.helm.release.v1.kai-scheduler.v1", "labels": revision}}
    api.serve("/api/v1/namespaces/kai-scheduler/secrets", {"items": [secret]})
    releases = frozenset({("kai-scheduler", "kai-scheduler")})
    ours = DeployedState(True, UID, releases, frozenset({"Namespace/kai-scheduler"}))
    settings = _settings(config_path)
    with pytest.raises(
        PreflightError, match=r"SchedulingShard 'default' is gone.*\n.*helm .*upgrade kai-scheduler CHART"
    ):
        run_preflight(settings, ours, preview=False)
    [warning] = run_preflight(settings, ours, preview=True).warnings
    assert "'default' is gone" in warning
    api.serve("/apis/kai.scheduler/v1/schedulingshards/default", {"metadata": {"name": "default"}})
    assert run_preflight(settings, ours, preview=False).warnings == ()
    del api.answers["/apis/kai.scheduler/v1/schedulingshards/default"]
    failed = {"name": "sh.helm.release.v1.kai-scheduler.v2", "labels": revision | {"version": "2", "status": "failed"}}
    api.serve("/api/v1/namespaces/kai-scheduler/secrets", {"items": [secret, {"metadata": failed}]})
    assert run_preflight(settings, ours, preview=False).warnings == (), "this run goes on with the upgrade"
    api.serve("/api/v1/namespaces/kai-scheduler/secrets", {"items": []})
    [other] = run_preflight(settings, ours, preview=False).warnings
    assert "is not there any more" in other, "KAI is installed anew, and its shard with it"


def test_where_the_stack_goes_only_its_cluster_matters(config_path: str, tmp_path: Path) -> None:
    unready = changed(jetson(), "platform.tegra_nodes", {"gone": {"gpu_memory_mib": 61440}})
    settings = _settings(config_path, changed(unready, "kai.chart.source", str(tmp_path / "gone")))
    ours = DeployedState(deployed=True, cluster_uid=UID, adopted={"Queue/edge": {}})
    result = run_preflight(settings, ours, preview=False, destroys=True)
    assert (result.cluster_uid, result.warnings, result.adopted) == (UID, (), {"Queue/edge": {}})
    with pytest.raises(PreflightError, match="is another one"):
        run_preflight(settings, dataclasses.replace(ours, cluster_uid="another"), preview=False, destroys=True)
    with pytest.raises(PreflightError):
        run_preflight(settings, ours, preview=False)
