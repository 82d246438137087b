"""Findings that a team accepts for its own objects: data of its repository, each with a reason and an end."""

import os
from collections.abc import Iterable
from datetime import UTC, date, datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, Field, JsonValue, TypeAdapter, ValidationError
from typing_extensions import override

FILE = "policy-exceptions.yaml"
"""Beside Pulumi.yaml; the pack's configuration may hold the same list as `exceptions` instead."""
_PROJECTS = ("Pulumi.yaml", "Pulumi.yml", "Pulumi.json")
PROGRAM_FOLDER = "KAI_ANYWHERE_PROGRAM_FOLDER"
"""Where the pack's executable was started, which is the program's folder: an environment variable of `policy/run`."""

_Text = Annotated[str, Field(min_length=1, max_length=2000)]


class OwnException(BaseModel, extra="forbid", frozen=True):
    """One value of one object that a rule forbids and a team accepts.

    Attributes:
        rule: the rule's name.
        kind: the object's kind, as findings write it.
        name: the object's name; the resource's logical name where the object has none.
        namespace: the object's namespace; empty where the kind has none, or the program does not say it.
        field: the field, as findings write it; empty for every field of the object with this value.
        value: what was found: the field's value, or what the finding shows of it.
        who: who accepts it.
        why: why it can't be otherwise.
        until: the last day, in UTC.
        stacks: names of the stacks that it is for; empty for every one.
    """

    rule: _Text
    kind: _Text
    name: _Text
    namespace: str = ""
    field: str = ""
    value: JsonValue
    who: _Text
    why: _Text
    until: date
    stacks: tuple[_Text, ...] = ()

    @override
    def __hash__(self) -> int:
        """Values may be objects, which have no hash of their own."""
        return hash((self.rule, self.kind, self.name, self.namespace, self.field, self.until))

    def covers(self, rule: str, kind: str, name: str, field: str, values: Iterable[object]) -> bool:
        """Whether a finding is this one, and the exception is in force.

        Args:
            rule: the rule's name.
            kind: the object's kind, as the finding writes it.
            name: the object's namespace and name, as the finding writes them.
            field: the field, as the finding writes it.
            values: what stands there, and what the finding shows of it.
        """
        full_name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        same = (self.rule, self.kind, full_name) == (rule, kind, name) and self.field in {"", field}
        return same and not self.is_over() and any(_same(self.value, value) for value in values)

    def is_over(self) -> bool:
        """Whether its last day is past."""
        return datetime.now(UTC).date() > self.until

    @override
    def __str__(self) -> str:
        """The object and the rule, for a message."""
        full_name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"The exception of {self.who} for {self.kind} {full_name} (rule {self.rule})"


_LIST = TypeAdapter(list[OwnException])


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice in a mapping, as for a stack file; YAML's own way is that the last one wins."""

    @override
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if str(key.value) in seen:
                raise yaml.YAMLError(f"key '{key.value}' in line {key.start_mark.line + 1} stands twice: remove one")
            seen.add(str(key.value))
        return node


def _same(accepted: object, value: object) -> bool:
    # Python's True is equal to 1; nobody who accepts one accepts the other.
    return accepted == value and isinstance(accepted, bool) == isinstance(value, bool)


def parse(entries: object, source: str, rules: Iterable[str]) -> tuple[OwnException, ...]:
    """The exceptions of a list.

    Args:
        entries: plain values.
        source: where they stand, for messages.
        rules: every rule's name.

    Raises:
        ValueError: if one of them is none; the text names entry, key and what is allowed.
    """
    try:
        exceptions = tuple(_LIST.validate_python([] if entries is None else entries))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(step) for step in first["loc"]) or "the whole"
        keys = ", ".join(OwnException.model_fields)
        raise ValueError(f"{source}: {where}: {first['msg']}; each entry has the keys {keys}") from None
    allowed = sorted(rules)
    for index, exception in enumerate(exceptions):
        if exception.rule not in allowed:
            raise ValueError(f"{source}: {index}.rule: there is no such rule; the rules are {', '.join(allowed)}")
    return exceptions


def _file(program: Path) -> Path:
    """In the program's folder, or beside the project's file: one with `main` has its program further down."""
    if (own := program / FILE).exists():
        return own
    projects = (
        folder for folder in (program, *program.parents) if any((folder / name).is_file() for name in _PROJECTS)
    )
    return next(projects, program) / FILE


@lru_cache(maxsize=1)
def of_file(rules: frozenset[str]) -> tuple[OwnException, ...]:
    """The exceptions of the program's project; none where it has no such file.

    Raises:
        ValueError: if the file can't be read, or holds something else.
    """
    folder = os.environ.get(PROGRAM_FOLDER)
    path = _file(Path(folder or "."))
    if not folder or not path.exists():
        return ()
    try:
        text = path.read_text(encoding="utf-8")
        content = yaml.load(text, Loader=_Loader)  # noqa: S506 - it constructs plain values alone
    # PyYAML itself raises others for what is none of its kind, as `!!bool maybe`.
    except (OSError, ValueError, LookupError, AttributeError, RecursionError, yaml.YAMLError) as error:
        raise ValueError(f"{FILE} can't be read as YAML: {' '.join(str(error).split())}") from None
    return parse(content, FILE, rules)
