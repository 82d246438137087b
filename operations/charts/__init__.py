"""Charts, looked at without a cluster: a newer one before its version is pinned, and the images of a stack."""
