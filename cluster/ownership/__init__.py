"""Whose an object of the cluster is: this stack's, by its state and its marks, or somebody else's."""
