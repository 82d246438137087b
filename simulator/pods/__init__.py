"""Pods that are processes: KAI's programs, started here as their Deployments say, with nothing emulated.

A kubelet gives a container a network, a file system and an identity of its own. A process of ours has: a loopback
address of its own, which `launcher` and `addresses` put under every port that it opens; a folder with the files of its
volumes, which `container` names in its arguments; a token of the pod's ServiceAccount. None of it needs root; it needs
Linux. The API server reaches Services of such pods through `egress`.
"""
