"""What runs in the test's pods in place of images that no package registry has; nothing here is imported elsewhere."""
