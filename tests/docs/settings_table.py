"""The tables of all settings, generated from the models; `python -m tests.docs.settings_table` writes them to the page.

Key, type and default come from the models. The descriptions are taken from the page.
"""

import re
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import groupby
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

PAGE = ROOT / "docs" / "configuration-reference.md"
_SECTION = re.compile(r"(?<=<!-- settings -->\n).*?(?=<!-- /settings -->)", re.DOTALL)
_HEAD = "| Key | Type | Default | Description |\n|---|---|---|---|\n"
_SINGLE = "Single keys"


class Row(NamedTuple):
    key: str
    type: str
    default: str
    description: str

    def __str__(self) -> str:
        return f"| `{self.key}` | {self.type} | {self.default} | {self.description} |\n"

    @property
    def top(self) -> str:
        """The top-level key."""
        return re.split(r"[.\[]", self.key)[0]

    @property
    def part(self) -> str:
        """The beginning of the key of a transport's option, such as `sources[mcp].options`; else the top-level key."""
        found = re.match(r"sources\[\w+\]\.options", self.key)
        return found[0] if found else self.top


def section(page: str) -> str:
    """Return the tables that the page contains."""
    found = _SECTION.search(page)
    assert found is not None, "the page has no settings markers"
    return found[0]


def made(page: str) -> str:
    """Generate the tables, one per top-level key and per transport; keys without nested keys share the first one."""
    known = dict(re.findall(r"^\| `([^`]+)` \|[^|]*\|[^|]*\| (.*?) ?\|$", section(page), re.MULTILINE))
    found = [row._replace(description=known.get(row.key, "")) for row in rows(Settings, seen=set())]
    groups = {part: list(group) for part, group in groupby(sorted(found, key=_place(found)), key=lambda row: row.part)}
    single = [group[0] for part, group in groups.items() if [row.key for row in group] == [part]]
    nested = {f"`{part}`": group for part, group in groups.items() if group[0] not in single}
    return "".join(
        f"\n{'###' if '[' in title else '##'} {title}\n\n{_HEAD}{''.join(map(str, group))}"
        for title, group in {_SINGLE: single, **nested}.items()
    )


def _place(found: list[Row]) -> Callable[[Row], tuple[int, int]]:
    """Sort by the first row of the top-level key and of the part; options follow the keys that all sources have."""
    tops = [row.top for row in found]
    parts = [row.part for row in found]
    return lambda row: (tops.index(row.top), parts.index(row.part))


def rows(model: type[BaseModel], *, seen: set[type[BaseModel]], prefix: str = "") -> Iterator[Row]:
    """Yield one row for each key, with those of nested models after their parent; a model is never repeated."""
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        annotation = next((mark.load() for mark in field.metadata if isinstance(mark, Deferred)), field.annotation)
        inner, suffix = _nested(annotation)
        if inner is None or suffix:
            yield Row(key, _type(field, annotation), _default(field), "")
        if inner is not None and inner not in seen:
            seen.add(inner)
            yield from rows(inner, seen=seen, prefix=f"{key}{suffix}.")
        if model is ExternalToolConfig and name == "options":
            yield from option_rows()


def option_rows() -> Iterator[Row]:
    """Yield one row for each option of each transport, such as `sources[mcp].options.poll_s`."""
    for transport in TransportType:
        if (options := find_transport(transport).options) is not None:
            yield from rows(options, seen=set(), prefix=f"sources[{transport.value}].options.")


def _nested(annotation: Any) -> tuple[type[BaseModel] | None, str]:
    """Return the model inside a type, and the suffix of its keys: empty, `[]` for a list, `.NAME` for a mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, ""
    marks: dict[Any, str] = {list: "[]", dict: ".NAME"}
    for part in get_args(annotation):
        inner, suffix = _nested(part)
        if inner is not None:
            return inner, marks.get(get_origin(annotation), "") + suffix
    return None, ""


def _type(field: FieldInfo, annotation: Any) -> str:
    if any("parse_duration" in repr(mark) or "_milliseconds" in repr(mark) for mark in field.metadata):
        return "duration"
    return " or ".join(dict.fromkeys(_words(annotation)))


def _words(annotation: Any) -> Iterator[str]:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        yield ", ".join(f"`{word}`" for word in args)
    elif origin in (list, dict):
        yield "list" if origin is list else "mapping"
    elif isinstance(annotation, type) and issubclass(annotation, Enum):
        yield ", ".join(f"`{member.value}`" for member in annotation)
    elif hasattr(annotation, "__metadata__"):
        yield "duration" if "parse_duration" in repr(annotation) else next(_words(args[0]))
    elif args:
        yield from (word for arg in args for word in _words(arg))
    else:
        names = {int: "integer", float: "number", bool: "boolean", NoneType: "`null`"}
        yield {**names, str: "string"}.get(annotation, "path" if "Path" in repr(annotation) else "string")


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(field.json_schema_extra, dict):  # the default of a file can differ from that of code
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
