"""The package's version, apart from what needs the settings' models: the engine asks every process of it."""

VERSION = "0.1.0"
"""That of pyproject.toml."""
