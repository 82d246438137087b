"""`make reference`: writes the files that are made of the settings models, of evidence, and of the version."""

import json
from pathlib import Path
from typing import Any

from config.reference import part_schema, stack_file_schema
from operations.init.files import of_version
from operations.settings.page import page
from operations.verify import compatibility
from operations.version import project_version

ROOT = Path(__file__).parents[2]


def files() -> dict[Path, str]:
    """What stands in each file, by path in the checkout."""
    versioned = of_version(f"v{project_version()}")
    return {
        **{file.relative_to(ROOT): text for file, text in versioned.items()},
        Path("docs/settings.md"): page(),
        Path("docs/compatibility.md"): compatibility.page(compatibility.read_evidence()),
        Path("config/stack.schema.json"): _json(stack_file_schema()),
        Path("config/part.schema.json"): _json(part_schema()),
    }


def _json(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for path, text in files().items():
        (ROOT / path).write_text(text, encoding="utf-8")
