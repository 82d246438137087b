"""What pods ask for, and what KAI's admission refuses (v0.17.0 pkg/binder/plugins/gpusharing/gpu-request)."""

import time
from fractions import Fraction
from typing import Any

import pytest

from gpu_sharing.quantities import QuantityError, quantity
from gpu_sharing.request import (
    ComputeMode,
    FractionShare,
    GpuRequest,
    MemoryShare,
    MigSlices,
    RequestError,
    WholeGpus,
    gpu_groups,
    pod_request,
)

_REQUEST = "nvidia.com/container.main.gpu-memory.request"
_LIMIT = "nvidia.com/container.main.gpu-memory.limit"


def _pod(annotations: dict[str, str] | None = None, **resources: object) -> dict[str, Any]:
    named = {name.replace("__", "/").replace("_", "."): value for name, value in resources.items()}
    return {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": "main", "resources": {"limits": named}}]},
    }


@pytest.mark.parametrize(
    ("annotations", "request_"),
    [
        ({"gpu-memory": "30720"}, MemoryShare(30720)),
        ({"gpu-memory": "30720", "gpu-fraction-num-devices": "2"}, MemoryShare(30720, devices=2)),
        ({"gpu-fraction": "0.25"}, FractionShare(0.25)),
        ({"gpu-fraction": "5e-1", "mps": "true"}, FractionShare(0.5)),
        ({_REQUEST: "4Gi"}, MemoryShare(4096)),
        ({_LIMIT: "8Gi"}, MemoryShare(8192)),
        ({_REQUEST: "1Gi", _LIMIT: "8Gi", "gpu-fraction-num-devices": "3"}, MemoryShare(1024, devices=3)),
        ({_REQUEST: "1000000"}, MemoryShare(1)),
        ({_REQUEST: "4G"}, MemoryShare(3814)),
        # KAI's own admission adds its annotation beside the user's, from v0.18 on.
        ({"gpu-memory": "4096", _REQUEST: "4096Mi"}, MemoryShare(4096)),
        # Beside it a fraction counts for nothing.
        ({"gpu-fraction": "0.1", _REQUEST: "4Gi", "gpu-fraction-num-devices": "2"}, MemoryShare(4096, devices=2)),
        (
            {"gpu-fraction": "0.5", "nvidia.com/container.main.gpu-compute.mode": "sm-sharing"},
            FractionShare(0.5, mode=ComputeMode.SM_SHARING),
        ),
        (
            {"gpu-memory": "100", "kai.scheduler/gpu-compute-sharing-mode": "sm-sharing"},
            MemoryShare(100, mode=ComputeMode.SM_SHARING),
        ),
        ({"mps": "false"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_annotations_say_what_a_pod_shares(annotations: dict[str, str] | None, request_: GpuRequest | None) -> None:
    assert pod_request(_pod(annotations)).gpu == request_


@pytest.mark.parametrize(
    ("spelling", "fraction"),
    [
        ("0x1p-1", 0.5),
        ("0X.8P0", 0.5),
        ("0x_1p-1_0", 2**-10),
        ("0.2_5", 0.25),
        ("2_5e-2", 0.25),
        ("25e-0002", 0.25),
        ("+.5", 0.5),
        ("0x" + "0" * 100_000 + "1p-1", 0.5),
    ],
)
def test_a_fraction_is_read_however_go_reads_it(spelling: str, fraction: float) -> None:
    """KAI gives such a pod its share: nobody hides one by how it is written."""
    assert pod_request(_pod({"gpu-fraction": spelling})).gpu == FractionShare(fraction)


def test_zeros_in_front_hide_no_memory_and_no_devices() -> None:
    annotations = {"gpu-memory": "0" * 100_000 + "30720", "gpu-fraction-num-devices": "0" * 100_000 + "2"}
    assert pod_request(_pod(annotations)).gpu == MemoryShare(30720, devices=2)


@pytest.mark.parametrize(
    ("annotations", "why"),
    [
        ({"gpu-memory": "4Gi"}, "gpu-memory is '4Gi': give MiB as a whole number above 0, without a unit"),
        ({"gpu-memory": "0"}, "gpu-memory is '0'"),
        ({"gpu-memory": "-5"}, "gpu-memory is '-5'"),
        ({"gpu-fraction": "1"}, "gpu-fraction is '1': give a number above 0 and below 1"),
        ({"gpu-fraction": "0"}, "gpu-fraction is '0'"),
        ({"gpu-fraction": "nan"}, "gpu-fraction is 'nan'"),
        ({"gpu-fraction": "500m"}, "gpu-fraction is '500m'"),
        *[
            ({"gpu-fraction": odd}, f"gpu-fraction is '{odd}'")
            for odd in (
                "0x.8",
                "0_.5",
                "_0.5",
                "0.5_",
                "0x_.8p0",
                "0b1p-1",
                "0x1p0",
                "0x1p" + "9" * 30,
                "5e-1e",
                " 0.5",
            )
        ],
        ({"gpu-fraction": "0.5", "gpu-memory": "5"}, "gpu-memory and gpu-fraction in one pod"),
        ({"gpu-fraction-num-devices": "2"}, "gpu-fraction-num-devices without gpu-memory or gpu-fraction"),
        ({"mps": "true"}, "mps without gpu-memory or gpu-fraction"),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"}, "gpu-fraction-num-devices is '0'"),
        ({"gpu-fraction": "0.5", "kai.scheduler/gpu-compute-sharing-mode": "mps"}, "give time-slicing or sm-sharing"),
        ({_REQUEST: "much"}, "'much' is not a Kubernetes quantity"),
        ({_REQUEST: "1e999999999"}, "'1e999999999' is not a Kubernetes quantity"),
        ({_REQUEST: "9" * 5000}, "is not a Kubernetes quantity"),
        ({"gpu-memory": "\u0661\u0662"}, "give MiB as a whole number"),
        ({"gpu-fraction": "0.\uff15"}, "give a number above 0 and below 1"),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "\u0662"}, "give a whole number above 0"),
        ({_REQUEST: "0"}, "give an amount of memory above 0"),
        ({_REQUEST: "2Gi", _LIMIT: "1Gi"}, "asks for 2048 MiB, more than its limit of 1024 MiB"),
        ({_REQUEST: "1Gi", "nvidia.com/container.other.gpu-memory.limit": "1Gi"}, "the containers main, other"),
        ({"nvidia.com/container.gone.gpu-memory.limit": "1Gi"}, "the container 'gone', and the pod has main"),
    ],
)
def test_what_admission_refuses_is_an_error_with_the_way_out(annotations: dict[str, str], why: str) -> None:
    with pytest.raises(RequestError) as caught:
        pod_request(_pod(annotations))
    assert why in str(caught.value)


def test_whole_gpus_are_asked_for_as_a_resource() -> None:
    assert pod_request(_pod(nvidia_com__gpu=2)).gpu == WholeGpus(2)


@pytest.mark.parametrize("annotations", [{"gpu-memory": "5"}, {"gpu-fraction": "0.5"}, {_LIMIT: "1Gi"}])
def test_a_share_and_a_whole_gpu_in_one_pod_are_refused(annotations: dict[str, str]) -> None:
    with pytest.raises(RequestError, match=f"{next(iter(annotations))} together with nvidia.com/gpu: 1"):
        pod_request(_pod(annotations, nvidia_com__gpu="1"))


def test_half_a_gpu_is_no_resource() -> None:
    with pytest.raises(RequestError, match=r"nvidia.com/gpu is 0\.5: give a whole number"):
        pod_request(_pod(nvidia_com__gpu="500m"))


def test_mig_slices_are_charged_by_their_compute_slices() -> None:
    slices = {"nvidia.com/mig-3g.20gb": 2, "nvidia.com/mig-1g.5gb": "1", "nvidia.com/mig-1g.10gb.me": 1}
    pod = {"metadata": {}, "spec": {"containers": [{"resources": {"limits": slices}}]}}
    asked = pod_request(pod).gpu
    assert isinstance(asked, MigSlices)
    assert asked.slices == (
        ("nvidia.com/mig-1g.10gb.me", 1),
        ("nvidia.com/mig-1g.5gb", 1),
        ("nvidia.com/mig-3g.20gb", 2),
    )
    assert asked.charged_gpus == 7


def test_a_slice_and_a_share_in_one_pod_are_refused() -> None:
    pod = {
        "metadata": {"annotations": {"gpu-fraction": "0.5"}},
        "spec": {"containers": [{"resources": {"limits": {"nvidia.com/mig-1g.5gb": 1}}}]},
    }
    with pytest.raises(RequestError, match="remove one of them"):
        pod_request(pod)


def test_containers_and_sidecars_add_up_and_an_init_container_counts_where_it_needs_more() -> None:
    def container(memory: str, **more: object) -> dict[str, object]:
        return {"resources": {"requests": {"memory": memory, "cpu": "250m"}}, **more}

    spec = {
        "containers": [container("1Gi"), container("1Gi")],
        "initContainers": [container("1Gi", restartPolicy="Always"), container("4Gi")],
        "overhead": {"memory": "1Mi"},
    }
    asked = pod_request({"metadata": {}, "spec": spec})
    assert asked.memory == 5 * 2**30 + 2**20
    assert asked.cpu == Fraction(3, 4)
    assert asked.gpu is None


@pytest.mark.parametrize(
    ("whole", "gib"),
    [
        ({"requests": {"memory": "4Gi"}}, 5),
        ({"requests": {"memory": "4Gi"}, "limits": {"memory": "8Gi"}}, 5),
        ({"limits": {"memory": "8Gi", "cpu": "1"}}, 3),
        ({"limits": {"cpu": "1"}}, 3),
    ],
)
def test_what_a_pod_asks_for_as_a_whole_counts_in_place_of_its_containers(whole: dict[str, Any], gib: int) -> None:
    containers = [{"resources": {"requests": {"memory": "1Gi"}}}] * 2
    asked = pod_request({"spec": {"containers": containers, "overhead": {"memory": "1Gi"}, "resources": whole}})
    assert asked.memory == gib * 2**30
    assert asked.cpu == Fraction("cpu" in whole.get("limits", {}))


@pytest.mark.parametrize(
    ("labels", "groups"),
    [
        (None, ()),
        ({"runai-gpu-group": "a"}, ("a",)),
        ({"runai-gpu-group/b": "b", "runai-gpu-group/a": "a", "app": "x"}, ("a", "b")),
        ({"runai-gpu-group": "a", "runai-gpu-group/a": "a"}, ("a",)),
    ],
)
def test_the_gpus_of_a_running_pod_stand_in_its_labels(labels: dict[str, str] | None, groups: tuple[str, ...]) -> None:
    assert gpu_groups({"metadata": {"labels": labels}}) == groups


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500m", Fraction(1, 2)),
        ("2", 2),
        (3, 3),
        (0.5, Fraction(1, 2)),
        ("1.5Gi", 3 * 2**29),
        ("1e3", 1000),
        ("12E", 12 * 10**18),
        ("1k", 1000),
        (".5", Fraction(1, 2)),
        ("0" * 5000 + "5Gi", 5 * 2**30),
        ("5e" + "0" * 5000 + "9", 5 * 10**9),
        ("0.5" + "0" * 5000 + "Gi", 2**29),
        ("0." + "9" * 5000, 1 - Fraction(1, 10**40)),
    ],
)
def test_a_quantity_is_read_exactly(text: str | float, value: Fraction) -> None:
    assert quantity(text) == value


@pytest.mark.parametrize("text", ["", ".", "+", "Gi", "1 Gi", "1Kb", "ten", True, "1ee3", "1.5.5", "٣"])
def test_what_is_no_quantity_is_refused(text: str | bool) -> None:
    with pytest.raises(QuantityError, match="is not a Kubernetes quantity"):
        quantity(text)


@pytest.mark.parametrize("text", ["1e99999999", "1e-99999999", "9" * 5000])
def test_a_quantity_that_no_machine_can_hold_is_refused_at_once(text: str) -> None:
    """It stands in an annotation of anybody's pod, which `status` and the exporter of metrics read."""
    began = time.monotonic()
    with pytest.raises(RequestError, match="is not a Kubernetes quantity"):
        pod_request(_pod({_REQUEST: text}))
    assert time.monotonic() - began < 1
