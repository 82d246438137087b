"""Hosts of a stack as settings, for tests that reach none."""

from testbed.stacks import Json, changed, jetson, mixed, x86

HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBlFmcklCxzuuKgauv/SV1Xb/Di/+2Y4hmFkoW6xI8tk"


def ssh_host(**more: object) -> Json:
    """A host behind SSH."""
    return {
        "ssh": {"address": "192.0.2.21", "user": "ubuntu", "host_key": HOST_KEY, "private_key_secret": "lab-key"},
        **more,
    }


def local_host(**more: object) -> Json:
    """The machine that runs Pulumi."""
    return {"local": True, **more}


def full_host() -> Json:
    """A host that says everything."""
    host = ssh_host(
        sudo_password_secret="lab-sudo",
        revision=3,
        check="always",
        distribution="k3s",
        toolkit={"owner": "host", "mode": "csv"},
        docker={"configure": True, "default_runtime": True},
        cdi={"generate": True},
        images=["registry.example.com:5000/team/app:1.0", "busybox"],
        gpu_memory_reserve_mib=4096,
        timeouts={"probe_seconds": 30, "configure_seconds": 600, "restart_seconds": 120},
    )
    bastion = {"address": "bastion.example.com", "user": "jump", "host_key": HOST_KEY, "password_secret": "jump-login"}
    host["ssh"] |= {"port": 2222, "private_key_password_secret": "lab-key-password", "bastion": bastion}
    return host


def jetson_with_host(host: Json | None = None) -> Json:
    """The Jetson stack with its node as a host, whose memory it does not declare."""
    stack = changed(jetson(), "platform.tegra_nodes", {"jetson-1": {}})
    return changed(stack, "hosts", {"jetson-1": host or ssh_host()})


def x86_with_host(host: Json | None = None) -> Json:
    """An x86 stack with one host."""
    return changed(x86(), "hosts", {"gpu-1": host or ssh_host()})


def mixed_with_hosts() -> Json:
    """A mixed stack with a host of each kind."""
    stack = changed(mixed(), "cluster.distribution", "k3s")
    spark = changed(ssh_host(distribution="kubeadm"), "ssh.address", "192.0.2.22")
    return changed(
        changed(stack, "platform.unified_memory_nodes", {"spark-1": {}}),
        "hosts",
        {"jetson-1": ssh_host(), "spark-1": spark, "gpu-1": local_host()},
    )
