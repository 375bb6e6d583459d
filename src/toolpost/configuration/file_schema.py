"""The JSON Schema of `toolpost.yaml`, for editors; made from the models and shipped as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_camel

from toolpost.configuration.settings import Settings

SCHEMA_FILE = Path(__file__).with_name("toolpost.schema.json")


def file_schema() -> dict[str, Any]:
    """The schema, with every key in both of its spellings."""
    schema = Settings.model_json_schema(by_alias=False)
    parts = {name: _both_spellings(part) for name, part in schema.pop("$defs").items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_both_spellings(schema),
        "title": "toolpost.yaml",
        "$defs": parts,
    }


def _both_spellings(schema: dict[str, Any]) -> dict[str, Any]:
    if "properties" not in schema:
        return schema
    properties: dict[str, Any] = {}
    for name, part in schema["properties"].items():
        untitled = {key: value for key, value in part.items() if key != "title"}
        properties[name] = properties[to_camel(name)] = untitled
    return {**schema, "properties": properties}
