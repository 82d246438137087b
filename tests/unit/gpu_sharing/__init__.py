"""KAI's arithmetic: facts of its source, and what holds for every request."""
