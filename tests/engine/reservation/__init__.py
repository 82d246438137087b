"""KAI's reservation pods, and the guard of all pods, on a real API server."""
