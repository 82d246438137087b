"""The host agent with the real programs it calls: nvidia-ctk, containerd 1.x and 2.x."""
