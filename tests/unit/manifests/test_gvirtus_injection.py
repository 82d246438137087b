"""What a pod with a remote GPU gets, as the data that both carriers render; the server's tests merge it."""

import json

import pytest
from pydantic import ValidationError

from config.gvirtus import BackendKind, GvirtusSettings
from manifests.gvirtus.injection import PATH, PATH_TAKEN, VOLUME, VOLUME_TAKEN, fragment, mutation
from manifests.mutations import HOST, NAME, PORT, Fragment, Pods
from testbed.stacks import changed, gvirtus, parse


def _remote(**changes: object) -> GvirtusSettings:
    stack = gvirtus()
    for key, value in changes.items():
        stack = changed(stack, f"gvirtus.{key}", value)
    remote = parse(stack).gvirtus
    assert remote is not None
    return remote


def test_the_file_is_what_gvirtus_reads() -> None:
    annotations = fragment(BackendKind.GVIRTUS, "a").annotations
    assert json.loads(annotations["gvirtus.io/properties"]) == {
        "communicator": [{"endpoint": {"suite": "tcp/ip", "protocol": "tcp", "server_address": HOST, "port": PORT}}]
    }
    assert annotations["gvirtus.io/backend"] == "a", "what was chosen for the pod can be seen"


def test_lupine_gets_one_variable_and_nothing_else() -> None:
    assert fragment(BackendKind.LUPINE, "l").model_dump(exclude_defaults=True) == {
        "annotations": {"gvirtus.io/backend": "l"},
        "env": [{"name": "LUPINE_SERVER", "value": f"{HOST}:{PORT}"}],
        "own": {},
    }


def test_the_document_has_every_backend_finished_but_for_its_address() -> None:
    document = mutation(_remote()).document()
    assert document["pods"] == {"labels": {"gvirtus.io/enabled": "true"}}
    assert document["fragments"].keys() == {"gpu-a", "gpu-b"}
    marks = {word for word in (NAME, HOST, PORT) if word in json.dumps(document["fragments"])}
    assert marks == {HOST, PORT}
    own = document["fragments"]["gpu-a"]["own"]
    assert (own["volumeTaken"], own["pathTaken"]) == (VOLUME_TAKEN, PATH_TAKEN)
    assert document["fragments"]["gpu-a"]["volumeMounts"] == [
        {"name": VOLUME, "mountPath": PATH, "subPath": "properties.json", "readOnly": True}
    ]


def test_our_volume_is_known_by_a_part_of_itself() -> None:
    given = fragment(BackendKind.GVIRTUS, "a")
    assert given.own is not None
    [volume] = given.volumes
    [item], [own_item] = volume["downwardAPI"]["items"], given.own.volume["downwardAPI"]["items"]
    assert (own_item["path"], own_item["fieldRef"].items() <= item["fieldRef"].items()) == (item["path"], True)


@pytest.mark.parametrize(
    ("default", "way_out"),
    [
        ("gpu-a", "set the annotation gvirtus.io/backend to one of: gpu-a, gpu-b; without it, pods get gpu-a"),
        (None, "set the annotation gvirtus.io/backend to one of: gpu-a, gpu-b"),
    ],
)
def test_refusals_name_the_backends_that_there_are(default: str | None, way_out: str) -> None:
    choice = mutation(_remote(default_backend=default)).choice
    assert choice is not None
    assert choice.default == default
    assert choice.unnamed == f"this pod asks for a remote GPU and names no backend: {way_out}"
    assert choice.unknown == f"there is no GPU backend '{NAME}': {way_out}"


def test_a_mutation_with_an_unknown_part_or_a_wrong_type_is_none() -> None:
    wrongs: list[dict[str, object]] = [{"labels": {}, "label": {}}, {"labels": {"a": 1}}, {}]
    for wrong in wrongs:
        with pytest.raises(ValidationError):
            Pods.model_validate(wrong)
    with pytest.raises(ValidationError):
        Fragment.model_validate({"env": [{"name": "A", "value": 1}]})
