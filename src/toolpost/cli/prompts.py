"""Show the outcome of a call, and ask the person at the terminal for what a paused call needs."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, assert_never

from toolpost.cli.commands import Repeated, default_user, read_json_or_text
from toolpost.cli.output import Output, one_line, pretty, printable
from toolpost.contracts.errors import ToolError, ToolSchemaError, ToolValidationError
from toolpost.contracts.outcomes import Completed, Failed, Outcome, Paused, outcome_to_dict
from toolpost.contracts.questions import Question, QuestionKind
from toolpost.policy.approvals import answer_refusal
from toolpost.schema.json_values import is_array, is_object
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
_YES_OR_NO = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}

EXIT_CODES = {"completed": 0, "failed": 1, "paused": 3}

_NEXT: dict[QuestionKind, str] = {
    "approval": "`toolpost pending approve {id}{again}` runs it, `toolpost pending deny {id}{again}` does not.",
    "consent": "`toolpost accounts connect {service}{again}` signs you in; the call then goes on by itself.",
    "input": "`toolpost pending answer {id} VALUE{again}` goes on with your answer.",
    "unknown": "`toolpost pending answer {id} --decision happened{again}` (or not_happened, or rerun) settles it.",
}


def show_outcome(outcome: Outcome, output: Output) -> int:
    """Show it and return the code to leave with."""
    if output.as_json:
        output.document(outcome_to_dict(outcome))
    else:
        _print_outcome(outcome, output)
    return EXIT_CODES[outcome.status]


def next_step(question: Question, pending_id: str, again: Repeated, *, by_asker: bool) -> str:
    """How a question is answered, by commands with the options `again`.

    What is for a person to decide is not for whoever asked, so that the command names nobody in place of `by_asker`:
    only one who gave no name is the person at this machine.
    """
    is_decided = question.kind in ("approval", "unknown")
    if is_decided and by_asker and (question.four_eyes or question.answerers or again.user not in ("", default_user())):
        again = again.by_another()
    service = question.payload.get("provider", "SERVICE")
    step = _NEXT[question.kind].format(id=pending_id, service=service, again=again)
    who = _who_may(question) if is_decided else ""
    link = question.payload.get("auth_url") if question.kind == "consent" else None
    return "\n".join(filter(None, [step, who, f"Or open {link}" if link else ""]))


def _who_may(question: Question) -> str:
    """Who may answer, where not everybody of the tenant may."""
    only = f"Only {' or '.join(question.answerers)} may answer." if question.answerers else ""
    other = "Whoever asked may not approve (four_eyes)." if question.four_eyes else ""
    return f"{only} {other}".strip()


def _print_outcome(outcome: Outcome, output: Output) -> None:
    match outcome:
        case Completed():
            output.text(pretty(outcome.content))
            if said := outcome.meta.get("note") or (outcome.text if outcome.content is None else None):
                output.note(str(said))
            output.note(f"completed: {outcome.tool_name} in {outcome.duration_ms:.1f} ms (run {outcome.run_id})")
            for artifact in outcome.artifacts:
                save = f"`toolpost artifacts save {artifact} FILE{output.again}`"
                output.note(f"{save} makes a file of what was kept; the tool artifact_read reads it.")
        case Failed(error=error):
            output.explain(error)
        case Paused(question=question):
            step = next_step(question, outcome.pending_id, output.again, by_asker=True)
            told = [*call_lines(question), *form_lines(question.answer_schema)]
            output.text("\n".join([f"paused: {question.prompt}", *told, step]))
        case _:
            assert_never(outcome)


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


Form = Mapping[str, Any] | None


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
    words = [
        _field_type(field),
        "required" if required else "",
        str(field.get("description") or field.get("title") or ""),
    ]
    return ", ".join(filter(None, words))


def _field_type(field: Mapping[str, Any]) -> str:
    if options := choices(field):
        return " or ".join(f"{value!r} ({title})" if title else repr(value) for value, title in options)
    kind, items = str(field.get("type", "any")), field.get("items")
    if kind == "array" and is_object(items):
        return f"list of {_field_type(items)}"
    return f"{kind} ({field['format']})" if field.get("format") else kind


def confirm(question: str, *, yes: bool) -> bool:
    """Ask at the terminal; `yes` was said before, and without a terminal nobody can be asked."""
    if yes:
        return True
    if not at_a_terminal():
        raise ToolError(
            f"a person has to agree, and there is no terminal to ask at: {question} Add --yes to agree",
            code="confirmation_needed",
        )
    with _interruptible():
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
    return answer.strip().lower() in ("y", "yes")


def at_a_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


@contextmanager
def _interruptible() -> Generator[None]:
    """The loop's own handler would only note the first interrupt, and reading would go on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
