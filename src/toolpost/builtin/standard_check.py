"""Check that the folder of a tool contains `tool.md`, `schema.json` and tests, without running anything."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Literal

import yaml

from toolpost.builtin.specs import SPECS_FILE, read_specs, schema_document
from toolpost.contracts.errors import ToolError
from toolpost.schema.json_values import as_object, is_array, is_object
from toolpost.schema.schema_checks import check_schema
from toolpost.schema.validator import Validator, compile_validator

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Role = Literal["input", "output"]

STANDARD = SPECS_FILE.parent / "standard"
DOCUMENT = "tool.md"
SCHEMA = "schema.json"
CASES = "tests.json"
SECTIONS = ("Purpose", "Inputs", "Outputs", "Examples")
_FRONT = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
_HEADING = re.compile(r"^## (.+?)[ \t]*$", re.MULTILINE)
_LARGEST = 1 << 20
CASE = "must have a `name`, `arguments`, and either `result` (its required content) or `error` (its required text)"


def check_folder(folder: Path, *, schemas: Any = None) -> list[str]:
    """Report what is missing or wrong in a tool's folder, each with the fix.

    `schemas` replaces the content of `schema.json` for a tool with its schemas elsewhere.
    """
    if not folder.is_dir():
        return [f"{folder} is not a folder; name the folder of one tool"]
    content = _json(folder / SCHEMA) if schemas is None else schemas
    return [*_in_document(folder), *_in_schema(content), *_in_tests(folder, content)]


def check_builtin_folders() -> list[tuple[Path, list[str]]]:
    """Check the folders of all built-in tools, with the schemas of `specs.json`."""
    specs = read_specs()
    return [
        (STANDARD / name, check_folder(STANDARD / name, schemas=schema_document(specs[name]))) for name in sorted(specs)
    ]


def front_matter(folder: Path) -> dict[str, Any]:
    """Read the front matter of a tool's document; empty if it is missing or unreadable."""
    try:
        match = _FRONT.match(_read(folder / DOCUMENT))
        facts: Any = yaml.safe_load(match[1]) if match else None
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return as_object(facts)


def _in_document(folder: Path) -> Iterator[str]:
    try:
        text = _read(folder / DOCUMENT)
    except (OSError, ValueError) as wrong:
        yield f"{DOCUMENT} cannot be read ({_reason(wrong)}); write one with the sections {', '.join(SECTIONS)}"
        return
    facts = front_matter(folder)
    if not facts:
        yield f"{DOCUMENT} has no facts between two lines of ---; write `name` and `budgets` there"
    else:
        yield from _in_facts(facts, folder)
    parts = _HEADING.split(_FRONT.sub("", text))
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    for name in SECTIONS:
        if not sections.get(name, "").strip():
            yield f"{DOCUMENT} has no text under `## {name}`"


def _in_facts(facts: dict[str, Any], folder: Path) -> Iterator[str]:
    if facts.get("name") != folder.resolve().name:
        yield f"{DOCUMENT}: `name` is {facts.get('name')!r}, and the folder is called {folder.resolve().name!r}"
    budgets = facts.get("budgets")
    timeout: Any = budgets.get("timeout_s") if is_object(budgets) else None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0:
        yield f"{DOCUMENT}: `budgets.timeout_s` must be a number of seconds above 0"


def _in_schema(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield f"{SCHEMA} {content}; write an object with `input_schema` and, if the tool has one, `output_schema`"
        return
    schemas = as_object(content)
    if "input_schema" not in schemas:
        yield f"{SCHEMA} has no `input_schema`"
    roles: tuple[Role, ...] = ("input", "output")
    for role in roles:
        schema: Any = schemas.get(f"{role}_schema")
        if schema is not None:
            yield from (f"{SCHEMA}: {role}_schema: {problem}" for problem in _problems(schema, role))


def _problems(schema: Any, role: Role) -> Iterator[str]:
    if not is_object(schema):
        yield "must be an object"
        return
    try:
        check_schema(schema, tool_name="", role=role)
    except ToolError as wrong:
        yield str(wrong)


def _in_tests(folder: Path, schemas: Any) -> Iterator[str]:
    """Check the tests: programs for pytest, or cases with arguments and the expected result."""
    programs = [*folder.glob("test_*.py"), *folder.glob("tests/test_*.py")]
    if not (folder / CASES).exists():
        if not programs:
            yield f"there are no tests; write {CASES}, or test_*.py for pytest"
        return
    cases = _json(folder / CASES)
    if isinstance(cases, str):
        yield f"{CASES} {cases}"
    elif not is_array(cases) or not cases:
        yield f"{CASES} must be a list with at least one case"
    else:
        yield from _in_cases(cases, _input_validator(schemas))


def _in_cases(cases: list[Any], validator: Validator | None) -> Iterator[str]:
    for number, case in enumerate(cases, 1):
        if not _is_case(case):
            yield f"{CASES}: case {number}: {CASE}"
        elif "result" in case and validator is not None and (issues := validator.issues(case["arguments"])):
            yield f"{CASES}: case {number}: it expects a result, but {SCHEMA} refuses its arguments: {issues[0]}"


def _input_validator(content: Any) -> Validator | None:
    """Compile the schema of the arguments; None if it is invalid, which `_in_schema` reports."""
    schema: Any = content.get("input_schema") if is_object(content) else None
    if not is_object(schema) or any(_problems(schema, "input")):
        return None
    return compile_validator(schema)


def _is_case(case: Any) -> bool:
    return (
        is_object(case)
        and isinstance(case.get("name"), str)
        and is_object(case.get("arguments"))
        and (("result" in case) != isinstance(case.get("error"), str))
    )


def _json(path: Path) -> Any:
    """Parse a JSON file, or return the error as text."""
    try:
        return json.loads(_read(path))
    except (OSError, ValueError, RecursionError) as wrong:
        return f"cannot be read ({_reason(wrong)})"


def _read(path: Path) -> str:
    if path.stat().st_size > _LARGEST:
        raise ValueError("it has more than 1 MB")
    return path.read_text(encoding="utf-8")


def _reason(wrong: Exception) -> str:
    return (wrong.strerror or "") if isinstance(wrong, OSError) else str(wrong)
