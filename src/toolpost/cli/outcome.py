"""An outcome, shown: the object for programs, what to do next for people, and the exit code."""

from __future__ import annotations

from typing import assert_never

from toolpost.cli.answers import call_lines, form_lines
from toolpost.cli.options import Repeated, default_user
from toolpost.cli.output import Output, pretty
from toolpost.contracts.outcomes import Completed, Failed, Outcome, Paused, outcome_to_dict
from toolpost.contracts.questions import Question, QuestionKind

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
        _tell(outcome, output)
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


def _tell(outcome: Outcome, output: Output) -> None:
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
