"""The table of every key, made from the settings; `python -m tests.docs.settings_table` writes it into the page.

Key, type and default come from the model; what a key means is prose and is kept as the page has it.
"""

import re
from collections.abc import Iterator
from enum import Enum
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tests.docs.blocks import ROOT
from toolpost.configuration.settings import Settings
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.config_model import Deferred
from toolpost.contracts.source_kinds import TransportType
from toolpost.sources.registry import find_transport

PAGE = ROOT / "docs" / "configuration.md"
_SECTION = re.compile(r"(?<=<!-- settings -->\n).*?(?=<!-- /settings -->)", re.DOTALL)
_HEAD = "| key | takes | default | meaning |\n|---|---|---|---|\n"


class Row(NamedTuple):
    key: str
    takes: str
    default: str
    meaning: str

    def __str__(self) -> str:
        return f"| `{self.key}` | {self.takes} | {self.default} | {self.meaning} |\n"


def section(page: str) -> str:
    """The table as it stands in the page."""
    found = _SECTION.search(page)
    assert found is not None, "the page has lost its marks"
    return found[0]


def made(page: str) -> str:
    """The table as it should be."""
    meanings = dict(re.findall(r"^\| `([^`]+)` \|[^|]*\|[^|]*\| (.*?) ?\|$", section(page), re.MULTILINE))
    found = rows(Settings, seen=set())
    return _HEAD + "".join(str(row._replace(meaning=meanings.get(row.key, ""))) for row in found)


def rows(model: type[BaseModel], *, seen: set[type[BaseModel]], prefix: str = "") -> Iterator[Row]:
    """One row for each key, those of nested models below their parent; a model that comes again is not repeated."""
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        annotation = next((mark.load() for mark in field.metadata if isinstance(mark, Deferred)), field.annotation)
        inner, suffix = _nested(annotation)
        if inner is None or suffix:
            yield Row(key, _takes(field, annotation), _default(field), "")
        if inner is not None and inner not in seen:
            seen.add(inner)
            yield from rows(inner, seen=seen, prefix=f"{key}{suffix}.")
        if model is ExternalToolConfig and name == "options":
            yield from option_rows()


def option_rows() -> Iterator[Row]:
    """One row for each option of each transport: `sources[mcp].options.poll_s`."""
    for transport in TransportType:
        if (options := find_transport(transport).options) is not None:
            yield from rows(options, seen=set(), prefix=f"sources[{transport.value}].options.")


def _nested(annotation: Any) -> tuple[type[BaseModel] | None, str]:
    """The model within a type, and how its keys are reached: directly, in a list, or by name."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, ""
    marks: dict[Any, str] = {list: "[]", dict: ".NAME"}
    for part in get_args(annotation):
        inner, suffix = _nested(part)
        if inner is not None:
            return inner, marks.get(get_origin(annotation), "") + suffix
    return None, ""


def _takes(field: FieldInfo, annotation: Any) -> str:
    if any("parse_duration" in repr(mark) or "_milliseconds" in repr(mark) for mark in field.metadata):
        return "a duration"
    return " or ".join(dict.fromkeys(_words(annotation)))


def _words(annotation: Any) -> Iterator[str]:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        yield ", ".join(f"`{word}`" for word in args)
    elif origin in (list, dict):
        yield "a list" if origin is list else "a mapping"
    elif isinstance(annotation, type) and issubclass(annotation, Enum):
        yield ", ".join(f"`{member.value}`" for member in annotation)
    elif hasattr(annotation, "__metadata__"):
        yield "a duration" if "parse_duration" in repr(annotation) else next(_words(args[0]))
    elif args:
        yield from (word for arg in args for word in _words(arg))
    else:
        names = {int: "a whole number", float: "a number", bool: "`true`, `false`", NoneType: "`null`"}
        yield {**names, str: "text"}.get(annotation, "a path" if "Path" in repr(annotation) else "text")


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(field.json_schema_extra, dict):  # a file's default may be another than code's
        value = field.json_schema_extra.get("default", value)
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, Enum):
        value = value.value
    if value is None or value in ("", [], {}):
        return "none"
    if isinstance(value, list):
        value = [str(part) for part in value]
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_SECTION.sub(lambda _: made(text), text), encoding="utf-8")
