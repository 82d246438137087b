"""What tests and benchmarks run against: simulated clusters, a real sshd, a deployed admission server."""
