"""KAI's arithmetic of GPU memory: what pods ask for, what a GPU has, and who runs where. Pure."""
