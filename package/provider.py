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
from components.hosts.secrets import HOST_SECRETS
from components.installation import install, plain_keys, settings_of_file
from config.stack import SETTINGS_KEY, StackConfigError
from package.schema import NAME, package_schema
from package.version import VERSION


class KaiAnywherePackage(Provider):
    """Makes the package's one component."""

    def __init__(self) -> None:
        super().__init__(VERSION, json.dumps(package_schema()))
        self._name: str | None = None

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
        if (first := self._name) not in {None, name}:
            raise _refusal(
                f"'{name}' is the second {tokens.KAI_ANYWHERE} of this stack, beside '{first}', and a stack takes one. "
                "Remove one of them; for another cluster, make another stack."
            )
        self._name = name
        settings = inputs.get(SETTINGS_KEY)
        if place := next(_unknown(settings, SETTINGS_KEY), None):
            raise _refusal(
                f"{place} is another resource's output or a secret. Settings decide which resources there are, so they "
                f"must be plain values; hosts name their secrets, whose values are given as {HOST_SECRETS} or stand in "
                "this project's configuration.",
            )
        secrets = _host_secrets(inputs.get(HOST_SECRETS))
        try:
            if settings is None:
                file, other_keys = f"Pulumi.{pulumi.get_stack()}.yaml", plain_keys(NAME)
                text, base = settings_of_file(file, NAME)
            else:
                text, base = json.dumps(_whole_numbers(settings)), None
                file, other_keys = f"the component '{name}'", []
            top = install(
                name,
                text,
                file=file,
                base=base,
                other_keys=other_keys,
                package=True,
                host_secrets=secrets,
                opts=options,
            )
        except (StackConfigError, ClusterError) as error:
            raise _refusal(str(error)) from None
        return ConstructResult(urn=top.urn, state=top.outputs)


def _refusal(text: str) -> InputPropertiesError:
    """An error that the engine shows as it is.

    The empty list is meant. Symptom without it: `'Status' object has no attribute 'trailing_metadata'` in place of the
    text (pulumi SDK 3.272, no issue upstream is known). With a property's name, the engine prints all of its value.
    """
    return InputPropertiesError(text, [])


def _host_secrets(secrets: object) -> dict[str, pulumi.Output[str]]:
    """The secrets of hosts by name; a preview may not know their values yet.

    Raises:
        InputPropertiesError: if names are unknown, or a value is no secret; the text has no value.
    """
    if secrets is None:
        return {}
    if not isinstance(secrets, Mapping):
        raise _refusal(
            f"{HOST_SECRETS} must be a map whose names are written in the program: make each value a secret, not the "
            "map."
        )
    for secret, value in sorted(secrets.items()):
        if not isinstance(value, pulumi.Output | pulumi.output.Unknown):
            raise _refusal(
                f"{HOST_SECRETS}.{secret} is not marked as a secret, so its value may be shown. Take it from the "
                "configuration (pulumi config set --secret), or mark it: fn::secret in YAML, pulumi.Output.secret() in "
                "Python, pulumi.secret() in TypeScript."
            )
    return {secret: pulumi.Output.secret(value) for secret, value in secrets.items()}


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
