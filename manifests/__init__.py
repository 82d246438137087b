"""What the settings mean: pure functions from settings to Kubernetes objects and Helm values, no Pulumi and no I/O."""
