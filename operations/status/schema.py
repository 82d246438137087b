"""Prints the schema of `status --json`: docs/status.schema.json is its output."""

import json
import sys

from sharing_map.report import Status

if __name__ == "__main__":
    sys.stdout.write(json.dumps(Status.model_json_schema(), indent=2) + "\n")
