"""The resource graph, seen by a recording monitor."""
