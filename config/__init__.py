"""What a stack may say: strict pydantic models, validated once, knowing nothing of Pulumi or Kubernetes clients."""
