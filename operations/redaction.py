"""Takes secrets out of what others will read: comments on pull requests, and bundles for issue reports."""

import re
from collections.abc import Iterable, Mapping, Sequence

HIDDEN = "[secret]"
"""What stands in place of a secret; Pulumi uses the same word."""

# Pulumi marks a secret by these; the event log has no plain text beside them (sdk/go/common/resource/sig, 3.259).
_MARK, _MARK_OF_A_SECRET = "4dabf18193072939515e22adb298388d", "1b47061264138c4ac30d75fd1eb44270"
_SECRET_KEY = re.compile(r"(?i)passw(or)?d$|passphrase$|token$|secret$|(private|api|access)[_-]?key$|credentials?$")
_SECRET_TEXT = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\b(AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\b(gh[pousr]_|github_pat_)\w{20,}"
    # A run of such characters is read once: from each of its "eyJ" to its end would take hours for a hostile text.
    r"|(?<![\w-])(?=[\w-]*?\beyJ[\w-]{8})[\w-]++\.eyJ[\w-]{8,}\.[\w-]*"
    r"|(?<=://)[^\s/:@]+:[^\s/@]+(?=@)",
    re.DOTALL,
)
_KUBERNETES_SECRET = re.compile(r"kubernetes:core/v1:Secret(Patch|List)?$")
_SHORTEST_KNOWN = 4


class Redactor:
    """Hides what is marked as secret, what looks like one, and the values it was told.

    Args:
        secrets: values, such as a token of the environment; those below four characters are not looked for, since they
            would be found everywhere.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        values = sorted({value for value in secrets if len(value) >= _SHORTEST_KNOWN}, key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, values))) if values else None

    def text(self, text: str) -> str:
        """The text without secrets."""
        if self._secrets:
            text = self._secrets.sub(HIDDEN, text)
        return _SECRET_TEXT.sub(HIDDEN, text)

    def inputs(self, resource_type: str, values: Mapping[str, object]) -> dict[str, object]:
        """A resource's properties without secrets."""
        hidden = {"data", "stringData", "items"} if _KUBERNETES_SECRET.search(resource_type) else set()
        return {self.text(key): HIDDEN if key in hidden else self._value(value, key) for key, value in values.items()}

    def _value(self, value: object, key: str) -> object:
        match value:
            case Mapping():
                if value.get(_MARK) == _MARK_OF_A_SECRET:
                    return HIDDEN
                named = value.get("name")
                # An environment variable's name stands beside its value.
                beside = named if isinstance(named, str) else ""
                return {
                    self.text(str(inner)): self._value(below, beside if inner == "value" and beside else str(inner))
                    for inner, below in value.items()
                }
            case str():
                return HIDDEN if _SECRET_KEY.search(key) else self.text(value)
            case Sequence():
                return [self._value(item, key) for item in value]
            case _:
                return value
