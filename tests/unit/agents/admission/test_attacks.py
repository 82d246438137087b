"""What any pod can do to the server, against a process of its own over loopback: it lives on and answers others.

How much slower others are is measured by `make bench-admission`; here is only the time that an API server waits.
"""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.admission_load import load
from manifests import admission
from manifests.objects import manifests
from testbed.admission.attacks import ATTACKS, attack
from testbed.admission.objects import body, reservation_pod
from testbed.stacks import ROOT, parse, webhook

_SECONDS = 3.0


@pytest.mark.parametrize("kind", ATTACKS)
def test_an_attack_ends_no_server_takes_no_memory_beyond_its_limit_and_keeps_nobody_waiting_too_long(
    kind: str,
) -> None:
    settings = parse(webhook())
    [container] = manifests(admission.objects(settings))["deployment"]["spec"]["template"]["spec"]["containers"]
    limit_mib = int(container["resources"]["limits"]["memory"].removesuffix("Mi"))
    command = [sys.executable, "-m", "benchmarks.admission_servers", "aiohttp"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        with attack(kind, told["port"], seconds=10 * _SECONDS) as over:
            review = body(reservation_pod())
            latency = asyncio.run(load(told["port"], told["authorities"], review, per_second=5, seconds=_SECONDS))
            counts = over()
        assert process.poll() is None
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        _, errors = process.communicate()
    [peak] = re.findall(r"VmHWM:\s+(\d+) kB", status)
    assert counts.total() >= 50, "there was an attack"
    assert latency.failures == 0
    assert latency.p99 < settings.admission.timeout_seconds * 1000
    assert int(peak) / 1024 < limit_mib
    assert not [line for line in errors.splitlines() if line.endswith("Error") or "Bad file descriptor" in line]
    assert "SSL connection is closed" not in errors, "anybody could fill the disk with it"
