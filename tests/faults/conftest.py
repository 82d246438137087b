"""The fixtures of the engine tier: faults need a control plane and the engine too."""

from tests.engine.conftest import api, cluster, engine_environment, new_stack

__all__ = ["api", "cluster", "engine_environment", "new_stack"]
