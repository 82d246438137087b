"""Prints the schema of `fleet status --json`: docs/fleet.schema.json is its output."""

import json
import sys

from operations.fleet.report import Report

if __name__ == "__main__":
    sys.stdout.write(json.dumps(Report.model_json_schema(), indent=2) + "\n")
