"""What the API server's controllers find in the types of ValidatingAdmissionPolicies; a simulator does not look."""

import subprocess
from typing import Any

import simulator
import toolchain
from testbed.inventory import connect
from testbed.waiting import eventually
from toolchain.programs import KUBE_CONTROLLER_MANAGER

_POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


def type_checks(control_plane: simulator.ControlPlane) -> dict[str, Any]:
    """Run the real controller until it has seen every policy; gives their `status.typeChecking` by policy's name.

    Nothing wrong is `{}`, else there is a list of `expressionWarnings`.
    """
    program = toolchain.install([KUBE_CONTROLLER_MANAGER])[KUBE_CONTROLLER_MANAGER]
    log = control_plane.folder / "type-checks.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [
                str(program),
                f"--kubeconfig={control_plane.kubeconfig}",
                "--controllers=validatingadmissionpolicy-status-controller",
                "--leader-elect=false",
                "--secure-port=0",
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as controller,
        connect(control_plane) as api,
    ):
        try:

            def policies() -> list[Any]:
                return list(api.get(_POLICIES).json()["items"])

            def checked(policy: Any) -> bool:  # noqa: ANN401 - JSON
                return bool(policy.get("status", {}).get("observedGeneration") == policy["metadata"]["generation"])

            eventually(lambda: all(map(checked, policies())) or controller.poll() is not None)
            assert controller.poll() is None, log.read_text(encoding="utf-8")
            return {policy["metadata"]["name"]: policy["status"]["typeChecking"] for policy in policies()}
        finally:
            controller.terminate()
