"""Finds manifests in strings: YAML and JSON, also in base64, as ConfigMaps, ConfigGroups and Jobs carry them."""

import base64
import binascii
import json
import re
import zlib
from collections.abc import Callable

import yaml
from typing_extensions import override

_MANIFEST = re.compile(
    r"apiVersion|containers|securityContext|privileged|host(?:Network|PID|IPC|Path|Port|Process)|capabilities|procMount"
    r"|sysctls|(?:seccomp|appArmor)Profile|seLinuxOptions|volumeDevices|adminAccess|NVIDIA_VISIBLE|pod-security|\"op\"|\bop:|\bservices:"
)
"""What a text must contain to be worth parsing."""

_ESCAPED = re.compile(r"""\\(?:u00|x)[2-7][0-9A-Fa-f][^"']{0,200}["']\s*:""")
"""A key with an ASCII character written as an escape: no program writes that by itself."""

_HEREDOC = re.compile(r"<<-?[ \t]{0,9}[\"'\\]?(\w{1,80})")
"""Where a shell begins to hand text to a command, such as `kubectl apply -f -`."""
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]{40,}+={0,2}+\s*+")
_DOCUMENT_END = re.compile(r"(?:^|(?<=[\r\x85\u2028\u2029]))(?:---|\.\.\.)(?=\s|$)", re.MULTILINE)
"""After every line break of YAML. kubectl drops what stands between `...` and `---`; other readers do not."""
_MARKED = "\ufeff\r\n"
"""What a document may begin with: an editor's mark of the order of bytes."""
_JSON = json.JSONDecoder()
_SPACE = re.compile(r"[\ufeff\s]*+")
_GZIP = b"\x1f\x8b"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_SHORTEST = 8
_SHORTEST_BASE64 = 40
LONGEST = 2_000_000
_MOST_NODES = 50_000
"""Values in one text, each counted as often as YAML aliases repeat it; more of them are a bomb, not a manifest."""


class RefusedTextError(Exception):
    """The text is too large to be judged."""


class _Loader(yaml.CSafeLoader):
    """YAML as kubectl reads it: tags that nobody knows change nothing, and bytes stay the text that they are in."""

    @override
    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Put what `<<` merges into a mapping: it is repeated here already, before values can be counted."""
        entries = len(node.value)
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                for merged in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    if isinstance(merged, yaml.MappingNode):
                        self.flatten_mapping(merged)
                        entries += len(merged.value)
                    if entries > _MOST_NODES:
                        raise RefusedTextError
        super().flatten_mapping(node)


def _untagged(loader: _Loader, _suffix: str, node: yaml.Node) -> object:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return node.value


def _or_text(construct: Callable[[_Loader, yaml.Node], object]) -> Callable[[_Loader, yaml.Node], object]:
    """A scalar of which only Python can't make what it seems to be, such as 2001-99-99 or `!!bool maybe`, is a text."""

    def constructed(loader: _Loader, node: yaml.Node) -> object:
        try:
            value = construct(loader, node)
            # Python reads a hexadecimal number of any length, and writes none of more than 4,300 digits.
            str(value)
        except (ValueError, LookupError, AttributeError):
            return node.value
        return value

    return constructed


_Loader.add_multi_constructor("", _untagged)
for _tag in (f"tag:yaml.org,2002:{_type}" for _type in ("bool", "int", "float", "timestamp")):
    _Loader.add_constructor(_tag, _or_text(_Loader.yaml_constructors[_tag]))
_Loader.add_constructor("tag:yaml.org,2002:binary", lambda _, node: node.value)


def decoded(text: str) -> str:
    """The text, or what it says in base64 and gzip, however often it was encoded."""
    while len(text) >= _SHORTEST_BASE64 and _BASE64.fullmatch(text):
        try:
            data = base64.b64decode(text, validate=False)
            if data.startswith(_GZIP):
                data = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data, LONGEST + 1)
            text = data.decode("utf-16" if data.startswith(_UTF_16) else "utf-8")
        except (binascii.Error, zlib.error, UnicodeDecodeError):
            return text
    return text


def is_manifest(text: str) -> bool:
    """Whether a text may hold Kubernetes objects or patches of them."""
    return len(text) >= _SHORTEST and (_MANIFEST.search(text) or _ESCAPED.search(text)) is not None


def parse(text: str) -> tuple[list[object], str]:
    """The mappings and lists that a text holds, or that a shell script in it hands to its commands.

    With what of the text is no such document.

    Raises:
        RefusedTextError: if there is too much of it.
    """
    if len(text) > LONGEST:
        raise RefusedTextError
    parsed, rest = _documents(text)
    return [*parsed, *(value for body in heredocs(rest) for value in _documents(body)[0])], rest


def _documents(text: str) -> tuple[list[object], str]:
    """YAML documents, each by itself: one that is none hides no other. And those that are none."""
    parsed: list[object] = []
    rest: list[str] = []
    for whole in _DOCUMENT_END.split(text):
        objects, part = _json(whole)
        _count(objects, {})
        parsed += objects
        if objects and not part:
            continue
        try:
            document = yaml.load(part.lstrip(_MARKED), Loader=_Loader)  # noqa: S506 - it constructs plain values alone
        except RecursionError:
            raise RefusedTextError from None
        except (yaml.YAMLError, ValueError, TypeError, OverflowError):
            document = None
        if isinstance(document, dict | list):
            _count(document, {})
            parsed.append(document)
        elif isinstance(document, str) and part.lstrip()[:1] in {'"', "'"}:
            # A text in quotes, as JSON in JSON; each level is shorter than the one around it.
            parsed += _documents(document)[0]
        else:
            rest.append(part)
    return parsed, "---".join(rest)


def _json(text: str) -> tuple[list[object], str]:
    """The objects that a text of JSON begins with, and what follows them.

    kubectl reads them one by one. YAML takes neither several nor an emoji in two escapes.
    """
    objects: list[object] = []
    end = _begin(text, 0)
    try:
        while text[end : end + 1] in {"{", "["}:
            document, end = _JSON.raw_decode(text, end)
            objects.append(document)
            end = _begin(text, end)
    except ValueError:
        pass
    except RecursionError:
        raise RefusedTextError from None
    return objects, text[end:] if objects else text


def _begin(text: str, start: int) -> int:
    """Where the next value of JSON begins; an editor may have marked the text's order of bytes."""
    space = _SPACE.match(text, start)
    return start if space is None else space.end()


def heredocs(text: str) -> list[str]:
    """The texts that a shell script hands to its commands; without an end, up to the last line."""
    bodies: list[list[str]] = []
    end = ""
    for line in text.splitlines() if "<<" in text else ():
        if end and line.strip() == end:
            end = ""
        elif end:
            bodies[-1].append(line)
        elif begin := _HEREDOC.search(line):
            end = begin.group(1)
            bodies.append([])
    return ["\n".join(lines) for lines in bodies]


def _count(value: object, counts: dict[int, int]) -> int:
    """How many values there are with every alias written out."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in counts:
        # An object inside itself never ends.
        counts[id(value)] = _MOST_NODES
        items = value.values() if isinstance(value, dict) else value
        counts[id(value)] = 1 + sum(_count(item, counts) for item in items)
    if counts[id(value)] > _MOST_NODES:
        raise RefusedTextError
    return counts[id(value)]
