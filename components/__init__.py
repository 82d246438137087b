"""Component resources: the only code that registers anything with the Pulumi engine."""
