"""Judges of documents by JSON schemas."""

from typing import Any

from testbed.stacks import Json


def judge(schema: Json) -> Any:  # noqa: ANN401 - a validator of jsonschema, which has no types
    """Whoever tells what of a document is not as the schema says.

    Raises:
        jsonschema.SchemaError: it is no schema of the draft that it names, or of the latest.
    """
    # It takes a second of processor time: it prepares grammars of formats that no schema of ours has.
    from jsonschema import validators  # noqa: PLC0415

    draft = validators.validator_for(schema)
    draft.check_schema(schema)
    return draft(schema)
