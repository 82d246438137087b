"""`plan` beside the real KAI."""
