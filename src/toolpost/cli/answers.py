"""Answers to what a tool asks: the form in words, what a person wrote as a value, and asking at the terminal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolpost.cli.confirmation import at_a_terminal
from toolpost.cli.options import read_json_or_text
from toolpost.contracts.errors import ToolValidationError
from toolpost.contracts.outcomes import Outcome, Paused
from toolpost.schema.jsontypes import is_object

if TYPE_CHECKING:
    from toolpost.cli.output import Output
    from toolpost.toolbox.box import Toolbox

Form = Mapping[str, Any] | None


def form_lines(form: Form) -> list[str]:
    """The fields of a form, one a line."""
    required = (form or {}).get("required", ())
    return [f"  {name}: {_field(field, required=name in required)}" for name, field in _fields(form).items()]


def answer_of(written: str, form: Form) -> Any:
    """What was written, as JSON if it is that; text where text is wanted, and the value alone of a form's one field."""
    fields = _fields(form)
    only = next(iter(fields)) if len(fields) == 1 else None
    value = read_json_or_text(written)
    if is_object(value):
        return value
    wanted = (fields[only] if only is not None else form) or {}
    fit = written if wanted.get("type") == "string" and not isinstance(value, str) else value
    return fit if only is None else {only: fit}


async def ask_here(outcome: Outcome, box: Toolbox, output: Output, *, user: str) -> Outcome:
    """Ask the person at the terminal while the call is still open: older servers wait for no other process."""
    while isinstance(outcome, Paused) and outcome.question.kind == "input":
        if output.as_json or not at_a_terminal():
            break
        form = outcome.question.answer_schema
        output.note("\n".join([outcome.question.prompt, *form_lines(form)]))
        written = await _line("Your answer, JSON or text; nothing to answer later: ")
        if not written:
            break
        try:
            outcome = await box.answer(outcome.pending_id, answer_of(written, form), by=user)
        except ToolValidationError as error:
            output.note(f"That does not fit: {error}")
    return outcome


def _fields(form: Form) -> dict[str, dict[str, Any]]:
    found: Any = (form or {}).get("properties")
    return {name: field for name, field in found.items() if is_object(field)} if is_object(found) else {}


def _field(field: Mapping[str, Any], *, required: bool) -> str:
    kind = " or ".join(map(repr, field["enum"])) if field.get("enum") else str(field.get("type", "any"))
    words = [kind, "required" if required else "", str(field.get("description") or field.get("title") or "")]
    return ", ".join(filter(None, words))


async def _line(question: str) -> str:
    """A line from the terminal; meanwhile the loop goes on, and Ctrl-C ends the waiting."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    sys.stderr.write(question)
    sys.stderr.flush()
    loop.add_reader(sys.stdin.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return sys.stdin.readline().strip()
