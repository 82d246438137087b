"""`docs/settings.md`, rendered from the reference."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from config.reference import ANY_NAME, Setting, inside, settings, text_of

_INTRODUCTION = Path(__file__).parent / "introduction.md"


def page() -> str:
    """The whole page: the introduction, then a chapter for each section."""
    all_settings = settings()
    chapters = [line for setting in all_settings if _has_chapter(setting) for line in _chapter(setting, all_settings)]
    return _INTRODUCTION.read_text(encoding="utf-8") + "\n".join([*_contents(all_settings), *chapters])


def anchor(setting: Setting) -> str:
    """Where the page has a setting: its own chapter, or that of its section."""
    if _has_chapter(setting):
        return _link(_titled(setting.key, setting.only_with))
    section, only_with = setting.key.rpartition(".")[0], setting.only_with
    return _link(_titled(section, only_with))


def _has_chapter(setting: Setting) -> bool:
    return setting.shape == "section" or "." not in setting.key


def _titled(key: str, only_with: str | None) -> str:
    """A chapter's heading; that of a variant names what makes it."""
    if only_with is None or not only_with.startswith(f"{key}."):
        return f"`{key}`"
    return f"`{key}` with `{only_with.removeprefix(f'{key}.')}`"


def _link(title: str) -> str:
    """A heading's anchor, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _contents(all_settings: Sequence[Setting]) -> Iterator[str]:
    yield "| Section | What it is for |"
    yield "| --- | --- |"
    for setting in all_settings:
        if "." not in setting.key and setting.only_with is None:
            yield f"| [`{setting.key}`](#{anchor(setting)}) | {_cell(setting.description)} |"
    yield ""


def _chapter(section: Setting, all_settings: Sequence[Setting]) -> Iterator[str]:
    title = _titled(section.key, section.only_with)
    yield f"{'###' if '.' in section.key or section.only_with else '##'} {title}"
    yield ""
    yield _linked(section.description)
    yield ""
    if section.only_with and " with " not in title:
        yield f"Only with `{section.only_with}`."
        yield ""
    if rows := [_row(setting, all_settings) for setting in inside(section)]:
        yield "| Setting | Type | Default | What it is for |"
        yield "| --- | --- | --- | --- |"
        yield from rows
        yield ""
    elif section.shape == "value":
        yield f"Type: {section.type}. Default: {_default(section)}."
        yield ""


def _row(setting: Setting, all_settings: Sequence[Setting]) -> str:
    entries = [other for other in all_settings if other.key == f"{setting.key}.{ANY_NAME}"]
    chapter = next((other for other in [setting, *entries] if _has_chapter(other)), None)
    kind = f"[{setting.type}](#{anchor(chapter)})" if chapter else setting.type
    examples = ", ".join(f"`{text_of(example)}`" for example in setting.examples)
    meaning = _cell(setting.description) + (f"<br>Example: {examples}" if examples else "")
    return f"| `{setting.key}` | {kind} | {_default(setting)} | {meaning} |"


def _default(setting: Setting) -> str:
    if setting.required:
        return "required"
    return "" if setting.default is None else f"`{text_of(setting.default)}`"


def _cell(text: str) -> str:
    return _linked(text).replace("|", "\\|").replace("\n\n", "<br>")


def _linked(text: str) -> str:
    """Pages that a description names, as links."""
    return re.sub(r"docs/([\w-]+\.md(?:#[\w-]+)?)", r"[docs/\1](\1)", text)
