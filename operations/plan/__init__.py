"""`plan`: how many pods fit, by KAI's own arithmetic, before anything is deployed."""
