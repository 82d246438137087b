"""Charts with the value paths of the official ones."""

import json
from pathlib import Path

import yaml

from operations.chart_update import NAMES
from testbed.stacks import ROOT, Json, changed

FACTS = ROOT / "tests" / "data" / "charts"


def official_chart(folder: Path, name: str) -> Path:
    """A chart with the value paths of the official one at the pinned version, as far as they are known here."""
    facts = json.loads((FACTS / f"{name}.json").read_text(encoding="utf-8"))
    below = {
        f"{sub}.{path}": kind for sub, of in facts["subcharts"].items() for path, kind in of["value_paths"].items()
    }
    values: Json = {}
    for path, kind in (below | facts["value_paths"]).items():
        values = changed(
            values, path, {"string": "x", "boolean": True, "integer": 1, "number": 0.5, "array": []}.get(kind, {})
        )
    folder.mkdir()
    (folder / "Chart.yaml").write_text(f"name: {name}\nversion: {facts['version']}\n", encoding="utf-8")
    (folder / "values.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    templates = [f"{{{{ .Values.{path} }}}}" for path in facts["template_only_value_paths"]]
    (folder / "templates.yaml").write_text("\n".join([*templates, *NAMES[name]]), encoding="utf-8")
    return folder
