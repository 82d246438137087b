"""A whole stack on a real control plane: made, changed, broken, remembered."""
