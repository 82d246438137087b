"""What must hold before the first resource is registered."""
