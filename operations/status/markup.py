"""HTML from parts: what is not made here is text, and is escaped. Pure."""

from html import escape


class Markup(str):
    """HTML that is made of escaped parts."""

    __slots__ = ()


def element(name: str, *content: str, **attributes: str | int | None) -> Markup:
    """An element.

    Args:
        name: of the element.
        content: text, which is escaped, or `Markup`.
        attributes: a `_` in a name stands for `-`, one at its end for nothing; without a value where it is empty,
            absent where it is None.
    """
    rendered = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + (f'="{escape(str(value))}"' if value != "" else "")
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{rendered}>{joined(*content)}</{name}>")


def joined(*content: str) -> Markup:
    """Parts beside each other."""
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in content))
