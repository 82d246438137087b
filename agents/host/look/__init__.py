"""What a host is: platform, GPUs, container runtimes and tools. Only reads."""
