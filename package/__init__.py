"""The whole stack as one component for programs in other languages: a Pulumi provider, and its schema."""
