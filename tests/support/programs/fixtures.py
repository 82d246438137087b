"""Public test data that comes as a Go module: read where Go keeps it, never copied into this repository."""

import shutil
from pathlib import Path

from tests.support.programs import ROOM
from toolchain.errors import ToolchainError
from toolchain.go import check_go, module_folder
from toolchain.recipe import ModuleFile

POD_SECURITY = ModuleFile("pod-security-fixtures", "k8s.io/pod-security-admission", "test/testdata", ROOM)
"""Pods that Pod Security accepts and refuses, by level, version and verdict (Apache-2.0)."""

NFD_DEFINITIONS = ModuleFile(
    "node-feature-discovery", "sigs.k8s.io/node-feature-discovery", "deployment/base/nfd-crds", ROOM
)
"""The CustomResourceDefinitions of Node Feature Discovery (Apache-2.0)."""


def fixtures(file: ModuleFile) -> Path:
    """The read-only folder of test data; Go fetches the module if it is missing.

    Raises:
        ToolchainError: There is no usable `go`, or the module can't be fetched.
    """
    try:
        check_go(file.source, file.module)
        return module_folder(file.module, file.source, file.module) / file.path
    except ToolchainError as error:
        raise ToolchainError(
            f"The test data of {file.module} can't be had.",
            why=str(error).replace("\n", "\n    "),
            remedy="install Go, and point GOPROXY to a Go module proxy that this machine reaches; only the comparison "
            "with that data needs it",
        ) from error


def can_fetch() -> bool:
    """Whether there is a `go` at all."""
    return shutil.which("go") is not None
