"""`toolpost pending`: the questions that wait for a person, and answering them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args

import typer

from toolpost.cli.options import Config, Json, User, read_json, read_json_or_text
from toolpost.cli.outcome import next_step, show_outcome
from toolpost.cli.output import Output, moment, pretty
from toolpost.cli.session import run_with_box
from toolpost.contracts.errors import ToolValidationError
from toolpost.contracts.questions import PendingAction, PendingStatus
from toolpost.schema.jsontypes import is_object

if TYPE_CHECKING:
    from toolpost.toolbox.box import Toolbox

app = typer.Typer(help="See and answer what waits for a person.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="The question's id, as `pending list` shows it.")]
Status = Annotated[
    Literal["open", "claimed", "answered", "denied", "expired", "cancelled", "all"],
    typer.Option("--status", help="Only questions in this state."),
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="At most so many, the newest first.")]
Args = Annotated[
    str | None, typer.Option("--args", metavar="JSON", help="Run it with these arguments instead: JSON, @FILE or -.")
]
Reason = Annotated[str, typer.Option("--reason", help="Why not; the caller is told.")]
Value = Annotated[str | None, typer.Argument(metavar="[VALUE]", help="The answer: JSON, or plain text.")]
AnswerDecision = Annotated[
    Literal["answer", "happened", "not_happened", "rerun"],
    typer.Option("--decision", help="For a call with an unknown end: what is true, or to run it again."),
]


@app.command("list")
def list_pending(
    status: Status = "open", limit: Limit = 100, config: Config = None, user: User = "", json: Json = False
) -> None:
    """List the questions of your tenant."""
    wanted = cast("PendingStatus", status) if status in get_args(PendingStatus) else None

    async def work(box: Toolbox, output: Output) -> int:
        actions = await box.desk.list(by=user, status=wanted, limit=limit)
        _show_list([_told(action, box) for action in actions], output)
        return 0

    run_with_box(work, config=config, as_json=json)


@app.command("show")
def show_pending(pending_id: Id, config: Config = None, user: User = "", json: Json = False) -> None:
    """Show one question and what it would run."""

    async def work(box: Toolbox, output: Output) -> int:
        _show_one(_told(await box.desk.get(pending_id, by=user), box), output)
        return 0

    run_with_box(work, config=config, as_json=json)


@app.command("approve")
def approve(pending_id: Id, args: Args = None, config: Config = None, user: User = "", json: Json = False) -> None:
    """Run the waiting call.

    Exits as the call does: 0 completed, 1 failed, 3 paused again.
    """
    arguments = None if args is None else read_json(args, option="--args")

    async def work(box: Toolbox, output: Output) -> int:
        if arguments is not None and not is_object(arguments):
            raise ToolValidationError("the arguments must be an object, such as {}")
        return show_outcome(await box.approve(pending_id, by=user, arguments=arguments), output)

    run_with_box(work, config=config, as_json=json)


@app.command("deny")
def deny(pending_id: Id, reason: Reason = "", config: Config = None, user: User = "", json: Json = False) -> None:
    """Refuse the waiting call for good.

    Exits 1, as for every call that did not succeed.
    """

    async def work(box: Toolbox, output: Output) -> int:
        outcome = await box.deny(pending_id, by=user, reason=reason)
        if output.as_json:
            return show_outcome(outcome, output)
        output.text(f"denied: {outcome.tool_name} was not run, and its caller is told so.")
        return 1

    run_with_box(work, config=config, as_json=json)


@app.command("answer")
def answer(
    pending_id: Id,
    value: Value = None,
    decision: AnswerDecision = "answer",
    config: Config = None,
    user: User = "",
    json: Json = False,
) -> None:
    """Answer what is not a yes or no.

    The call goes on with the answer; exits as the call does: 0 completed, 1 failed, 3 paused again.
    """
    given = None if value is None else read_json_or_text(value)

    async def work(box: Toolbox, output: Output) -> int:
        return show_outcome(await box.answer(pending_id, given, by=user, decision=decision), output)

    run_with_box(work, config=config, as_json=json)


def _told(action: PendingAction, box: Toolbox) -> dict[str, Any]:
    """A question as plain data; what is secret in it stays so, and the approved call runs with it all the same."""
    redactor, name = box.router.teller.redactor, action.tool_name
    redact = redactor.for_tool(box.registry.find(name).spec) if box.registry.has(name) else redactor.plain
    open_text = redact(
        {
            "prompt": action.question.prompt,
            "payload": dict(action.question.payload),
            "arguments": dict(action.arguments),
            "outcome": action.outcome,
        }
    )
    return {
        "id": action.id,
        "status": action.status,
        "kind": action.question.kind,
        "reason": action.question.reason,
        "tool_name": name,
        **open_text,
        "call_id": action.call_id,
        "run_id": action.run_id,
        "asked_by": str(action.asked_by),
        "created_at": action.created_at,
        "expires_at": action.expires_at,
        "answered_by": action.answered_by,
        "answered_at": action.answered_at,
    }


def _show_list(questions: list[dict[str, Any]], output: Output) -> None:
    if output.as_json:
        output.document(questions)
        return
    if not questions:
        output.text("Nothing waits for an answer.")
        return
    keys = ("id", "status", "tool_name", "asked_by", "prompt")
    rows = [(*(question[key] for key in keys), moment(question["created_at"])) for question in questions]
    output.table(["Id", "Status", "Tool", "Asked by", "Question", "Since"], rows)
    output.note("`toolpost pending show ID` shows the arguments of one.")


def _show_one(question: dict[str, Any], output: Output) -> None:
    if output.as_json:
        output.document(question)
        return
    times = {key: moment(question[key]) for key in ("created_at", "expires_at", "answered_at")}
    rows = [(key, pretty(value)) for key, value in {**question, **times}.items() if value not in (None, "", {})]
    output.table(["", question["prompt"]], rows)
    if question["status"] == "open":
        output.note(next_step(question["kind"], question["id"], question["payload"]))
