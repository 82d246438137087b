"""YAML as Pulumi reads it, so that every command takes a stack file for what `pulumi up` takes it for.

Pulumi reads with go-yaml v3, PyYAML knows YAML 1.1: there `no` is false, `10:00` is 600, and `2026-01-15` is a date.
"""

import json
import re
from contextlib import suppress
from math import isfinite
from typing import Any

import yaml
from typing_extensions import override
from yaml.constructor import ConstructorError
from yaml.parser import ParserError
from yaml.reader import ReaderError
from yaml.scanner import ScannerError

_TAG = "tag:yaml.org,2002:"
_NUMBER = re.compile(
    r"[-+]?(0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|(\.[0-9][0-9_]*|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?)$"
)
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?([Tt ].*)?$", re.ASCII)
_OLD_OCTAL = re.compile(r"[-+]?0[0-7]+")
_INTEGERS = range(-(2**63), 2**64)
_WRITTEN_WITHOUT_EXPONENT = 1e21
_FORM = (
    "The mistake is in these lines or between them. YAML is indented with spaces, never with tabs; keys of one level "
    "begin in the same column; a space follows each colon"
)


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice in a mapping, as Pulumi does; YAML's own way is that the last one wins."""

    yaml_implicit_resolvers: dict[str, Any] = {}

    @override
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if (first := lines.get(str(key.value))) is not None:
                where = f"in lines {first} and {line}" if line != first else f"twice in line {line}"
                raise yaml.YAMLError(f"key '{key.value}' stands {where}: remove one")
            lines[str(key.value)] = line
        return node

    @override
    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """A mapping with texts for keys, as in JSON: a node may be called 10."""
        mapping = super().construct_mapping(node, deep)
        return {key if isinstance(key, str) else json.dumps(key): value for key, value in mapping.items()}

    def number(self, node: yaml.ScalarNode) -> int | float | str:
        """A number; one that is too large for a computer's own is a text, as for Pulumi."""
        text = str(self.construct_scalar(node)).replace("_", "")
        with suppress(ValueError):
            whole = int(text, 8 if _OLD_OCTAL.fullmatch(text) else 0)
            if whole in _INTEGERS:
                return whole
        with suppress(ValueError):
            number = float(text)
            if number.is_integer() and abs(number) < _WRITTEN_WITHOUT_EXPONENT:
                return int(number)
            if isfinite(number):
                return number
        return str(node.value)

    def truth(self, node: yaml.ScalarNode) -> bool:
        """A truth value; what only its tag says to be one is none."""
        text = str(self.construct_scalar(node)).lower()
        if text not in {"true", "false"}:
            raise ConstructorError(None, None, f"'{node.value}' is neither true nor false", node.start_mark)
        return text == "true"

    def date(self, node: yaml.ScalarNode) -> None:
        """Refuse a date, of which Pulumi makes a long text."""
        raise yaml.YAMLError(f"'{node.value}' in line {node.start_mark.line + 1} is a date: put it in quotes")


_Loader.add_implicit_resolver(f"{_TAG}bool", re.compile(r"(true|True|TRUE|false|False|FALSE)$"), [*"tTfF"])
_Loader.add_implicit_resolver(f"{_TAG}null", re.compile(r"(~|null|Null|NULL)?$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(f"{_TAG}merge", re.compile(r"<<$"), ["<"])
_Loader.add_implicit_resolver(f"{_TAG}float", _NUMBER, [*"-+.0123456789"])
_Loader.add_implicit_resolver(f"{_TAG}timestamp", _DATE, [*"0123456789"])
_Loader.add_constructor(f"{_TAG}bool", _Loader.truth)
_Loader.add_constructor(f"{_TAG}float", _Loader.number)
_Loader.add_constructor(f"{_TAG}int", _Loader.number)
_Loader.add_constructor(f"{_TAG}timestamp", _Loader.date)
for _kind in ("binary", "set", "omap", "pairs"):
    # They have no JSON.
    del _Loader.yaml_constructors[_TAG + _kind]


class _Dumper(yaml.SafeDumper):
    """Puts in quotes what PyYAML takes for a text and Pulumi for a number, such as `12e34`."""


_Dumper.add_implicit_resolver(f"{_TAG}float", _NUMBER, [*"-+.0123456789"])


def load_yaml(text: str) -> Any:  # noqa: ANN401 - YAML
    """What a text says.

    Raises:
        yaml.YAMLError: if it is not YAML, a key stands twice, or a value has no JSON.
    """
    try:
        loader = _Loader(text)
        # So that a list that has itself as an item is refused.
        loader.deep_construct = True
        return loader.get_single_data()
    except (ScannerError, ParserError) as error:
        raise yaml.YAMLError(f"{reason(error)}\n{_FORM}") from None
    except (yaml.MarkedYAMLError, ReaderError) as error:
        raise yaml.YAMLError(reason(error)) from None
    except RecursionError:
        raise yaml.YAMLError("it is nested too deep") from None


def reason(error: Exception) -> str:
    """What PyYAML says of a text, without its name for one that is no file: `in "<unicode string>", line 1`."""
    return str(error).replace('in "<unicode string>", ', "in ")


def dump_yaml(content: object) -> str:
    """A text that says this, for Pulumi as well as for `load_yaml`."""
    text: str = yaml.dump(content, Dumper=_Dumper, sort_keys=False)
    return text
