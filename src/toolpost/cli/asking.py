"""Asks the person at the terminal as soon as a call pauses: for a yes or no, or for a form field by field."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from toolpost.cli.answers import Form, answer_of, call_lines, field_text, field_value, fields_of
from toolpost.cli.confirmation import at_a_terminal
from toolpost.cli.output import pretty
from toolpost.cli.printable import printable
from toolpost.contracts.errors import ToolSchemaError, ToolValidationError
from toolpost.contracts.outcomes import Outcome, Paused
from toolpost.policy.approvals import answer_refusal
from toolpost.schema.json_values import is_object
from toolpost.schema.validator import compile_validator

if TYPE_CHECKING:
    from toolpost.cli.output import Output
    from toolpost.contracts.questions import Question
    from toolpost.toolbox.box import Toolbox

LATER: Final = object()
"""What somebody says who does not answer now."""
_LEFT_OUT: Final = object()

_DECIDE = "Run it? y runs it, n refuses it, nothing to decide later: "
_VALUE = "Your answer, JSON or text; nothing to answer later: "
_FORM = "Enter takes what is in brackets, or leaves out what is not required; Ctrl-D to answer later."
_HELD = (
    "The server waits for an answer only while this command runs. Answered later, the call is made again if it may be"
    " repeated; if not, you are asked whether it happened."
)


async def ask_here(outcome: Outcome, box: Toolbox, output: Output, *, user: str) -> Outcome:
    """Ask the person at the terminal while the call is still open: older servers wait for no other process."""
    while isinstance(outcome, Paused) and not output.as_json and at_a_terminal():
        answered = await _answered(outcome, box, output, user=user)
        if answered is None:
            break
        outcome = answered
    if isinstance(outcome, Paused) and outcome.question.payload.get("held"):
        output.note(_HELD)
    return outcome


async def asked_value(question: Question, output: Output) -> Any:
    """What the person at the terminal answers, field by field where there is a form; `LATER` where they do not."""
    form = question.answer_schema
    output.note("\n".join([question.prompt, *(f"  {page}" for page in _pages(question))]))
    if fields_of(form):
        output.note(_FORM)
        return await _filled(form, form or {}, output)
    written = await _line(_VALUE)
    return answer_of(written, form) if written else LATER


async def _answered(paused: Paused, box: Toolbox, output: Output, *, user: str) -> Outcome | None:
    """What comes of the answer; None where it is left to later, or is not for this person to give."""
    question = paused.question
    if question.kind not in ("approval", "input"):
        return None
    action = await box.desk.get(paused.pending_id, by=user)
    if answer_refusal(action, user, "approve" if question.kind == "approval" else "answer"):
        return None
    if question.kind == "approval":
        return await _decided(paused, box, output, user=user)
    value = await asked_value(question, output)
    if value is LATER:
        return None
    try:
        return await box.answer(paused.pending_id, value, by=user)
    except ToolValidationError as error:
        output.note(f"That does not fit: {error}")
        return paused


async def _decided(paused: Paused, box: Toolbox, output: Output, *, user: str) -> Outcome | None:
    output.note("\n".join([paused.question.prompt, *call_lines(paused.question)]))
    while written := await _line(_DECIDE):
        if written.lower() in ("y", "yes"):
            return await box.approve(paused.pending_id, by=user)
        if written.lower() in ("n", "no"):
            return await box.deny(paused.pending_id, by=user)
    return None


async def _filled(form: Form, whole: Mapping[str, Any], output: Output, *, above: str = "") -> Any:
    """The fields of a form, or of a part of it, one after the other."""
    values, required = dict[str, Any](), (form or {}).get("required", ())
    for name, field in fields_of(form).items():
        if fields_of(field):
            value = await _filled(field, whole, output, above=f"{above}{name}.")
        else:
            value = await _field(f"{above}{name}", field, whole, output, required=name in required)
        if value is LATER:
            return LATER
        if value is not _LEFT_OUT:
            values[name] = value
    return values


async def _field(
    name: str, field: Mapping[str, Any], whole: Mapping[str, Any], output: Output, *, required: bool
) -> Any:
    """One field, asked for until what is written fits it."""
    usual = f" [{pretty(field['default'])}]" if "default" in field else ""
    while True:
        written = await _line(f"  {name} ({field_text(field, required=required)}){usual}: ")
        if written is None:
            return LATER
        if not written and (usual or not required):
            return field.get("default", _LEFT_OUT)
        value = field_value(written, field)
        misfit = _misfit(value, field, whole) if written else "it is required"
        if not misfit:
            return value
        output.note(f"  That does not fit: {misfit}")


def _misfit(value: Any, field: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    """What is wrong with a value; a field that cannot be checked alone is checked with the whole form."""
    try:
        compile_validator({**field, "$defs": whole.get("$defs", {})}).check(value, "")
    except ToolValidationError as error:
        return "; ".join(issue.removeprefix("$: ") for issue in error.issues)
    except ToolSchemaError:
        return ""
    return ""


def _pages(question: Question) -> list[str]:
    """The web pages that somebody is to visit before they answer."""
    asked: Any = question.payload.get("requests")
    requests = [one for one in asked.values() if is_object(one)] if is_object(asked) else []
    return [f"open {one['url']}" for one in requests if one.get("mode") == "url" and one.get("url")]


async def _line(question: str) -> str | None:
    """A line from the terminal, None for its end; meanwhile the loop goes on, and Ctrl-C ends the waiting."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    sys.stderr.write(printable(question))
    sys.stderr.flush()
    loop.add_reader(sys.stdin.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    written = sys.stdin.readline()
    if not written:
        sys.stderr.write("\n")
    return written.strip() if written else None
