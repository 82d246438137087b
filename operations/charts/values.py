"""Which of the values that a stack passes to a chart the chart does something with.

Helm ignores a value path that no template reads, so a renamed one is found nowhere else. A name in a template is no
proof either, as another value may have the same. So the chart is rendered: with each value as it is passed, and with
another.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from manifests.objects import HelmRelease
from operations.charts.files import Chart
from operations.charts.helm import Circumstances, Definitions, Helm, RenderingError, fields, objects

ValuePath: TypeAlias = tuple[str, ...]
"""The keys that lead to a value."""
_UNSET: Final = object()
_NO_VALUE = "kai-anywhere-tries-this"
"""A value, and the key of one, that no chart has."""


def leaves(values: Mapping[str, Any], above: ValuePath = ()) -> Iterator[tuple[ValuePath, Any]]:
    """Paths and values, as deep as there are any."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*above, key))
        else:
            yield (*above, key), value


def value_at(values: Mapping[str, Any], path: ValuePath) -> Any:  # noqa: ANN401 - JSON
    """The value at a path; None where there is none."""
    node: Any = values
    for key in path:
        node = node.get(key) if isinstance(node, Mapping) else None
    return node


def _put(values: Mapping[str, Any], path: ValuePath, value: object) -> dict[str, Any]:
    """A copy with one value changed, or without it."""
    key, *rest = path
    result = dict(values)
    if rest:
        below = result.get(key)
        result[key] = _put(below if isinstance(below, Mapping) else {}, tuple(rest), value)
    elif value is _UNSET:
        result.pop(key, None)
    else:
        result[key] = value
    return result


@dataclass(frozen=True)
class _Scene:
    """Values and circumstances under which each value is tried.

    Attributes:
        values: what is passed.
        circumstances: what the chart is told of the cluster.
        text: what it renders.
        fields: the fields of that which are the same each time; some charts make passwords or certificates.
        stable: whether all are.
    """

    values: Mapping[str, Any]
    circumstances: Circumstances
    text: str
    fields: frozenset[tuple[str, str]]
    stable: bool


class Reading:
    """Which of the values that a release passes to a chart something depends on."""

    def __init__(self, helm: Helm, chart: Chart, release: HelmRelease, kubernetes: str) -> None:
        """Take what is rendered; nothing is yet."""
        self._helm, self._chart, self._release = helm, chart, release
        apis = tuple(dict.fromkeys(re.findall(r'APIVersions\.Has\s+"([^"]+)"', chart.text)))
        self._circumstances = (Circumstances(kubernetes), Circumstances(kubernetes, apis, upgrade=True))
        self._echoes: dict[tuple[int, ValuePath], frozenset[str]] = {}

    def look(self) -> None:
        """Render the chart with the release's own values in all circumstances.

        Raises:
            RenderingError: helm refuses.
        """
        _ = self._plain

    def problem(self, path: ValuePath) -> str | None:
        """What is wrong with a value, or None where something depends on it.

        Raises:
            RenderingError: helm does not render the chart with the release's own values.
        """
        value = value_at(self._release.values, path)
        # A switch that the stack leaves off may hide it: the image of a part that is not wanted.
        if self._any_matters(self._plain, path, value) or self._any_matters(self._switched_on, path, value):
            return None
        return "nothing that the chart renders depends on it"

    def is_default(self, path: ValuePath) -> bool:
        """Whether the chart renders the same without the value."""
        value = value_at(self._release.values, path)
        if value is not None and repr(value_at(self._chart.values, path)) == repr(value):
            # Helm puts the same in its place.
            return True
        return all(self._same(scene, _put(scene.values, path, _UNSET)) for scene in self._plain)

    @functools.cache  # noqa: B019 - as many as there are stacks
    def definitions(self) -> Definitions:
        """The kinds that the chart defines.

        Raises:
            RenderingError: helm does not render the chart with the release's own values.
        """
        first, *_ = self._circumstances
        text = self._helm.render(self._chart.path, self._release, first, definitions=True)
        return Definitions(objects(text))

    @functools.cached_property
    def _plain(self) -> tuple[_Scene, ...]:
        return tuple(self._scene(self._release.values, circumstances) for circumstances in self._circumstances)

    @functools.cached_property
    def _switched_on(self) -> tuple[_Scene, ...]:
        """With each switch of the chart on; if it refuses all at once, each that can be on with those before it."""
        values = self._release.values
        switches = [
            path
            for path, default in leaves(self._chart.values)
            if default is False and not value_at(self._release.values, path)
        ]
        every = functools.reduce(lambda more, path: _put(more, path, True), switches, values)
        if self._renders(every):
            values = every
        else:
            for path in switches:
                more = _put(values, path, True)
                if self._renders(more):
                    values = more
        return tuple(self._scene(values, circumstances) for circumstances in self._circumstances)

    def _renders(self, values: Mapping[str, Any]) -> bool:
        with suppress(RenderingError):
            self._render(values, self._circumstances[0])
            return True
        return False

    def _scene(self, values: Mapping[str, Any], circumstances: Circumstances) -> _Scene:
        first, second = (self._render(values, circumstances) for _ in range(2))
        return _Scene(values, circumstances, first, self._fields(first) & self._fields(second), first == second)

    def _any_matters(self, scenes: Iterable[_Scene], path: ValuePath, value: object) -> bool:
        return any(self._matters(scene, path, other) for scene in scenes for other in _others(value))

    def _matters(self, scene: _Scene, path: ValuePath, other: object) -> bool:
        try:
            changed = self._changed(scene, _put(scene.values, path, other))
        except RenderingError:
            # It rendered with the release's own value, so a template looks at this one.
            return True
        return bool(changed and changed - self._echo(scene, path))

    def _echo(self, scene: _Scene, path: ValuePath) -> frozenset[str]:
        """Places that any value beside this one changes, such as a checksum of a whole section."""
        key = (id(scene), path[:-1])
        if key not in self._echoes:
            self._echoes[key] = self._changed(scene, _put(scene.values, (*path[:-1], _NO_VALUE), _NO_VALUE))
        return self._echoes[key]

    def _changed(self, scene: _Scene, values: Mapping[str, Any]) -> frozenset[str]:
        text = self._render(values, scene.circumstances)
        if text == scene.text:
            return frozenset()
        rendered = self._fields(text)
        if not scene.stable:
            rendered &= self._fields(self._render(values, scene.circumstances))
        return frozenset(place for place, _ in rendered ^ scene.fields)

    def _same(self, scene: _Scene, values: Mapping[str, Any]) -> bool:
        try:
            return not self._changed(scene, values)
        except RenderingError:
            return False

    def _fields(self, text: str) -> frozenset[tuple[str, str]]:
        # What an API server drops of an object has no effect.
        kept = self.definitions().kept
        return frozenset(fields(kept(manifest) for manifest in objects(text)).items())

    def _render(self, values: Mapping[str, Any], circumstances: Circumstances) -> str:
        # A schema may refuse the values that are tried here; the release's own are judged with it in `definitions`.
        return self._helm.render(self._chart.path, replace(self._release, values=values), circumstances, schema=False)


def _others(value: object) -> tuple[object, ...]:
    """Values of the same type to try instead."""
    match value:
        case bool():
            return (not value,)
        case int() | float():
            return (value + 1,)
        case str():
            return (f"{value}-{_NO_VALUE}",)
        case list():
            return ([],) if value else ([_NO_VALUE], [{"name": _NO_VALUE}])
        case _:
            return ({_NO_VALUE: _NO_VALUE},)
