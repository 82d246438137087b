"""The verdict on a host's answer: what the stack declares wins, a contradiction names both."""

import json

import pytest

from components.hosts.answer import LONGEST_ANSWER, HostAnswerError, read_probe
from components.hosts.verdict import HostFacts, HostVerdictError, judge
from manifests.hosts import host_plans
from testbed.stacks import Json, changed, parse, spark, without, x86
from tests.support.hosts.answers import NVIDIA, jetson_answer, place, spark_answer, x86_answer
from tests.support.hosts.settings import jetson_with_host, local_host, ssh_host


def _judge(stack: Json, answer: Json) -> HostFacts:
    [plan] = host_plans(parse(stack)).values()
    return judge(plan, read_probe(plan.node, json.dumps(answer)))


def _refusal(stack: Json, answer: Json) -> str:
    with pytest.raises(HostVerdictError) as caught:
        _judge(stack, answer)
    assert "Nothing was changed there." in str(caught.value)
    return str(caught.value)


def _spark_with_host(**declared: object) -> Json:
    stack = changed(changed(spark(), "cluster.distribution", "k3s"), "hosts", {"spark-1": ssh_host()})
    return changed(stack, "platform.unified_memory_nodes.spark-1", declared)


def _x86_with_host() -> Json:
    return changed(changed(x86(), "cluster.distribution", "k3s"), "hosts", {"gpu-1": local_host()})


def test_a_jetsons_memory_is_what_it_has_less_the_reserve() -> None:
    assert _judge(jetson_with_host(), jetson_answer()) == HostFacts("tegra", 62841 - 2048, 1)
    stack = jetson_with_host(ssh_host(gpu_memory_reserve_mib=8192))
    assert _judge(stack, jetson_answer()).gpu_memory_mib == 62841 - 8192


def test_a_spark_whose_gpu_tells_no_memory_shares_the_machines() -> None:
    assert _judge(_spark_with_host(), spark_answer()) == HostFacts("spark", 124610 - 2048, 1)


def test_a_discrete_gpus_memory_is_left_to_gpu_feature_discovery() -> None:
    assert _judge(_x86_with_host(), x86_answer()) == HostFacts("x86", None, 2)


def test_declared_memory_wins() -> None:
    stack = changed(jetson_with_host(), "platform.tegra_nodes.jetson-1.gpu_memory_mib", 32768)
    assert _judge(stack, jetson_answer()).gpu_memory_mib == 32768


def test_more_memory_than_there_is_names_both() -> None:
    stack = changed(jetson_with_host(), "platform.tegra_nodes.jetson-1.gpu_memory_mib", 65536)
    text = _refusal(stack, jetson_answer())
    assert (
        "host 'jetson-1': platform.tegra_nodes.jetson-1.gpu_memory_mib is 65536, but the machine has 62841 MiB" in text
    )
    assert "Write at most 60793" in text
    text = _refusal(_spark_with_host(gpu_memory_mib=131072), spark_answer())
    assert "platform.unified_memory_nodes.spark-1.gpu_memory_mib is 131072, but the machine has 124610 MiB" in text


def test_another_number_of_gpus_names_both() -> None:
    stack = changed(jetson_with_host(), "platform.tegra_nodes.jetson-1.gpu_count", 2)
    assert "gpu_count is 2, but it has 1" in _refusal(stack, jetson_answer())
    assert _judge(stack, changed(jetson_answer(), "gpus", [])).gpu_count == 2, "a host without NVML counts none"


def test_a_reserve_that_leaves_nothing_is_refused() -> None:
    stack = jetson_with_host(ssh_host(gpu_memory_reserve_mib=62000))
    assert "of its 62841 MiB, hosts.jetson-1.gpu_memory_reserve_mib keeps 62000" in _refusal(stack, jetson_answer())


@pytest.mark.parametrize(
    ("stack", "answer", "both", "way_out"),
    [
        (
            jetson_with_host(),
            x86_answer(),
            "'tegra', but it is 'x86', x86_64",
            "Remove 'jetson-1' from platform.tegra_n",
        ),
        (jetson_with_host(), spark_answer(), "'tegra', but it is 'spark'", "under platform.unified_memory_nodes"),
        (_x86_with_host(), jetson_answer(), "'x86', but it is 'tegra'", "platform.tegra_nodes of a tegra stack"),
        (_spark_with_host(), x86_answer(), "'spark', but it is 'x86'", "Remove 'spark-1' from platform.unified"),
        (
            _x86_with_host(),
            changed(x86_answer(), "platform.kind", "none"),
            "'x86', but it is 'none'",
            "Install the NVIDIA driver",
        ),
    ],
)
def test_another_platform_names_both_and_the_way_out(stack: Json, answer: Json, both: str, way_out: str) -> None:
    text = _refusal(stack, answer)
    assert f"the stack says that it is {both}" in text
    assert way_out in text


def test_jetpack_5_is_refused_with_the_reason() -> None:
    text = _refusal(jetson_with_host(), changed(jetson_answer(), "platform.jetpack", "5.1.2"))
    assert "it runs JetPack 5.1.2, which has no NVML" in text
    assert "Flash JetPack 6" in text


def test_another_distribution_names_both_and_none_is_fine() -> None:
    answer = changed(jetson_answer(), "kubernetes.distribution", "microk8s")
    assert "that it runs k3s, but it runs microk8s" in _refusal(jetson_with_host(), answer)
    none = changed(answer, "kubernetes.distribution", "none")
    assert _judge(jetson_with_host(), none).platform == "tegra"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the answer: "),
        ("Welcome to Ubuntu\n{}", "the answer: "),
        ("[]", "the answer: "),
        (json.dumps(without(jetson_answer(), "platform.kind")), "platform.kind: Field required"),
        (json.dumps(changed(jetson_answer(), "platform.kind", "toaster")), "platform.kind: "),
        (json.dumps(changed(jetson_answer(), "memory.total_mib", "62841")), "memory.total_mib: "),
        (json.dumps(changed(jetson_answer(), "memory.total_mib", -1)), "memory.total_mib: "),
        (json.dumps(changed(jetson_answer(), "extra", 1)), "extra: "),
        (json.dumps(changed(jetson_answer(), "version", 3)), "version: "),
        (json.dumps(without(jetson_answer(), "kernel")), "the answer: version 2 has"),
        (json.dumps(changed(jetson_answer(), "version", 1)), "the answer: version 2 has"),
        (
            json.dumps(changed(jetson_answer(), "libraries.nvml", [place("/a", state="odd")])),
            "libraries.nvml.0.state: ",
        ),
        (json.dumps(changed(jetson_answer(), "platform.model", "x" * 5000)), "platform.model: "),
        (
            json.dumps(changed(jetson_answer(), "gpus", [jetson_answer()["gpus"][0] | {"memory_reasons": []}] * 1100)),
            "gpus: ",
        ),
    ],
)
def test_what_is_no_answer_of_the_agent_is_told_and_not_repeated(text: str, says: str) -> None:
    with pytest.raises(HostAnswerError) as caught:
        read_probe("jetson-1", text)
    message = str(caught.value)
    assert message.startswith("host 'jetson-1': its answer is not one of our agent: " + says)
    assert "Nothing was changed there." in message
    assert len(message) < 600


def test_an_endless_answer_is_not_even_read() -> None:
    with pytest.raises(HostAnswerError, match="more than 262144"):
        read_probe("jetson-1", "{" * (LONGEST_ANSWER + 1))


_OPT = "/opt/nvidia/l4t-gpu-libs/openrm"
_OWN = "platform.tegra_nodes.jetson-1.driver_library_paths"


def _libraries(*nvml: Json, **real: str | None) -> Json:
    """An answer's libraries; what is said of a folder is where it really is."""
    folders = {NVIDIA: NVIDIA, _OPT: _OPT, "/usr/lib": "/usr/lib"} | real
    named: list[Json] = [{"path": path, "real": target, "named_by": []} for path, target in folders.items()]
    return changed(jetson_answer(), "libraries", {"folders": named, "nvml": [*nvml], "cuda": [], "findings": []})


def _declares(*folders: str) -> Json:
    return changed(jetson_with_host(), _OWN, list(folders))


@pytest.mark.parametrize(
    ("stack", "answer"),
    [
        (jetson_with_host(), _libraries(place(NVIDIA))),
        (_declares(NVIDIA, _OPT), _libraries(place(NVIDIA))),
        (_declares(_OPT), _libraries(place(_OPT))),
        # Another name of the folder.
        (_declares("/tegra"), _libraries(place(NVIDIA), **{"/tegra": NVIDIA})),
        # A link within the folder, and one into another that is given too.
        (jetson_with_host(), _libraries(place(NVIDIA, real=f"{NVIDIA}/libnvidia-ml.so.595.78"))),
        (_declares("/usr/lib", NVIDIA), _libraries(place("/usr/lib", real=f"{NVIDIA}/libnvidia-ml.so.1"))),
        (_declares("/usr/lib", NVIDIA), _libraries(place("/usr/lib", state="stub"), place(NVIDIA))),
    ],
)
def test_folders_with_nvml_in_them_are_taken(stack: Json, answer: Json) -> None:
    assert _judge(stack, answer).platform == "tegra"


@pytest.mark.parametrize(
    ("stack", "answer", "problem"),
    [
        (
            jetson_with_host(),
            _libraries(place(_OPT)),
            f"libnvidia-ml.so.1 is not in {NVIDIA}.",
        ),
        (
            jetson_with_host(),
            _libraries(place(NVIDIA, state="stub"), place(_OPT)),
            f"{NVIDIA}/libnvidia-ml.so.1 has 0 bytes and is no library",
        ),
        (
            jetson_with_host(),
            _libraries(place(NVIDIA, state="dangling", real="/gone/libnvidia-ml.so.1"), place(_OPT)),
            f"{NVIDIA}/libnvidia-ml.so.1 is a link to /gone/libnvidia-ml.so.1, which is not there",
        ),
        (
            jetson_with_host(),
            _libraries(place(NVIDIA, real=f"{_OPT}/libnvidia-ml.so.1"), place(_OPT)),
            f"is a link to {_OPT}/libnvidia-ml.so.1, which a pod with these folders does not see",
        ),
        (_declares(_OPT, "/gone"), _libraries(place(_OPT), **{"/gone": None}), "/gone is not there"),
    ],
)
def test_a_folder_without_nvml_stops_with_the_line_to_write(stack: Json, answer: Json, problem: str) -> None:
    text = _refusal(stack, answer)
    assert "host 'jetson-1': its reservation pods would not find the driver's library NVML: " in text
    assert problem in text
    assert f'Write {_OWN}: ["{_OPT}"], where it really is.' in text


def test_a_link_that_needs_two_folders_is_written_with_both_and_a_plain_file_is_preferred() -> None:
    linked = place("/usr/lib", real=f"{_OPT}/libnvidia-ml.so.595")
    assert f'{_OWN}: ["/usr/lib", "{_OPT}"]' in _refusal(jetson_with_host(), _libraries(linked))
    assert f'{_OWN}: ["{_OPT}"]' in _refusal(jetson_with_host(), _libraries(linked, place(_OPT)))


def test_a_jetson_without_any_nvml_says_what_to_install() -> None:
    text = _refusal(jetson_with_host(), _libraries(place(NVIDIA, state="stub")))
    assert "libnvidia-ml.so.1 is nowhere on the machine: install JetPack's driver" in text
    assert "driver_library_paths" not in text


def test_where_reservation_pods_are_given_no_folders_none_are_judged() -> None:
    nothing: Json = {"folders": [], "nvml": [], "cuda": [], "findings": []}
    without_overrides = changed(jetson_with_host(), "reservation.overrides", "never")
    assert _judge(without_overrides, changed(jetson_answer(), "libraries", nothing)).platform == "tegra"
    assert _judge(_spark_with_host(), changed(spark_answer(), "libraries", nothing)).platform == "spark"


def test_an_answer_of_an_earlier_agent_in_the_state_is_judged_by_what_it_says() -> None:
    earlier = changed(without(without(jetson_answer(), "libraries"), "kernel"), "version", 1)
    assert _judge(jetson_with_host(), earlier) == HostFacts("tegra", 62841 - 2048, 1)


def test_findings_and_what_the_kernel_lacks_are_notes_and_stop_nothing() -> None:
    gaps = [
        {"feature": "Calico", "options": ["CONFIG_IP6_NF_MATCH_RPFILTER"]},
        {"feature": "the kubelet's pressure metrics (PSI)", "options": ["CONFIG_PSI"]},
    ]
    answer = changed(changed(jetson_answer(), "kernel.gaps", gaps), "libraries.findings", ["a stub"])
    lacks = (
        "its kernel, 5.15.148-tegra, lacks options that some programs need. Calico: CONFIG_IP6_NF_MATCH_RPFILTER; "
        "the kubelet's pressure metrics (PSI): CONFIG_PSI"
    )
    assert _judge(jetson_with_host(), answer).notes == ("a stub", lacks)
    assert _judge(jetson_with_host(), jetson_answer()).notes == ()
