"""GPU sharing on our clusters: the program of kai-anywhere, at the version that requirements.txt names."""

from components.program import run

run()
