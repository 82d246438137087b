"""How many random stacks a property is asked about, and which.

A plain run has the same ones as long as the same modules are loaded, of which Hypothesis takes constants: so it fails
for hardly anybody but whoever changed something. With `RANDOM_STACKS=3000` each property gets that many of its own, and
a failure is printed with what repeats it.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from pydantic import BaseModel

from testbed.stacks import Json
from tests.properties.stacks import stacks

_MANY = int(os.environ.get("RANDOM_STACKS", "0"))
_Test = TypeVar("_Test", bound=Callable[..., None])


def examples(usual: int) -> Callable[[_Test], _Test]:
    """Decorate a property: how many random stacks a plain run asks it about."""
    return settings(
        max_examples=_MANY or usual,
        derandomize=not _MANY,
        print_blob=True,
        database=None,
        deadline=None,
        # A stack has hundreds of values.
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )


_AT_ONCE = 10
"""Examples of one run: of more, Hypothesis makes variations of those before, which take three quarters of its time and
say little that is new."""


def drawn(count: int, of: int | None = None, until: Callable[[Json], bool] = lambda _: False) -> list[Json]:
    """The same random stacks in every run, or the same ones of a seed.

    Args:
        count: how many at most.
        of: the seed.
        until: whether a stack is the last one.
    """
    random = (stack for run in itertools.count() for stack in _some(f"{of} {run}"))
    drawn_stacks: list[Json] = []
    while len(drawn_stacks) < count and not (drawn_stacks and until(drawn_stacks[-1])):
        drawn_stacks.append(next(random))
    return drawn_stacks


def _some(of: str) -> list[Json]:
    """A few random stacks, the same ones of a seed."""
    drawn_stacks: list[Json] = []

    @seed(of)
    @settings(
        max_examples=_AT_ONCE,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(stacks())
    def draw(stack: Json) -> None:
        drawn_stacks.append(stack)

    draw()
    # The first one is the simplest in each run.
    return drawn_stacks[1:]


def of_models(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Every model of the settings."""
    for model in base.__subclasses__():
        if model.__module__.startswith("config."):
            yield model
            yield from of_models(model)
