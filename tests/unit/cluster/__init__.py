"""What is read from a cluster, from a real HTTP server on loopback."""
