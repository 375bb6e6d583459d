"""Show the outcome of a call, and prompt at the terminal for the answers that a paused call needs."""

from __future__ import annotations

import asyncio
import select
import signal
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, assert_never

from msgspec.structs import replace

from toolpost.cli.arguments import read_json_or_text
from toolpost.cli.commands import CommonOptions, default_user
from toolpost.cli.output import Output, format_json, format_json_line, make_printable
from toolpost.contracts.errors import ToolError, ToolSchemaError, ToolValidationError
from toolpost.contracts.outcomes import Completed, Failed, OpenQuestion, Outcome, Paused, outcome_to_dict
from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.contracts.questions import Decision, Question
from toolpost.policy.approvals import answer_refusal
from toolpost.schema.json_values import as_object, is_array, is_object

if TYPE_CHECKING:
    from toolpost.toolbox.box import Toolbox


LATER: Final = object()
"""The answer of a user who decides later."""
_LEFT_OUT: Final = object()
_APPROVAL_PROMPT = "Run it? y to run, n to deny, Enter to decide later: "
_UNKNOWN_PROMPT = "Did it happen? y for yes, n for no, r to run it again, Enter to decide later: "
_UNKNOWN_ANSWERS: Mapping[str, Decision] = {
    **dict.fromkeys(("y", "yes", "happened"), "happened"),
    **dict.fromkeys(("n", "no", "not_happened"), "not_happened"),
    **dict.fromkeys(("r", "rerun"), "rerun"),
}
_SIGN_IN_PROMPT = "Sign in now? y to open a browser, Enter to sign in later: "
_VALUE_PROMPT = "Your answer, JSON or text; Enter to answer later: "
_FORM_HINT = "Enter accepts the value in brackets or skips an optional field; Ctrl-D to answer later."
_HELD_CALL_NOTE = (
    "The server waits for an answer only while this command runs. If you answer later, the call is repeated if that is"
    " safe; otherwise you are asked whether it happened."
)
_LOOK_S = 0.1
_YES_OR_NO = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}

EXIT_CODES = {"completed": 0, "failed": 1, "paused": 3}


def show_outcome(outcome: Outcome, output: Output, *, advice: str | None = None) -> int:
    """Write an outcome and return its exit code; a failure is followed by `advice` or the usual advice for its code."""
    if output.as_json:
        output.document(outcome_to_dict(outcome))
        if isinstance(outcome, Failed):
            output.locate(outcome.error)
    else:
        _print_outcome(outcome, output, advice)
    return EXIT_CODES[outcome.status]


def next_step(question: Question, pending_id: str, options: CommonOptions, *, by_asker: bool) -> str:
    """Return the commands that answer a pending action."""
    # The requesting user usually cannot approve, so the commands name another user.
    is_decided = question.kind in ("approval", "unknown")
    if (
        is_decided
        and by_asker
        and (question.four_eyes or question.answerers or options.user not in ("", default_user()))
    ):
        options = options.for_another_user()
    service = question.payload.get("provider", "SERVICE")
    step = question.next_step.format(id=pending_id, service=service, options=options)
    who = _who_may_answer(question) if is_decided else ""
    link = question.payload.get("auth_url") if question.kind == "consent" else None
    return "\n".join(filter(None, [step, who, f"Or open {link}" if link else ""]))


def _who_may_answer(question: Question) -> str:
    """Return who may answer, where not every user of the tenant may."""
    only = f"Only {' or '.join(question.answerers)} may answer." if question.answerers else ""
    other = "The requesting user may not approve (four_eyes)." if question.four_eyes else ""
    return f"{only} {other}".strip()


def _print_outcome(outcome: Outcome, output: Output, advice: str | None) -> None:
    match outcome:
        case Completed():
            output.text(format_json(outcome.content))
            if note := outcome.meta.get("note") or (outcome.text if outcome.content is None else None):
                output.note(str(note))
            output.note(f"completed: {outcome.tool_name} in {outcome.duration_ms:.1f} ms (run {outcome.run_id})")
            for artifact in outcome.artifacts:
                save = f"`toolpost artifacts save {artifact} FILE{output.options}`"
                output.note(f"{save} writes the full result to a file; the tool artifact_read reads it.")
        case Failed(error=error, run_id=run_id):
            shown = f"`toolpost runs show {run_id} --verbose{output.options}` shows the traceback."
            output.explain(error, advice=shown if error.traceback and advice is None else advice)
        case Paused():
            output.text(describe_pause(outcome, output.options))
        case _:
            assert_never(outcome)


def describe_pause(paused: Paused, options: CommonOptions) -> str:
    """Describe a paused call, and the commands that answer it."""
    first, *others = paused.questions
    lines = [f"paused: {first.question.prompt}", *_question_lines(first, options)]
    for other in others:
        lines += [f"It also waits for {other.tool_name}: {other.question.prompt}", *_question_lines(other, options)]
    return "\n".join(lines)


def _question_lines(asked: OpenQuestion, options: CommonOptions) -> list[str]:
    question = asked.question
    step = next_step(question, asked.pending_id, options, by_asker=True)
    return [*describe_call(question), *describe_form(question.answer_schema), step]


async def ask_at_terminal(
    outcome: Outcome,
    box: Toolbox,
    output: Output,
    *,
    user: str,
    left: set[str] | None = None,
    reads_lines: bool = False,
) -> Outcome:
    """Prompt at the terminal until the call is no longer paused, or all questions are left for later.

    `left` contains the IDs of questions that were left for later and are not repeated; new ones are added. A line that
    was typed or pasted before a question is not its answer but input for the shell, so the prompt is skipped; a command
    that `reads_lines` discards the line.
    """
    left = set() if left is None else left
    # Older MCP servers hold the call open for this process only.
    while isinstance(outcome, Paused) and not output.as_json and is_interactive():
        asked = next((one for one in outcome.questions if one.pending_id not in left), None)
        if asked is None:
            break
        if not reads_lines and has_typed_ahead(sys.stdin.fileno()):
            break
        discard_typed_ahead(sys.stdin.fileno())
        first = replace(outcome, pending_id=asked.pending_id, question=asked.question)
        answered = await _ask(first, box, output, user=user)
        if answered is None:
            left.add(asked.pending_id)
        else:
            outcome = answered
    if isinstance(outcome, Paused) and outcome.question.payload.get("held"):
        output.note(_HELD_CALL_NOTE)
    return outcome


def has_typed_ahead(terminal: int) -> bool:
    """Return whether a whole line was typed or pasted before a question was shown; it stays where it is."""
    return sys.platform != "win32" and bool(select.select([terminal], [], [], 0)[0])


def discard_typed_ahead(terminal: int) -> None:
    """Discard input typed before a question was shown: it may answer a forged one of a model or a tool."""
    if sys.platform != "win32":
        import termios

        termios.tcflush(terminal, termios.TCIFLUSH)


async def prompt_value(question: Question, output: Output) -> Any:
    """Ask for the answer, field by field where there is a form; return `LATER` where none is given."""
    form = question.answer_schema
    output.note("\n".join([question.prompt, *(f"  {page}" for page in _pages_to_open(question))]))
    if form_fields(form):
        output.note(_FORM_HINT)
        return await _fill_form(form, form or {}, output)
    text = await _read_line(_VALUE_PROMPT)
    return parse_answer(text, form) if text else LATER


async def prompt_unknown(question: Question, output: Output) -> Decision | None:
    """Prompt for the outcome of a call with a terminated process; return None if left for later."""
    output.note("\n".join([question.prompt, *describe_call(question)]))
    while text := await _read_line(_UNKNOWN_PROMPT):
        if decided := _UNKNOWN_ANSWERS.get(text.lower()):
            return decided
    return None


async def _ask(paused: Paused, box: Toolbox, output: Output, *, user: str) -> Outcome | None:
    """Ask for the answer and resume the call; None where it is left to later, or this user may not give it."""
    question = paused.question
    if question.kind == "consent" and question.payload.get("provider"):
        return await _ask_sign_in(paused, box, output, user=user)
    if question.kind not in ("approval", "input"):
        return None
    action = await box.pending.get(paused.pending_id, by=user)
    if answer_refusal(action, user, "approve" if question.kind == "approval" else "answer"):
        return None
    if question.needs_operator and Principal.parse(user).tenant != LOCAL_TENANT:
        return None
    if question.kind == "approval":
        return await _ask_approval(paused, box, output, user=user)
    value = await prompt_value(question, output)
    if value is LATER:
        return None
    try:
        return await box.answer(paused.pending_id, value, by=user)
    except ToolValidationError as error:
        output.note(f"Invalid value: {error}")
        return paused


async def _ask_approval(paused: Paused, box: Toolbox, output: Output, *, user: str) -> Outcome | None:
    output.note("\n".join([paused.question.prompt, *describe_call(paused.question)]))
    while text := await _read_line(_APPROVAL_PROMPT):
        if text.lower() in ("y", "yes"):
            return await box.approve(paused.pending_id, by=user)
        if text.lower() in ("n", "no"):
            return await box.deny(paused.pending_id, by=user)
    return None


async def _ask_sign_in(paused: Paused, box: Toolbox, output: Output, *, user: str) -> Outcome | None:
    """Offer to sign in; the call then resumes automatically, and its outcome is returned."""
    from toolpost.cli.sign_in import SignInOptions, connect_account

    output.note("\n".join([paused.question.prompt, *describe_call(paused.question)]))
    if (await _read_line(_SIGN_IN_PROMPT) or "").lower() not in ("y", "yes"):
        return None
    await connect_account(box, str(paused.question.payload["provider"]), Principal.parse(user), SignInOptions(), output)
    action = await box.pending.get(paused.pending_id, by=user)
    return None if action.outcome is None else await box.pending.outcome(action.id, by=user, wait_s=0)


async def _fill_form(form: Form, whole: Mapping[str, Any], output: Output, *, above: str = "") -> Any:
    """Ask for the fields of a form, or of a nested object of it."""
    values, required = dict[str, Any](), (form or {}).get("required", ())
    for name, field in form_fields(form).items():
        if form_fields(field):
            value = await _fill_form(field, whole, output, above=f"{above}{name}.")
        else:
            value = await _ask_field(f"{above}{name}", field, whole, output, required=name in required)
        if value is LATER:
            return LATER
        if value is not _LEFT_OUT:
            values[name] = value
    return values


async def _ask_field(
    name: str, field: Mapping[str, Any], whole: Mapping[str, Any], output: Output, *, required: bool
) -> Any:
    """Ask for one field until its value is valid."""
    usual = f" [{format_json(field['default'])}]" if "default" in field else ""
    while True:
        text = await _read_line(f"  {name} ({describe_field(field, required=required)}){usual}: ")
        if text is None:
            return LATER
        if not text and (usual or not required):
            return field.get("default", _LEFT_OUT)
        value = parse_field(text, field)
        violation = _validation_problem(value, field, whole) if text else "a value is required"
        if not violation:
            return value
        output.note(f"  Invalid value: {violation}")


def _validation_problem(value: Any, field: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    """Return the validation error of a value; a field that cannot be checked alone is checked with the form."""
    from toolpost.schema.validator import compile_validator

    try:
        compile_validator({**field, "$defs": whole.get("$defs", {})}).check(value, "")
    except ToolValidationError as error:
        return "; ".join(issue.removeprefix("$: ") for issue in error.issues)
    except ToolSchemaError:
        return ""
    return ""


def _pages_to_open(question: Question) -> list[str]:
    """Return the web pages to open before answering."""
    page_requests: Any = question.payload.get("requests")
    requests = [one for one in page_requests.values() if is_object(one)] if is_object(page_requests) else []
    return [f"open {one['url']}" for one in requests if one.get("mode") == "url" and one.get("url")]


async def _read_line(question: str) -> str | None:
    text = await read_line(question)
    return None if text is None else text.strip()


async def read_line(question: str) -> str | None:
    """Read a line from the terminal without blocking the event loop; None at the end of input."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    sys.stderr.write(make_printable(question))
    sys.stderr.flush()
    loop.add_reader(sys.stdin.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    text = sys.stdin.readline()
    if not text:
        sys.stderr.write("\n")
    return text.rstrip("\n") if text else None


Form = Mapping[str, Any] | None


def describe_call(question: Question) -> list[str]:
    """Return lines about a paused call: arguments, target, preview and changes."""
    facts = {
        "arguments": question.arguments and format_json_line(dict(question.arguments)),
        "target": describe_target(question),
    }
    lines = [f"  {name}: {text}" for name, text in facts.items() if text]
    lines += [f"  | {line}" for line in str(question.payload.get("preview") or "").splitlines()]
    for change in question.payload.get("changes") or ():
        lines.append(f"  changed {change['part']}:")
        lines += [f"  - {line}" for line in change["before"].splitlines()]
        lines += [f"  + {line}" for line in change["after"].splitlines()]
    return lines


def describe_target(question: Question) -> str:
    """Return the target of a paused call on one line."""
    return question.target.get("summary", "")


def describe_form(form: Form) -> list[str]:
    """Return the fields of a form, one a line."""
    required = (form or {}).get("required", ())
    return [
        f"  {name}: {describe_field(field, required=name in required)}" for name, field in form_fields(form).items()
    ]


def parse_answer(text: str, form: Form) -> Any:
    """Parse an answer as JSON or text by its schema; the only field of a form takes a bare value."""
    fields = form_fields(form)
    only = next(iter(fields)) if len(fields) == 1 else None
    value = read_json_or_text(text)
    if is_object(value):
        return value
    wanted = (fields[only] if only is not None else form) or {}
    fit = text if wanted.get("type") == "string" and not isinstance(value, str) else value
    return fit if only is None else {only: fit}


def parse_field(text: str, field: Mapping[str, Any]) -> Any:
    """Parse the value of a field: a choice by value or title, a list by commas, else JSON or text."""
    plain = text.strip().casefold()
    for value, title in choices(field):
        if plain in (str(value).casefold(), title.casefold()):
            return value
    if field.get("type") == "boolean" and plain in _YES_OR_NO:
        return _YES_OR_NO[plain]
    value, items = parse_answer(text, field), field.get("items")
    if field.get("type") == "array" and isinstance(value, str):
        return [parse_field(part.strip(), as_object(items)) for part in value.split(",")]
    return value


def choices(field: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """Return the values of a field to choose from, each with its title or an empty text."""
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


def form_fields(form: Form) -> dict[str, dict[str, Any]]:
    """Return the fields of a form by name; none for another schema."""
    properties: Any = (form or {}).get("properties")
    return {name: field for name, field in properties.items() if is_object(field)} if is_object(properties) else {}


def describe_field(field: Mapping[str, Any], *, required: bool) -> str:
    """Describe a field: its type, whether it is required, and its description."""
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
    """Ask a yes-or-no question at the terminal; True with `yes`, a ToolError without a terminal."""
    if yes:
        return True
    if not is_interactive():
        raise ToolError(
            f"this needs confirmation, and there is no terminal to prompt at: {question} To confirm, add --yes",
            code="confirmation_needed",
        )
    with _interruptible():
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        # A signal just before a read does not interrupt it, so wait for input first.
        while sys.platform != "win32" and not select.select([sys.stdin], [], [], _LOOK_S)[0]:
            pass
        answer = sys.stdin.readline()
    return answer.strip().lower() in ("y", "yes")


def require_confirmation(question: str, *, yes: bool, done: str = "written") -> None:
    """Ask a yes-or-no question as `confirm` does; raise a ToolError for a no."""
    if not confirm(question, yes=yes):
        raise ToolError(f"nothing was {done}: not confirmed", code="not_confirmed")


def is_interactive() -> bool:
    """Return whether there is a terminal to prompt at."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


@contextmanager
def _interruptible() -> Generator[None]:
    """Let Ctrl-C raise while a line is read."""
    # The handler of the event loop would only record the first interrupt, and reading would continue.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
