"""Takes secrets out of what others will read: comments on pull requests, and bundles for issue reports."""

import re
from collections.abc import Iterable, Mapping, Sequence

HIDDEN = "[secret]"
"""What stands in place of a secret; Pulumi uses the same word."""

# Pulumi marks a secret by these; the event log has no plain text beside them (sdk/go/common/resource/sig, 3.259).
_MARK, _MARK_OF_A_SECRET = "4dabf18193072939515e22adb298388d", "1b47061264138c4ac30d75fd1eb44270"
# How their names end; `secretKeyRef` and `secretName` end otherwise, and the settings `private_key_secret` and
# `sudo_password_secret` hold the name of one.
_NAMES = (
    r"(?i:passw(?:or)?d|passphrase|token|(?<!key_)(?<!password_)secret|credentials?"
    r"|(?:private|api|access|secret)[_-]?key|client[_-]?key[_-]?data)"
)
_SECRET_KEY = re.compile(rf"{_NAMES}$")
_SECRET_TEXT = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    # A password may hold "@", so all before the last one in front of the path. A token stands there alone; so do an SSH
    # user's name and, in a container's status, an image before its digest, which are no secrets.
    r"|(?<=://)[^\s/:\"]*:[^\s/]*(?=@)"
    r"|(?<=://)(?<!ssh://)[^\s/?#:\"'`<>,;()]+(?=@(?!sha256:))"
    r"|\b(AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\b(gh[pousr]_|github_pat_)\w{20,}"
    r"|\b(nvapi-[\w-]{20,}|glpat-[\w.-]{20,}|pul-[0-9a-f]{40}\b)"
    # A run of such characters is read once: from each of its "eyJ" to its end would take hours for a hostile text.
    r"|(?<![\w-])(?=[\w-]*?\beyJ[\w-]{8})[\w-]++\.eyJ[\w-]{8,}\.[\w-]*",
    re.DOTALL,
)
# A registry's login, as Docker's config.json has it. A word such as "required" has neither capitals nor digits.
_LOGIN = re.compile(r"(?=[a-z]*[A-Z0-9+/=])[\w+/-]{8,}={0,2}")
_LOGIN_TEXT = re.compile(rf"(?P<shown>\"_?auth\\*\"\s*:\s*\\*\"){_LOGIN.pattern}")
_ASSIGNED = re.compile(
    # A run of such characters is read once: from each of its places to its end would take hours for a long line.
    rf"(?P<shown>(?:(?<![\w.-])(?P<option>--)?+[\w.-]*{_NAMES}(?:"
    # "Secret::name" is a part of a resource's name, and a sentence goes on with a word: `type "passphrase": not found`.
    r"(?:\\*[\"'])?\s*(?:=|:(?!:))\s*(?!(?<=\s)[a-z]+,? [a-zA-Z])"
    # The next argument is an option's value; after another word, a secret has a digit. `--secret` has a name.
    r"|(?<!(?i:secret))[ \t]+(?(option)(?!-)|(?=[^\s\"']*\d)))"
    r"|\blogin\b[^\n;|&]{0,200}?\s-p[ =]?"
    r"|\b(?:(?i:bearer)|(?i:basic)(?=[ \t]+[a-z]*[\dA-Z=]))[ \t]+(?=[\w.~+/=-]{8}))"
    # JSON inside of JSON has its quotes behind backslashes.
    r"(?P<quote>\\*[\"'])?+)(?!\[secret\]|(?:true|false|null)(?![\w-]))"
    # Not possessive: before 3.11.5, Python repeats a group of alternatives so once too often, over the closing quote.
    r"(?(quote)(?:(?!(?P=quote))(?:\\[^\n]|[^\n]))+|[^\s\"']*[^\s\"',;&})\]])"
)
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""kubectl's own copy of an object: of a Secret, with its data."""
_KUBERNETES_SECRET = re.compile(r"kubernetes:core/v1:Secret(Patch|List)?$")
_SHORTEST_KNOWN = 4
_SECRET_VARIABLES = (
    *("PULUMI_CONFIG_PASSPHRASE", "PULUMI_ACCESS_TOKEN"),
    *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GITHUB_TOKEN"),
)
"""Of a user or a job; `KAI_ANYWHERE_SECRET_VARIABLES` names more."""


def environment_secrets(environment: Mapping[str, str]) -> frozenset[str]:
    """The values of the environment that must not be shown."""
    more = environment.get("KAI_ANYWHERE_SECRET_VARIABLES", "").split(",")
    names = (*_SECRET_VARIABLES, *map(str.strip, more))
    return frozenset(filter(None, (environment.get(name) for name in names)))


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
        text = _SECRET_TEXT.sub(HIDDEN, text)
        for pattern in (_LOGIN_TEXT, _ASSIGNED):
            text = pattern.sub(lambda match: f"{match['shown']}{HIDDEN}", text)
        return text

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
                login = key in {"auth", "_auth"} and _LOGIN.fullmatch(value)
                return HIDDEN if login or key == LAST_APPLIED or _SECRET_KEY.search(key) else self.text(value)
            case Sequence():
                return self._items(value, key)
            case int() | float() if not isinstance(value, bool):
                return HIDDEN if _SECRET_KEY.search(key) else value
            case _:
                return value

    def _items(self, values: Sequence[object], key: str) -> list[object]:
        shown: list[object] = []
        login = "login " if "login" in values else ""
        for before, value in zip((None, *values), values, strict=False):
            # An option's value may be the next argument.
            option = f"{login}{before} " if isinstance(before, str) and before.startswith("-") else ""
            hidden = option and isinstance(value, str) and self.text(option + value) == option + HIDDEN
            shown.append(HIDDEN if hidden else self._value(value, key))
        return shown
