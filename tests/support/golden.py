"""Documents compared with files that a reviewer has read."""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[1] / "data" / "golden"


@dataclass(frozen=True)
class Golden:
    """The golden files.

    Attributes:
        update: rewrite them instead of comparing.
    """

    update: bool
    root: Path = GOLDEN

    def check(self, folder: str, documents: Mapping[str, object]) -> None:
        """Fail unless the folder holds exactly these documents, key order included.

        Args:
            folder: under `tests/data/golden`.
            documents: by file name without `.json`.
        """
        home = self.root / folder
        texts = {f"{name}.json": _text(document) for name, document in documents.items()}
        if self.update:
            home.mkdir(parents=True, exist_ok=True)
            for name in {path.name for path in home.glob("*.json")} - texts.keys():
                (home / name).unlink()
            for name, text in texts.items():
                (home / name).write_text(text, encoding="utf-8")
            return
        recorded = {path.name: path.read_text(encoding="utf-8") for path in home.glob("*.json")}
        differences = [
            line
            for name in sorted(recorded.keys() | texts.keys())
            for line in _difference(f"{folder}/{name}", recorded.get(name), texts.get(name))
        ]
        if differences:
            pytest.fail(
                "\n".join(
                    [*differences, "", "If this is what you meant: pytest --update-test-data, then read the diff."]
                ),
                pytrace=False,
            )


def _text(document: object) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _difference(name: str, recorded: str | None, now: str | None) -> list[str]:
    if recorded is None:
        return [f"{name}: new, there is no golden file"]
    if now is None:
        return [f"{name}: gone, but the golden file is still there"]
    lines = difflib.unified_diff(
        recorded.splitlines(), now.splitlines(), f"golden {name}", f"built {name}", lineterm="", n=2
    )
    return list(lines)
