"""The text at the end of `make up`."""

import pytest

from cluster.access.answers.nodes import Node
from operations.lifecycle.summary import of_hosts, render
from testbed.stacks import (
    Json,
    changed,
    jetson,
    never,
    operator_elsewhere,
    parse,
    rungs,
    time_slicing,
    unprivileged,
    x86,
)

OUTPUTS: dict[str, object] = {
    "gpu_operator_version": "v26.7.2",
    "kai_version": "v0.18.6",
    "queues": ["default-queue", "edge"],
}


def _node(name: str, gpus: int, **labels: str) -> Node:
    named = {"kai-anywhere.io/platform" if key == "platform" else f"nvidia.com/{key}": v for key, v in labels.items()}
    return Node.model_validate(
        {
            "metadata": {"name": name, "labels": {key.replace("_", "."): value for key, value in named.items()}},
            "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}},
        }
    )


NODES = {
    "jetson-1": _node("jetson-1", 1, platform="tegra", gpu_memory="122880"),
    "gpu-7": _node("gpu-7", 8, gpu_memory="46068"),
    "cpu-1": _node("cpu-1", 0),
}


def _text(  # noqa: PLR0913 - the parts of the text
    stack: Json,
    *,
    simulated: tuple[str, ...] = (),
    runs_kai: bool = False,
    width: int = 110,
    file: str = "/home/me/.kube/config",
    server: str = "https://127.0.0.1:6443",
    context: str = "",
) -> str:
    return render(
        stack="edge",
        server=server,
        version="v1.36.3",
        settings=parse(stack),
        nodes=NODES,
        outputs=OUTPUTS,
        simulated=simulated,
        runs_kai=runs_kai,
        kubeconfig=file,
        context=context,
        width=width,
    )


def _row(text: str, node: str) -> str:
    return " ".join(next(line for line in text.splitlines() if line.strip().startswith(node)).split())


def test_it_says_what_runs_where() -> None:
    text = _text(jetson())
    assert text.startswith("Stack 'edge' is up on https://127.0.0.1:6443 (Kubernetes v1.36.3).")
    assert "GPU Operator v26.7.2 in namespace gpu-operator" in text
    assert "KAI scheduler v0.18.6 in namespace kai-scheduler; queues: default-queue, edge" in text
    assert _row(text, "jetson-1") == "jetson-1 tegra 1 122880 KAI, in fractions with Tegra overrides"
    assert _row(text, "cpu-1") == "cpu-1 - - - - -"


def test_the_way_to_the_cluster_can_be_pasted_into_a_shell() -> None:
    assert "export KUBECONFIG=/home/me/.kube/config\n" in _text(jetson())
    assert "export KUBECONFIG='/home/me/my cluster/config'\n" in _text(jetson(), file="/home/me/my cluster/config")


def test_what_is_to_be_tried_next_names_the_context_that_kubectl_would_not_take_by_itself() -> None:
    assert "\n  kubectl apply -f examples/fraction.yaml" in _text(jetson())
    assert "\n  kubectl --context 'my boards' apply -f examples/fraction.yaml" in _text(jetson(), context="my boards")


def test_an_address_of_ipv6_and_a_folder_in_brackets_stay_as_they_are() -> None:
    text = _text(jetson(), server="https://[fd00:1:bed:1::1]:6443", file="/home/me/[work]/config")
    assert text.startswith("Stack 'edge' is up on https://[fd00:1:bed:1::1]:6443 (Kubernetes v1.36.3).")
    assert "export KUBECONFIG='/home/me/[work]/config'\n" in text


def test_a_node_without_overrides_keeps_reservation_pods_as_kai_makes_them() -> None:
    assert _row(_text(never()), "jetson-1").endswith("as KAI makes them")
    assert "get libraries, devices and privilege" not in _text(never())
    assert "get libraries, devices and privilege" not in _text(x86())


def test_what_reservation_pods_get_is_told_by_rung() -> None:
    def summary(stack: Json) -> str:
        return " ".join(_text(stack).split())

    assert "get libraries, devices and privilege on Tegra nodes, and nothing on others" in summary(jetson())
    assert "get variables on Tegra nodes, and nothing on others" in summary(unprivileged())
    assert (
        "get libraries, devices and privilege on jetson-3, libraries on jetson-2, variables on jetson-1, and nothing"
        in summary(rungs())
    )


def test_a_sliced_node_says_so() -> None:
    assert _row(_text(time_slicing()), "gpu-7") == "gpu-7 x86 8 46068 time slicing, 4 replicas as KAI makes them"


def test_where_kai_refuses_fractions_none_is_offered() -> None:
    whole = changed(jetson(), "kai.gpu_sharing_mode", "disabled")
    for text in (_text(whole), _text(whole, simulated=("Cluster: a simulator.",), runs_kai=True)):
        assert "KAI, whole GPUs alone" in _row(text, "jetson-1")
        assert "in fractions" not in text
        assert "examples/fraction.yaml" not in text
    assert "examples/fraction.yaml" in _text(jetson(), simulated=("Cluster: a simulator.",), runs_kai=True)


def test_an_operator_of_somebody_else_is_not_claimed() -> None:
    assert "GPU Operator" not in _text(operator_elsewhere())


def test_on_a_cluster_of_ones_own_nothing_is_said_to_be_simulated() -> None:
    text = _text(jetson())
    assert "imulated" not in text
    assert "kubectl apply -f examples/fraction.yaml" in text


def test_on_the_simulator_it_says_what_is_not_real_and_leads_on_to_a_real_cluster() -> None:
    text = _text(jetson(), simulated=("Simulated: nodes and pods.", "Charts: stand-ins."))
    assert "\nSimulated: nodes and pods.\n\nCharts: stand-ins.\n" in text
    assert "--as system:serviceaccount:kai-scheduler:binder" in text
    assert "KUBECONFIG=~/.kube/config" in text
    assert "examples/fraction.yaml" not in text, "KAI does not run on the simulator, so nothing would schedule it"


def test_where_kai_runs_on_the_simulator_a_fraction_is_the_next_step() -> None:
    assert "examples/fraction.yaml" in _text(jetson(), simulated=("Simulated.",), runs_kai=True)


def test_an_x86_stack_is_not_told_to_look_at_a_mutation_that_does_not_happen() -> None:
    assert "reservation-pod.yaml" not in _text(x86(), simulated=("Simulated.",))


@pytest.mark.parametrize("width", [40, 60])
def test_on_a_narrow_terminal_all_but_the_commands_fits(width: int) -> None:
    text, _, commands = _text(
        jetson(), simulated=("Simulated: nodes and pods, which are records that KWOK keeps.",), width=width
    ).partition("Try next:")
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text, "no name and no number is cut"
    assert (
        "make up STACK=edge KUBECONFIG=~/.kube/config   # your cluster; first edit Pulumi.edge.yaml (EDIT)" in commands
    )


def test_hosts_alone_tell_what_their_nodes_may_share() -> None:
    text = of_hosts("rack-1", {"platform": "tegra", "gpu_memory_mib": {"jetson-2": 28672, "jetson-1": 57344}})
    assert text == (
        "The hosts of stack 'rack-1' are ready. Another stack of their cluster installs KAI.\n"
        "There, gpu_memory_mib of these nodes is at most:\n"
        "  jetson-1: 57344\n"
        "  jetson-2: 28672"
    )
    assert of_hosts("rack-2", {"gpu_memory_mib": {}}).count("\n") == 0
