"""What must hold of the cluster before the first resource is registered, a check a file."""
