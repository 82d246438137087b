"""Real pods: a kubelet and containerd beside the simulated nodes, and processes that use what the stack gives them."""
