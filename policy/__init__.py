"""The policy pack: privilege only where a stack's platform grants it, for this program and any Kubernetes stack."""
