"""The schema that editors get says what the models say."""

import json
from typing import Any

import jsonschema
import pytest
import yaml

from toolpost.configuration.file_schema import SCHEMA_FILE, file_schema


def test_the_shipped_file_is_current() -> None:
    shipped = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))

    assert shipped == json.loads(json.dumps(file_schema())), "run: python -m tools.config_schema"


def test_it_is_a_valid_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(file_schema())


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "{data_dir: null, policy: audit, builtins: [read_file]}",
        "{dataDir: x, tools: {timeout: 30s, maxConcurrent: 3, max_concurrent: 3, webSearch: {apiKey: k}}}",
        "{sources: [{name: a, transport: python, connection: ./tools.py, auth_type: none, authConfig: {}}]}",
        "{policy: [{action: ask, sideEffects: [write]}], retention: {max_age: 30d}}",
    ],
)
def test_a_right_file_is_accepted(text: str) -> None:
    assert errors(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "{polcy: audit}",
        "{policy: paranoid}",
        "{tools: {timeout: soon}}",
        "{tools: {maxConcurrent: 0}}",
        "{sources: [{name: a}]}",
        "{policy: [{action: shrug}]}",
    ],
)
def test_a_wrong_file_is_not(text: str) -> None:
    assert errors(text) != []


def errors(text: str) -> list[Any]:
    return list(jsonschema.Draft202012Validator(file_schema()).iter_errors(yaml.safe_load(text)))
