"""What is asked in words: the call, the form; and what a person wrote as a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolpost.cli.options import read_json_or_text
from toolpost.cli.output import one_line
from toolpost.schema.json_values import is_array, is_object

if TYPE_CHECKING:
    from toolpost.contracts.questions import Question

Form = Mapping[str, Any] | None

_YES_OR_NO = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}


def call_lines(question: Question) -> list[str]:
    """Which call a question is about: its arguments, where it goes, and what would change by it or has changed."""
    facts = {"arguments": question.arguments and one_line(dict(question.arguments)), "target": target_of(question)}
    lines = [f"  {name}: {text}" for name, text in facts.items() if text]
    lines += [f"  | {line}" for line in str(question.payload.get("preview") or "").splitlines()]
    for change in question.payload.get("changes") or ():
        lines.append(f"  changed {change['part']}:")
        lines += [f"  - {line}" for line in change["before"].splitlines()]
        lines += [f"  + {line}" for line in change["after"].splitlines()]
    return lines


def target_of(question: Question) -> str:
    """Where the call of a question goes, in a line."""
    return question.target.get("summary", "")


def form_lines(form: Form) -> list[str]:
    """The fields of a form, one a line."""
    required = (form or {}).get("required", ())
    return [f"  {name}: {field_text(field, required=name in required)}" for name, field in fields_of(form).items()]


def answer_of(written: str, form: Form) -> Any:
    """What was written, as JSON if it is that; text where text is wanted, and the value alone of a form's one field."""
    fields = fields_of(form)
    only = next(iter(fields)) if len(fields) == 1 else None
    value = read_json_or_text(written)
    if is_object(value):
        return value
    wanted = (fields[only] if only is not None else form) or {}
    fit = written if wanted.get("type") == "string" and not isinstance(value, str) else value
    return fit if only is None else {only: fit}


def field_value(written: str, field: Mapping[str, Any]) -> Any:
    """What was written for one field, as its schema wants it: a choice by its value or title, a list by its commas."""
    plain = written.strip().casefold()
    for value, title in choices(field):
        if plain in (str(value).casefold(), title.casefold()):
            return value
    if field.get("type") == "boolean" and plain in _YES_OR_NO:
        return _YES_OR_NO[plain]
    value, items = answer_of(written, field), field.get("items")
    if field.get("type") == "array" and isinstance(value, str):
        return [field_value(part.strip(), items if is_object(items) else {}) for part in value.split(",")]
    return value


def choices(field: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """The values to choose from, each with its title or an empty text."""
    values, titles = field.get("enum"), field.get("enumNames")
    if is_array(values):
        names = (
            [str(title) for title in titles] if is_array(titles) and len(titles) == len(values) else [""] * len(values)
        )
        return list(zip(values, names, strict=True))
    named = field.get("oneOf") or field.get("anyOf")
    options = [one for one in named if is_object(one)] if is_array(named) else []
    if not options or any("const" not in one for one in options):
        return []
    return [(one["const"], str(one.get("title") or "")) for one in options]


def fields_of(form: Form) -> dict[str, dict[str, Any]]:
    """The fields of a form by name; none where anything else is asked for."""
    found: Any = (form or {}).get("properties")
    return {name: field for name, field in found.items() if is_object(field)} if is_object(found) else {}


def field_text(field: Mapping[str, Any], *, required: bool) -> str:
    """A field in a line: what it takes, whether it must be there, and what it is."""
    words = [_kind(field), "required" if required else "", str(field.get("description") or field.get("title") or "")]
    return ", ".join(filter(None, words))


def _kind(field: Mapping[str, Any]) -> str:
    if options := choices(field):
        return " or ".join(f"{value!r} ({title})" if title else repr(value) for value, title in options)
    kind, items = str(field.get("type", "any")), field.get("items")
    if kind == "array" and is_object(items):
        return f"list of {_kind(items)}"
    return f"{kind} ({field['format']})" if field.get("format") else kind
