"""What a pod that asks for a remote GPU gets, which both carriers render.

GVirtuS' frontend reads `GVIRTUS_CONFIG` before `$GVIRTUS_HOME/etc/properties.json` (src/frontend/Frontend.cpp, all
branches checked), so nothing in the image changes: the file is an annotation of the pod, mounted by the downward API.
By subPath, since every thread reads the file again, and one that changed would split a process over two backends.
LUPINE's client needs one variable with the address.
"""

import json

from config.gvirtus import BackendKind, GvirtusSettings
from manifests.mutations import HOST, NAME, PORT, Choice, Fragment, Mutation, Own, Pods, Warnings
from manifests.objects import Manifest
from manifests.pod_guard import MAX_CONTAINERS, MAX_ENTRIES

ENABLED_LABEL = "gvirtus.io/enabled"
"""`true` on a pod asks for a remote GPU."""
BACKEND_ANNOTATION = "gvirtus.io/backend"
"""Chooses the backend by name; written back where the pod left the choice to us."""
PROPERTIES_ANNOTATION = "gvirtus.io/properties"
VOLUME = "gvirtus-config"
FILE = "properties.json"
"""GVirtuS takes no file whose name does not end in `.json` (include/gvirtus/common/JSON.h)."""
PATH = f"/run/gvirtus/{FILE}"
GVIRTUS_VARIABLE = "GVIRTUS_CONFIG"
LUPINE_VARIABLE = "LUPINE_SERVER"
SERVER_CONFIG = "kai-anywhere-admission-gvirtus"
"""The ConfigMap that tells the admission server where backends answer."""

VOLUME_TAKEN = f"the volume name {VOLUME} is taken by the remote GPU's properties file: rename your volume"
PATH_TAKEN = (
    f"something else is mounted at {PATH}, where the remote GPU's properties file goes: mount it elsewhere, and set "
    f"{GVIRTUS_VARIABLE} to its path if it is a properties file of your own"
)
TOO_LONG = (
    f"pods with remote GPUs have at most {MAX_CONTAINERS} containers, {MAX_CONTAINERS} init containers and "
    f"{MAX_ENTRIES} of each other list: make the pod smaller"
)
NOT_SERVED = (
    "this pod was not given its GPU backend: a change of the backends takes the cluster some seconds, so create the "
    "pod again (Deployments and Jobs do so by themselves); if this stays, pulumi up --refresh puts back what is missing"
)
NOT_YET = (
    "the admission server does not know the backends of remote GPUs yet. 'pulumi up' writes them into the ConfigMap "
    f"{SERVER_CONFIG} in its namespace, and a minute or two later they are known: try again"
)


def mutation(gvirtus: GvirtusSettings) -> Mutation:
    """The mutation for the carrier `webhook`, with every backend by name."""
    return Mutation(
        pods=Pods(labels={ENABLED_LABEL: "true"}),
        fragments={name: fragment(backend.kind, name) for name, backend in sorted(gvirtus.backends.items())},
        choice=Choice(
            annotation=BACKEND_ANNOTATION,
            default=gvirtus.default,
            unnamed=unknown_backend("", gvirtus),
            unknown=unknown_backend(NAME, gvirtus),
            not_yet=NOT_YET,
        ),
        warnings=Warnings(
            annotations={
                "gpu-fraction": (
                    f"the annotation gpu-fraction asks KAI for a share of a local GPU, and {ENABLED_LABEL} for a "
                    "remote one: remove one of them"
                )
            },
            more_than_one={"nvidia.com/gpu": "container {container} asks for {count} GPUs; a backend has one"},
        ),
    )


def fragment(kind: BackendKind, name: str) -> Fragment:
    """What a pod gets for a backend, with marks for its address.

    Args:
        kind: what the backend is.
        name: its name, or a mark for it.
    """
    chosen = {BACKEND_ANNOTATION: name}
    match kind:
        case BackendKind.LUPINE:
            return Fragment(annotations=chosen, env=[{"name": LUPINE_VARIABLE, "value": f"{HOST}:{PORT}"}], own=Own())
        case BackendKind.GVIRTUS:
            path, field = _annotation_as_file()["path"], _annotation_as_file()["fieldRef"]["fieldPath"]
            return Fragment(
                annotations=chosen | {PROPERTIES_ANNOTATION: frontend_properties(HOST, PORT)},
                env=[{"name": GVIRTUS_VARIABLE, "value": PATH}],
                volumes=[properties_volume()],
                volume_mounts=[{"name": VOLUME, "mountPath": PATH, "subPath": FILE, "readOnly": True}],
                own=Own(
                    volume={"downwardAPI": {"items": [{"path": path, "fieldRef": {"fieldPath": field}}]}},
                    volume_taken=VOLUME_TAKEN,
                    path_taken=PATH_TAKEN,
                    left_alone=(
                        f"container {{container}} sets {GVIRTUS_VARIABLE} itself, so it gets no backend from "
                        f"{BACKEND_ANNOTATION}"
                    ),
                ),
            )


def frontend_properties(host: str, port: str) -> str:
    """GVirtuS' file for a client: the endpoint alone; plugins and security are read by the backend only."""
    endpoint = {"suite": "tcp/ip", "protocol": "tcp", "server_address": host, "port": port}
    return json.dumps({"communicator": [{"endpoint": endpoint}]}, separators=(",", ":"))


def properties_volume() -> Manifest:
    """The annotation as a file."""
    return {"name": VOLUME, "downwardAPI": {"items": [_annotation_as_file()], "defaultMode": 0o644}}


def unknown_backend(name: str, gvirtus: GvirtusSettings) -> str:
    """The refusal of a name that is no backend's."""
    problem = f"there is no GPU backend '{name}'" if name else "this pod asks for a remote GPU and names no backend"
    return f"{problem}: {way_out(gvirtus)}"


def way_out(gvirtus: GvirtusSettings) -> str:
    """What to write instead of an unknown name."""
    names = f"set the annotation {BACKEND_ANNOTATION} to one of: {', '.join(sorted(gvirtus.backends))}"
    return names if gvirtus.default is None else f"{names}; without it, pods get {gvirtus.default}"


def _annotation_as_file() -> Manifest:
    field = {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{PROPERTIES_ANNOTATION}']"}
    return {"path": FILE, "fieldRef": field}
