"""`toolpost pending`: list, show and answer pending actions."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, cast, get_args

import typer

from toolpost.cli import completion
from toolpost.cli.arguments import read_json, read_json_or_text
from toolpost.cli.commands import AllTenants, Commands, CommonOptions, check_operator, describe_user
from toolpost.cli.completion import resolve_id
from toolpost.cli.output import Output, format_json, format_json_line, format_time
from toolpost.cli.prompts import (
    LATER,
    ask_at_terminal,
    describe_target,
    is_interactive,
    next_step,
    parse_answer,
    prompt_unknown,
    prompt_value,
    show_outcome,
)
from toolpost.cli.runner import FAILED, answer_source, no_source, pending_sources, run_with_box
from toolpost.contracts.errors import PendingNotFoundError, ToolError, ToolValidationError
from toolpost.contracts.outcomes import Failed
from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.contracts.questions import DECISIONS, Decision, PendingAction, PendingStatus, answering_user
from toolpost.schema.json_patch import apply_patch, has_value
from toolpost.schema.json_values import is_array

if TYPE_CHECKING:
    from toolpost.toolbox.box import Toolbox

app = Commands(help="List and answer pending actions.", no_args_is_help=True)

Id = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="ID of the pending action, or a unique prefix; see `pending list`.",
        autocompletion=completion.open_pending_ids,
    ),
]
Status = Annotated[
    Literal["open", "claimed", "answered", "denied", "expired", "cancelled", "all"],
    typer.Option("--status", help="Only pending actions in this state."),
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="Show at most N, newest first.")]
Changes = Annotated[
    str | None,
    typer.Option(
        "--changes", metavar="JSON", help="Change the arguments before the call, with a JSON Patch: JSON, @FILE or -."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Set one argument before the call, such as /to=bob. Can be repeated."
    ),
]
Remove = Annotated[
    list[str] | None,
    typer.Option("--remove", metavar="PATH", help="Remove one argument before the call. Can be repeated."),
]
Reason = Annotated[str, typer.Option("--reason", help="Reason, which is returned to the caller.")]
Value = Annotated[
    str | None, typer.Argument(metavar="[VALUE]", help="The answer: JSON or plain text; if omitted, prompts for it.")
]
AnswerDecision = Annotated[
    Literal["answer", "happened", "not_happened", "rerun"] | None,
    typer.Option("--decision", help="For a call with an unknown outcome: whether it happened, or rerun."),
]


@app.command("list")
def list_pending(
    common: CommonOptions, status: Status = "open", limit: Limit = 100, all_tenants: AllTenants = False
) -> None:
    """List the pending actions of your tenant."""
    check_operator(common.user, all_tenants=all_tenants)
    wanted = cast("PendingStatus", status) if status in get_args(PendingStatus) else None

    async def find(box: Toolbox) -> list[PendingAction]:
        return await box.pending.list(by=common.user, status=wanted, limit=limit, all_tenants=all_tenants)

    async def work(box: Toolbox, output: Output) -> int:
        actions = await find(box)
        if common.json:
            output.document([box.pending.card(action) for action in actions])
        else:
            others = "" if actions or all_tenants else await _waiting_elsewhere(box, common.user, output)
            nothing = _nothing_text(None if all_tenants else common.user, wanted)
            _show_list(actions, output, nothing=f"{nothing} {others}".rstrip(), all_tenants=all_tenants)
        return 0

    # The table has the arguments as they were when the call paused.
    sources = pending_sources(find) if common.json else no_source
    run_with_box(work, common, sources)


@app.command("show")
def show_pending(common: CommonOptions, pending_id: Id) -> None:
    """Show one pending action and what it would run."""
    reference = _ActionReference(pending_id, common.user, common.config)

    async def find(box: Toolbox) -> list[PendingAction]:
        return [await reference.find(box)]

    async def work(box: Toolbox, output: Output) -> int:
        action = await reference.find(box)
        _show_one(action, box.pending.card(action), output, user=common.user)
        return 0

    run_with_box(work, common, pending_sources(find))


@app.command("approve")
def approve(
    common: CommonOptions, pending_id: Id, set_: Set = None, remove: Remove = None, changes: Changes = None
) -> None:
    """Approve a pending action and run its call, with its arguments or changed ones.

    A path is a JSON Pointer into the exact arguments, such as /to or /lines/0/text. Arguments that no option names keep
    their values, including masked secrets. Exits like the call: 0 completed, 1 failed, 3 paused again.
    """
    patch: Any = [] if changes is None else read_json(changes, option="--changes")
    if not is_array(patch):
        raise typer.BadParameter("a JSON Patch is a list of operations", param_hint="--changes")
    pairs = [_parse_pair(pair) for pair in set_ or ()]
    reference = _ActionReference(pending_id, common.user, common.config)

    async def work(box: Toolbox, output: Output) -> int:
        if await reference.refuses("approve", box, output):
            return FAILED
        action = await reference.find(box)
        for path, value in pairs:
            is_there = has_value(apply_patch(dict(action.arguments), patch), path)
            patch.append({"op": "replace" if is_there else "add", "path": path, "value": value})
        patch.extend({"op": "remove", "path": path} for path in remove or ())
        outcome = await box.approve(action.id, by=common.user, changes=patch or None)
        return show_outcome(await ask_at_terminal(outcome, box, output, user=common.user), output)

    run_with_box(work, common, answer_source(reference.find))


@app.command("deny")
def deny(common: CommonOptions, pending_id: Id, reason: Reason = "") -> None:
    """Deny a pending action permanently.

    Exits with 0 if the action is denied, including when the tool asked the question itself and continues without the
    answer.
    """
    reference = _ActionReference(pending_id, common.user, common.config)

    async def work(box: Toolbox, output: Output) -> int:
        if await reference.refuses("deny", box, output):
            return FAILED
        action = await reference.find(box)
        outcome = await box.deny(action.id, by=common.user, reason=reason)
        is_inside = outcome.call_id != action.call_id
        # The tool was notified, and continued without an answer.
        was_told = action.question.deliver_denial and box.registry.has(action.tool_name)
        if output.as_json or was_told or not (is_inside or isinstance(outcome, Failed)):
            show_outcome(outcome, output)
            return 0
        output.text(f"denied: {action.tool_name} was not run, and its caller is notified.")
        if is_inside:  # the parent call may have continued without it
            show_outcome(outcome, output)
        return 0

    run_with_box(work, common, answer_source(reference.find))


@app.command("answer")
def answer(common: CommonOptions, pending_id: Id, value: Value = None, decision: AnswerDecision = None) -> None:
    """Answer a question other than an approval.

    The call resumes with the answer. Exits like the call: 0 completed, 1 failed, 3 paused again. If VALUE is omitted,
    prompts for it; for a call with an unknown outcome, prompts for the decision.
    """
    reference = _ActionReference(pending_id, common.user, common.config)

    async def work(box: Toolbox, output: Output) -> int:
        action = await reference.find(box)
        decided = decision or await _prompt_decision(action, output)
        if await reference.refuses(decided, box, output):
            return FAILED
        answer_value = None if value is None else parse_answer(value, action.question.answer_schema)
        if value is None and action.question.kind == "input":
            answer_value = await _prompt_answer(action, output)
        try:
            outcome = await box.answer(action.id, answer_value, by=common.user, decision=decided)
        except ToolValidationError as error:
            output.failure(error, advice=f"`toolpost pending show {action.id}{output.options}` shows the question.")
            return FAILED
        return show_outcome(await ask_at_terminal(outcome, box, output, user=common.user), output)

    run_with_box(work, common, answer_source(reference.find))


def _parse_pair(pair: str) -> tuple[str, Any]:
    """Split PATH=VALUE; the value is JSON or plain text."""
    path, separator, value = pair.partition("=")
    if not separator or not path.startswith("/"):
        raise typer.BadParameter(f"{pair!r} is not PATH=VALUE; a path begins with /, as in /to=bob", param_hint="--set")
    return path, read_json_or_text(value)


async def _prompt_decision(action: PendingAction, output: Output) -> Decision:
    """Prompt for the decision about a call with an unknown outcome; other actions take an answer."""
    if action.question.kind != "unknown" or output.as_json or not is_interactive():
        return "answer"
    decided = await prompt_unknown(action.question, output)
    if decided is None:
        raise ToolError(f"{action.id!r} was not answered and is still open", code="not_answered")
    return decided


async def _prompt_answer(action: PendingAction, output: Output) -> Any:
    """Prompt for the answer that the command line lacks."""
    if output.as_json or not is_interactive():
        raise typer.BadParameter("give the answer; for no value, write null", param_hint="VALUE")
    value = await prompt_value(action.question, output)
    if value is LATER:
        raise ToolError(f"{action.id!r} was not answered and is still open", code="not_answered")
    return value


class _ActionReference(NamedTuple):
    """Id of a pending action on the command line."""

    id: str
    user: str
    config: Path | None

    async def find(self, box: Toolbox) -> PendingAction:
        """Read the pending action; the error names the user if there is none."""
        try:
            return await box.pending.get(await resolve_id(box, "pending", self.id, user=self.user), by=self.user)
        except PendingNotFoundError as error:
            options = CommonOptions(self.config, self.user)
            elsewhere = await self._elsewhere(box)
            error.message = f"Pending action {self.id!r} not found for {describe_user(self.user)}. " + (
                elsewhere or f"`toolpost pending list{options}` shows the open ones."
            )
            raise

    async def _elsewhere(self, box: Toolbox) -> str:
        """Return the option with which the operator reaches an action of another tenant, or an empty string."""
        if Principal.parse(self.user).tenant != LOCAL_TENANT:
            return ""
        action = await box.store.pending.get(self.id)
        return (
            "" if action is None else f"It belongs to the tenant {action.asked_by.tenant!r}: add {_as_person(action)}."
        )

    async def refuses(self, decision: Decision, box: Toolbox, output: Output) -> bool:
        """Return whether the action does not accept a decision, and report the command that answers it."""
        action = await self.find(box)
        kind = action.question.kind
        if decision in DECISIONS[kind]:
            return False
        message = f"a pending action of kind {kind} accepts {', '.join(sorted(DECISIONS[kind]))}, not {decision!r}"
        advice = next_step(action.question, self.id, output.options, by_asker=self.user == str(action.asked_by))
        output.failure(ToolValidationError(message, tool_name=action.tool_name), advice=advice)
        return True


def _as_person(action: PendingAction) -> str:
    """Return the --user option of a principal who may answer an action of another tenant."""
    return f"--user {shlex.quote(answering_user(action.question, action.asked_by))}"


async def _waiting_elsewhere(box: Toolbox, user: str, output: Output) -> str:
    """Return how many pending actions are open in other tenants, for the operator; empty if there are none."""
    if Principal.parse(user).tenant != LOCAL_TENANT:
        return ""
    actions = await box.pending.list(by=user, all_tenants=True)
    tenants = Counter(action.asked_by.tenant for action in actions)
    if not tenants:
        return ""
    waiting = ", ".join(f"{number} {'waits' if number == 1 else 'wait'} in {name}" for name, number in tenants.items())
    return f"{waiting}: `toolpost pending list --all-tenants{output.options}` shows them."


def _nothing_text(user: str | None, status: PendingStatus | None) -> str:
    """Return the text of an empty list, which names the tenant and user; None is for all tenants."""
    what = {"open": "No pending action is open", None: "No pending actions"}.get(
        status, f"No pending action is {status}"
    )
    if user is None:
        return f"{what} in any tenant."
    return f"{what} in the tenant {Principal.parse(user).tenant!r}, as seen by {describe_user(user)}."


def _show_list(actions: list[PendingAction], output: Output, *, nothing: str, all_tenants: bool) -> None:
    if not actions:
        output.text(nothing)
        return
    columns = ["Id", "Status", "Tool", "Asked by", "Question", "Arguments", "Target", "Since"]
    output.table(columns, [_row(action) for action in actions])
    whose = " --user TENANT:NAME" if all_tenants else ""
    output.note(f"`toolpost pending show ID{output.options}{whose}` shows one in full.")


def _row(action: PendingAction) -> tuple[str, ...]:
    question = action.question
    call = (format_json_line(dict(question.arguments)), describe_target(question))
    columns = (action.tool_name, str(action.asked_by), question.prompt)
    return action.id, action.status, *columns, *call, format_time(action.created_at)


def _show_one(action: PendingAction, document: dict[str, Any], output: Output, *, user: str) -> None:
    if output.as_json:
        output.document(document)
        return
    times = {key: format_time(document[key]) for key in ("created_at", "expires_at", "answered_at")}
    payload = dict(document["payload"])
    lines = {"preview": payload.pop("preview", None), "target": describe_target(action.question)}
    plain = {**document, **times, "payload": payload, **lines, "answers": None}  # the note below names commands
    rows = [(key, format_json(value)) for key, value in plain.items() if value and value != document["prompt"]]
    output.table(["", document["prompt"]], rows)
    if action.status == "open":
        output.note(next_step(action.question, action.id, output.options, by_asker=user == str(action.asked_by)))
