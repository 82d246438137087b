"""The provider: what a program in another language says becomes the same component as in ours."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pulumi
from pulumi.errors import InputPropertiesError
from pulumi.provider import ConstructResult, Provider
from typing_extensions import override

from cluster.errors import ClusterError
from components import tokens
from components.installation import install
from config.stack import SETTINGS_KEY, StackConfigError
from package.schema import package_schema
from package.version import VERSION


class KaiAnywherePackage(Provider):
    """Makes the package's one component."""

    def __init__(self) -> None:
        super().__init__(VERSION, json.dumps(package_schema()))

    @override
    def construct(
        self,
        name: str,
        resource_type: str,
        inputs: Mapping[str, Any],
        options: pulumi.ResourceOptions | None = None,
    ) -> ConstructResult:
        """Register everything, as the program of this repository does.

        Raises:
            InputPropertiesError: if a setting is wrong or the cluster is not ready; nothing was registered then.
        """
        if resource_type != tokens.KAI_ANYWHERE:
            raise _refusal(f"'{resource_type}' is not of this package; it has {tokens.KAI_ANYWHERE}.")
        settings = inputs.get(SETTINGS_KEY)
        if place := next(_unknown(settings, SETTINGS_KEY), None):
            raise _refusal(
                f"{place} is another resource's output or a secret. Settings decide which resources there are, so they "
                "must be plain values; hosts name their secrets, whose values stand in this project's configuration.",
            )
        text = None if settings is None else json.dumps(_whole_numbers(settings))
        try:
            top = install(name, text, file=f"the component '{name}'", package=True, opts=options)
        except (StackConfigError, ClusterError) as error:
            raise _refusal(str(error)) from None
        return ConstructResult(urn=top.urn, state=top.outputs)


def _refusal(text: str) -> InputPropertiesError:
    """An error that the engine shows as it is.

    The empty list is meant. Symptom without it: `'Status' object has no attribute 'trailing_metadata'` in place of the
    text (pulumi SDK 3.272, no issue upstream is known). With a property's name, the engine prints all of its value.
    """
    return InputPropertiesError(text, [])


def _whole_numbers(value: object) -> object:
    """Numbers travel as floats; whole ones are ints again."""
    match value:
        case Mapping():
            return {key: _whole_numbers(item) for key, item in value.items()}
        case list():
            return [_whole_numbers(item) for item in value]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value


def _unknown(value: object, place: str) -> Iterator[str]:
    """Where outputs and values that a preview does not know stand."""
    match value:
        case pulumi.Output() | pulumi.output.Unknown():
            yield place
        case Mapping():
            for key, item in value.items():
                yield from _unknown(item, f"{place}.{key}")
        case list():
            for index, item in enumerate(value):
                yield from _unknown(item, f"{place}[{index}]")
        case _:
            pass
